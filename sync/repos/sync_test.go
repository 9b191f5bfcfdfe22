package repos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/testenv"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/drift"
)

// TestVerifiedAnew: a tag that was made anew for the same commit, and keys that are
// others now, have the commit that is in place judged again; nothing else does.
func TestVerifiedAnew(t *testing.T) {
	t.Parallel()
	file, public := signingKey(t)
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var files atomic.Pointer[auth.Trust]
			has := func(principal string) {
				files.Store(&auth.Trust{Files: map[string][]byte{"allowed_signers": fmt.Appendf(nil, "%s %s", principal, public)}})
			}
			has("ops@example.com")
			r := newRig(t, server, func(r *rig, o *Options) {
				r.trust = func(context.Context, auth.Lookup) (*auth.Trust, error) { return files.Load(), nil }
				o.Trust = checkout.NewSigners(r.trust, nil, nil)
			})
			r.repo.Add(t, "a.json")
			head := r.repo.Head(t)
			tag := func(options ...string) {
				t.Helper()
				r.repo.Git(t, append([]string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + file, "tag", "-f", "-m", time.Now().String()},
					append(options, "v1")...)...)
			}
			told := func(what, status, reason string, pulls int64) {
				t.Helper()
				r.until(what, func(repo api.Repository) bool {
					c := condition(repo, api.ConditionVerified)
					return c.Status == status && c.Reason == reason && repo.Status.Sync.Finished > pulls
				})
			}
			finished := func() int64 { repo, _ := r.get(); return repo.Status.Sync.Finished }

			tag("-s")
			r.create(nil, nil)
			r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"tag:v1",%q:"Tag",%q:"ops@example.com"}}}`, api.AnnoGitRef, api.AnnoGitVerify,
				api.AnnoGitVerifyPrincipals))
			r.pulls()
			r.later(0)
			told("the first pull", "True", "Verified", 0)
			r.pulled(head)

			before := finished()
			tag("-a")
			r.later(2 * time.Minute)
			told("the tag was made anew without a signature", "False", "Unsigned", before)
			before = finished()
			tag("-s")
			r.later(2 * time.Minute)
			told("and with one", "True", "Verified", before)

			before = finished()
			has("eve@example.com")
			r.later(2 * time.Minute)
			told("the key is another's now", "False", "Principal", before)
			has("ops@example.com")
			before = finished()
			r.later(2 * time.Minute)
			told("and back", "True", "Verified", before)

			before = finished()
			r.git.Reset()
			r.later(2 * time.Minute)
			eventually(t, "a reconcile", func() bool { return r.git.Reset().InfoRefs > 0 })
			if repo := r.pulled(head); repo.Status.Sync.Finished != before {
				t.Error("it was pulled although nothing has changed")
			}
		})
	}
}

// signingKey makes a key of ssh.
func signingKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, string(data)
}

// signHead puts a signed commit in the place of the newest.
func (r *rig) signHead(key string) string {
	r.t.Helper()
	id := r.repo.Git(r.t, "-c", "gpg.format=ssh", "-c", "user.signingKey="+key, "commit-tree", "-S", "-m", "signed", "HEAD^{tree}", "-p",
		"HEAD")
	r.repo.Git(r.t, "update-ref", "refs/heads/"+testenv.Branch, id)
	return id
}

// keyring is a place of keys.
type keyring struct{ files atomic.Pointer[auth.Trust] }

func (k *keyring) set(public ...string) {
	k.files.Store(&auth.Trust{Files: map[string][]byte{"a.sshpub": []byte(strings.Join(public, ""))}, Place: "the test"})
}

func (k *keyring) find(context.Context, auth.Lookup) (*auth.Trust, error) { return k.files.Load(), nil }

// queued takes the reasons of the pulls that were asked for.
func (r *rig) queued() (reasons []string) {
	for {
		select {
		case e := <-r.events:
			if why, is := strings.CutPrefix(e.Text, "pull queued: "); is {
				reasons = append(reasons, why)
			}
		default:
			return reasons
		}
	}
}

// lookMeter is a Meter that counts reconciles.
type lookMeter struct {
	noMeter
	looks atomic.Int64
}

func (c *lookMeter) Worked(reconcile.Done) { c.looks.Add(1) }

// looks lets the controller look n times, each as if the interval were over, and returns
// the pulls that it asks for. Those have ended, and it has seen what came of them.
func (r *rig) looks(looked *lookMeter, n int) (reasons []string) {
	r.t.Helper()
	for range n {
		r.ahead.Add(int64(2 * time.Minute))
		for under := true; under; {
			for range 2 { // the first may have begun before
				before := looked.looks.Load()
				r.controller.Wake(r.namespace, "site")
				eventually(r.t, "a reconcile", func() bool { return looked.looks.Load() > before })
			}
			under = r.busy()
			eventually(r.t, "no pull under way", func() bool { return !r.busy() })
		}
		reasons = append(reasons, r.queued()...)
	}
	return reasons
}

// busy says that a pull is asked for or under way.
func (r *rig) busy() bool {
	r.t.Helper()
	list, err := r.client.Resource(api.Jobs).Namespace(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	repo, _ := r.get()
	return len(list.Items) > 0 || repo.Status.Sync.State == api.StatePending || repo.Status.Sync.State == api.StateWorking
}

// TestAgentsWithOtherKeys: two agents with different keys on one API. One looks after the
// Repository, the other runs the pulls. The first asks once for a pull.
func TestAgentsWithOtherKeys(t *testing.T) {
	t.Parallel()
	key1, public1 := signingKey(t)
	_, public2 := signingKey(t)
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var mine, theirs keyring
			var looked lookMeter
			mine.set(public1)
			theirs.set(public1, public2)
			r := newRig(t, server, func(r *rig, o *Options) {
				r.trust, o.Meter, o.Trust = theirs.find, &looked, checkout.NewSigners(mine.find, nil, nil)
			})
			r.repo.Add(t, "a.json")
			first := r.signHead(key1)
			r.create(nil, nil)
			r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"HEAD"}}}`, api.AnnoGitVerify))
			r.pulls()
			r.later(0)
			repo := r.pulled(first)
			if c := condition(repo, api.ConditionVerified); c.Status != "True" || api.VerificationOf(repo.Status.Conditions).Object != first {
				t.Errorf("the first pull: %+v", c)
			}
			if got := r.looks(&looked, 4); len(got) == 0 || got[0] != "first pull" || len(got) > 2 { // that one may be from before the annotation
				t.Errorf("asked for pulls %q", got)
			}
			if got := r.looks(&looked, 3); len(got) != 0 {
				t.Errorf("asked for pulls %q", got)
			}
			mine.set(public2)
			if got := r.looks(&looked, 4); len(got) != 1 {
				t.Errorf("with other keys: asked for pulls %q", got)
			}
		})
	}
}

// TestAnnotationsCountAtOnce: an annotation about signatures counts at once, not at the next
// interval.
func TestAnnotationsCountAtOnce(t *testing.T) {
	t.Parallel()
	key, public := signingKey(t)
	var keys keyring
	keys.set(public)
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		r.trust = keys.find
		o.Trust = checkout.NewSigners(keys.find, nil, nil)
	})
	r.repo.Add(t, "a.json")
	signed := r.signHead(key)
	r.create(map[string]any{"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}}, nil)
	r.pulls()
	r.later(0)
	r.pulled(signed)
	told := func(name, value, status, reason string) {
		t.Helper()
		text := fmt.Sprintf("%q", value)
		if value == "" {
			text = "null"
		}
		r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, text)) // no time passes
		r.until(name+" "+value, func(repo api.Repository) bool {
			c := condition(repo, api.ConditionVerified)
			return c.Status == status && c.Reason == reason && repo.Status.Sync.State != api.StatePending &&
				repo.Status.Sync.State != api.StateWorking
		})
	}
	told(api.AnnoGitVerify, "HEAD", "True", "Verified")
	told(api.AnnoGitVerify, "Tag", "False", "WrongMode")
	told(api.AnnoGitVerify, "HEAD", "True", "Verified")
	told(api.AnnoGitVerifyPrincipals, "boss@example.com", "False", "Principal")
	told(api.AnnoGitVerifyPrincipals, "", "True", "Verified")
	told(api.AnnoGitVerify, "", "", "")
	// Nobody looks while it is written; the next process sees that it was never judged.
	r.controller.restart()
	told(api.AnnoGitVerify, "HEAD", "True", "Verified")
}

// TestSinks: an agent writes its own directory at its start and after a pull that another agent has
// run, without a job.
func TestSinks(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "site")
	r.repo.Add(t, "a.json")
	r.create(map[string]any{"sync": map[string]any{"enabled": false, "target": "folder", "intervalSeconds": int64(60)}}, nil)
	suspensions, err := OpenSuspensions(t.Context(), r.store)
	if err != nil {
		t.Fatal(err)
	}
	start := func() (stop func()) {
		objects := r.client.Informer(api.Repositories, r.namespace, kube.InformerOptions{})
		pull := worker.NewPull(worker.PullOptions{Client: r.client, Source: checkout.Source{Git: r.mirrors, Credentials: auth.Chain()}, SinkPrefixes: []string{prefix}})
		sinks := NewSinks(r.client, objects, PulledOptions{Pull: pull, Suspensions: suspensions, Resync: time.Second,
			Observe: func(reconcile.Event) {}, Logger: slog.New(slog.DiscardHandler)})
		return running(t, objects.Run, sinks.Run)
	}
	has := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	stop := start()
	r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"sync":{"enabled":true}}}`, api.AnnoSinkDir, dir))
	r.until("observed", func(repo api.Repository) bool { return repo.Status.ObservedGeneration > 1 })
	pulled := func(finished int) {
		t.Helper()
		if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(t.Context(), "site", types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"sync":{"state":"success","lastRef":%q,"finished":%d}}}`, r.repo.Head(t), finished),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	pulled(1)
	eventually(t, "after the pull of another agent", has("a.json"))
	r.repo.Add(t, "b.json")
	pulled(2)
	eventually(t, "the next commit", has("b.json"))
	stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	stop = start()
	eventually(t, "at the start", has("b.json"))
	stop()
}

// TestDrifts: what a person has edited becomes a condition and, where the Repository says so, a
// full pull; one only, when it cannot correct it.
func TestDrifts(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repo.Add(t, "a.json")
	r.create(nil, nil)
	r.pulls()
	r.later(0)
	r.pulled(r.repo.Head(t))
	suspensions, err := OpenSuspensions(t.Context(), r.store)
	if err != nil {
		t.Fatal(err)
	}
	objects := r.client.Informer(api.Repositories, r.namespace, kube.InformerOptions{})
	pull := worker.NewPull(worker.PullOptions{Client: r.client, Source: checkout.Source{Git: r.mirrors, Credentials: auth.Chain()}, Store: r.store})
	drifts := NewDrifts(r.client, objects, PulledOptions{Pull: pull, Store: r.store, Suspensions: suspensions, Resync: time.Second,
		Observe: func(reconcile.Event) {}, Logger: slog.New(slog.DiscardHandler)})
	defer running(t, objects.Run)()
	if err := objects.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := reconcile.Key{Namespace: r.namespace, Name: "site"}
	drifts.start = drifts.now()
	drifts.now = func() time.Time { return drifts.start.Add(3 * time.Hour) } // each one is due
	check := func(status string, count int, failed bool) {
		t.Helper()
		eventually(t, "the drift is "+status, func() bool {
			if _, err := drifts.reconcile(t.Context(), k); err != nil && !errors.Is(err, reconcile.ErrConflict) {
				t.Fatal(err)
			}
			repo, u := r.get()
			last, err := r.store.Drift(t.Context(), k.Namespace, k.Name, string(u.GetUID()))
			return err == nil && condition(repo, api.ConditionDrifted).Status == status && last.Count == count &&
				(last.Correction == "failed") == failed
		})
	}
	check("False", 0, false)
	boards := r.client.Resource(schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}).
		Namespace(r.namespace)
	list, err := boards.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	name := list.Items[0].GetName()
	edit := []byte(`{"spec":{"title":"By hand"}}`)
	if _, err := boards.Patch(t.Context(), name, types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check("True", 1, false)
	title := func() string {
		u, err := boards.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return api.Spec(u, "title")
	}
	if title() != "By hand" {
		t.Error("an edit was taken back")
	}
	r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"correct"}}}`, api.AnnoDrift))
	check("False", 0, false)
	if title() == "By hand" {
		t.Error("not corrected")
	}
	// A folder stays that holds what is not the repository's.
	for _, body := range []string{`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"gone","annotations":{
		"grafana.app/managedBy":"repo","grafana.app/managerId":"site","grafana.app/sourcePath":"gone"}},"spec":{"title":"A"}}`,
		`{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"mine","annotations":{
		"grafana.app/folder":"gone"}},"spec":{"title":"Mine"}}`} {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON([]byte(body)); err != nil {
			t.Fatal(err)
		}
		res := u.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(u.GetKind()) + "s")
		if _, err := r.client.Resource(res).Namespace(r.namespace).Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	check("True", 1, true)
	pulled, _ := r.get()
	for range 3 {
		check("True", 1, true)
	}
	eventually(t, "the job of the pull is gone", func() bool { // after the status has its end
		queue, err := r.client.Resource(api.Jobs).Namespace(r.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(queue.Items) == 0
	})
	now, _ := r.get()
	if now.Status.Sync.Finished != pulled.Status.Sync.Finished {
		t.Errorf("pulled again: %+v", now.Status.Sync)
	}
	if m := condition(now, api.ConditionDrifted).Message; !strings.Contains(m, "could not correct") || !strings.Contains(m, "Folder gone") {
		t.Error(m)
	}
	for version, want := range map[string]string{"1": "failed", "2": "undone"} {
		_, u := r.get()
		item := drift.Item{State: drift.Modified, Path: "a.json", Version: version}
		last := &state.Drift{Ref: "x", Count: 1, Correction: "queued", Items: []state.DriftItem{{State: drift.Modified, Path: "a.json", Version: "1"}}}
		err := drifts.record(t.Context(), k, u, &drift.Report{Commit: "x", Checked: drifts.now(), Items: []drift.Item{item}}, last, true, true)
		stored, serr := r.store.Drift(t.Context(), k.Namespace, k.Name, string(u.GetUID()))
		if err != nil || serr != nil || stored.Correction != want {
			t.Errorf("version %s: %+v, %v", version, stored, errors.Join(err, serr))
		}
	}
	_, u := r.get()
	err = drifts.record(t.Context(), k, u, &drift.Report{Commit: "x", Checked: drifts.now(), NotCompared: 2}, new(state.Drift), true, true)
	if now, _ = r.get(); err != nil || !strings.Contains(condition(now, api.ConditionDrifted).Message, "2 objects not compared") {
		t.Errorf("%+v, %v", condition(now, api.ConditionDrifted), err)
	}
	r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"off"}}}`, api.AnnoDrift))
	check("", 0, false)
}

func TestDriftDue(t *testing.T) {
	t.Parallel()
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "u"}}}
	now := time.Unix(1_800_000_000, 0)
	usual, most := 45*time.Minute, 105*time.Minute
	for name, c := range map[string]struct {
		last              state.Drift
		start, finished   time.Duration // ago
		incremental       bool
		earliest, longest time.Duration // from now
	}{
		"never":           {start: 0, earliest: time.Hour, longest: 2 * time.Hour},
		"never, long ago": {start: 5 * time.Hour, earliest: -4 * time.Hour, longest: -3 * time.Hour},
		"just now":        {last: state.Drift{At: now}, start: 5 * time.Hour, earliest: usual, longest: most},
		"after a restart": {last: state.Drift{At: now.Add(-9 * time.Hour)}, earliest: 0, longest: time.Hour},
		"a wrong clock":   {last: state.Drift{At: now.Add(9 * time.Hour)}},
		"a full pull": {last: state.Drift{At: now.Add(-time.Minute), Count: 1}, finished: time.Second,
			earliest: -time.Minute, longest: -time.Minute},
		"an incremental pull":  {last: state.Drift{At: now, Count: 1}, incremental: true, finished: -1, earliest: usual, longest: most},
		"a full pull, in sync": {last: state.Drift{At: now}, finished: -1, earliest: usual, longest: most},
	} {
		var view api.Repository
		view.Status.Sync.Finished, view.Status.Sync.Incremental = now.Add(-c.finished).UnixMilli(), c.incremental
		due := driftDue(obj, view, &c.last, now.Add(-c.start), now).Sub(now)
		if due < c.earliest || due > c.longest {
			t.Errorf("%s: in %s, want %s to %s", name, due, c.earliest, c.longest)
		}
	}
}
