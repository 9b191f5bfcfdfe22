package repos

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/reconcile"
)

// TestSuspended: a suspended Repository is ignored until its time is over or a
// person resumes it, across restarts, and another one of its name is not meant.
func TestSuspended(t *testing.T) {
	t.Parallel()
	var s *Suspensions
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		var err error
		if s, err = OpenSuspensions(t.Context(), r.store); err != nil {
			t.Fatal(err)
		}
		o.Suspensions = s
	})
	r.repo.Add(t, "a.json")
	// Without sync there is nothing to do but to see that it is healthy.
	off := map[string]any{"sync": map[string]any{"enabled": false}}
	made := r.create(off, nil)
	r.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	k := reconcile.Key{Namespace: r.namespace, Name: "site"}
	one := Suspension{Namespace: k.Namespace, Repository: k.Name, UID: string(made.GetUID()), Until: time.Now().Add(2 * time.Second)}
	if err := s.Suspend(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	r.merge(`{"spec":{"title":"Other"}}`)
	eventually(t, "it waits for its end", func() bool { return r.controller.Next(k.Namespace, k.Name).Equal(one.Until) })
	if repo, _ := r.get(); repo.Status.ObservedGeneration != 1 {
		t.Errorf("it was not left alone: %+v", repo.Status)
	}
	again, err := OpenSuspensions(t.Context(), r.store)
	if _, on := again.Of(k, one.UID); err != nil || !on {
		t.Errorf("it did not outlive a restart: %v", err)
	}
	if _, on := again.Of(k, "other"); on {
		t.Error("another repository of that name is suspended")
	}
	repo := r.until("it goes on by itself", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 2 })
	if checked := time.UnixMilli(repo.Status.Health.Checked); checked.Before(one.Until.Add(-time.Minute)) {
		t.Errorf("checked at %s", checked)
	}

	one.Until = time.Time{}
	if err := s.Suspend(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	r.merge(`{"spec":{"title":"Third"}}`)
	eventually(t, "it waits for ever", func() bool {
		seen, ok := r.controller.repos.Get(k.Namespace, k.Name)
		return ok && seen.GetGeneration() == 3 && r.controller.Len() == 0
	})
	if was, err := s.Resume(t.Context(), k.Namespace, k.Name); err != nil || !was {
		t.Errorf("resume: %t %v", was, err)
	}
	r.controller.Wake(k.Namespace, k.Name)
	r.until("it goes on", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 3 })
	if all, err := s.Suspended(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestSuspensionThatIsOver is none, and a clock that is ahead for a while ends none.
func TestSuspensionThatIsOver(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	s, err := OpenSuspensions(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	on := reconcile.Key{Namespace: "ns", Name: "on"}
	for k, until := range map[reconcile.Key]time.Time{
		{Namespace: "ns", Name: "over"}: time.Now().Add(-time.Second), on: time.Now().Add(10 * time.Hour),
	} {
		if err := s.Suspend(t.Context(), Suspension{Namespace: k.Namespace, Repository: k.Name, UID: "1", Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.Suspended(t.Context()); err != nil || len(all) != 1 || all[0].Repository != "on" {
		t.Errorf("%+v %v", all, err)
	}
	if was, err := s.Resume(t.Context(), "ns", "none"); was || err != nil {
		t.Errorf("resume: %t %v", was, err)
	}
	// The host starts a year ahead.
	if s, err = OpenSuspensions(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	gone := suspender{all: s}
	s.now = func() time.Time { return time.Now().AddDate(1, 0, 0) }
	if err := gone.drop(t.Context(), on, "1"); err != nil || suspendedNow(s, on) {
		t.Errorf("suspended by a clock that is ahead: %v", err)
	}
	s.now = time.Now
	if !suspendedNow(s, on) {
		t.Error("it was ended by the clock")
	}
}

// TestSuspensionOfADeletedRepository: with its Repository a suspension leaves the state file,
// also when that went while no controller ran, or has come again.
func TestSuspensionOfADeletedRepository(t *testing.T) {
	t.Parallel()
	var s *Suspensions
	var store *state.Store
	k := reconcile.Key{Name: "site"}
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		k.Namespace, store = r.namespace, r.store
		var err error
		if s, err = OpenSuspensions(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"site", "went-before"} {
			if err := s.Suspend(t.Context(), Suspension{Namespace: r.namespace, Repository: name, UID: "of-before"}); err != nil {
				t.Fatal(err)
			}
		}
		o.Suspensions = s
	})
	none := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			facts, err := store.Facts(t.Context(), suspendPrefix)
			return err == nil && len(facts) == 0
		})
	}
	r.repo.Add(t, "a.json")
	made := r.create(map[string]any{"sync": map[string]any{"enabled": false}}, nil)
	r.until("it is reconciled", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	none("those of before are gone")
	if err := s.Suspend(t.Context(), Suspension{Namespace: k.Namespace, Repository: k.Name, UID: string(made.GetUID())}); err != nil {
		t.Fatal(err)
	}
	r.controller.Wake(k.Namespace, k.Name)
	eventually(t, "it is ignored", func() bool { return r.controller.Len() == 0 })
	if _, on := s.Of(k, string(made.GetUID())); !on {
		t.Error("it was dropped")
	}
	r.delete()
	none("it is gone with its repository")
}

func suspendedNow(s *Suspensions, k reconcile.Key) bool {
	_, on := s.Of(k, "1")
	return on
}

// TestSuspensionBehindSelector: a suspension ends with its Repository, not when the watch no longer
// shows it.
func TestSuspensionBehindSelector(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	made, res := r.create(nil, nil), r.client.Resource(api.Repositories).Namespace(r.namespace)
	s, err := OpenSuspensions(t.Context(), r.store)
	if err != nil {
		t.Fatal(err)
	}
	k, uid := reconcile.Key{Namespace: r.namespace, Name: "site"}, string(made.GetUID())
	if err := s.Suspend(t.Context(), Suspension{Namespace: r.namespace, Repository: "site", UID: uid, Since: time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	gone := suspender{s, serverOf(r.client, api.Repositories)}
	for _, want := range []bool{true, false} {
		if err := gone.drop(t.Context(), k, ""); err != nil {
			t.Fatal(err)
		}
		if _, on := s.Of(k, uid); on != want {
			t.Errorf("suspended %t, want %t", on, want)
		}
		if err := res.Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil && want {
			t.Fatal(err)
		}
	}
}
