package repos

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/testenv"
)

func TestWishes(t *testing.T) {
	t.Parallel()
	ill, well := api.HealthState{}, api.HealthState{Healthy: true}
	for _, c := range []struct {
		wish      recheck
		ill, well bool
	}{{0, false, false}, {recheckUnhealthy, true, false}, {recheckAlways, true, true}} {
		if c.wish.due(ill) != c.ill || c.wish.due(well) != c.well {
			t.Errorf("wish %d: due %t when ill, %t when well", c.wish, c.wish.due(ill), c.wish.due(well))
		}
	}
	l := newLoop("", nil, 0, nil)
	a, b := Key{"ns", "a"}, Key{"ns", "b"}
	l.wantRecheck(a, recheckAlways)
	l.wantRecheck(a, recheckUnhealthy) // the larger one stays
	l.wantRecheck(b, 0)
	if l.takeRecheck(a) != recheckAlways || l.takeRecheck(a) != 0 || len(l.rechecks) != 0 {
		t.Errorf("wishes %v", l.rechecks)
	}
}

// uses notes what a controller tells of the things that are used, and by whom.
type uses struct {
	mu   sync.Mutex // guards told
	told map[Key]*unstructured.Unstructured
}

func (u *uses) Use(_ string, k Key, obj *unstructured.Unstructured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told[k] = obj; obj == nil {
		delete(u.told, k)
	}
}

func (u *uses) has(k Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told[k] != nil
}

// TestRenewed: credentials that change have effect at once, for better and for
// worse, and when nothing follows from it nothing is written. What a Repository
// uses is told before it is read, and that it is gone.
func TestRenewed(t *testing.T) {
	t.Parallel()
	told := &uses{told: map[Key]*unstructured.Unstructured{}}
	var early atomic.Int64
	var fails atomic.Bool
	r := newRig(t, "real", func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
		o.Dependencies = told
		remotes := o.Remotes
		o.Remotes = remoteFunc(func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
			if !told.has(Key{namespace, name}) {
				early.Add(1)
			}
			if fails.CompareAndSwap(true, false) {
				return git.Remote{}, errors.New("the API is away")
			}
			return remotes.Remote(ctx, namespace, name, repo)
		})
	})
	r.repo.Add(t, "a.json")
	right, wrong := &auth.Credentials{Username: "git", Password: "right"}, &auth.Credentials{Username: "git", Password: "wrong"}
	r.creds.Store(wrong)
	r.create(map[string]any{"sync": map[string]any{"enabled": false}}, nil)
	r.until("it is refused", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	r.wrote(1)

	renew := func(c *auth.Credentials) {
		r.creds.Store(c)
		r.controller.Renewed(r.namespace, "site")
	}
	renew(right)
	r.until("it is well", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	r.wrote(1)
	r.creds.Store(wrong)
	r.controller.Recheck(r.namespace, "site") // it is in order: not for it
	renew(wrong)
	r.until("it is refused again", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
	r.wrote(1)
	fails.Store(true) // the first look comes to nothing
	renew(right)
	r.until("it is well again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	r.wrote(1)
	r.git.Reset()
	r.ahead.Add(int64(2 * fresh))
	renew(right)
	eventually(t, "the remote is asked", func() bool { return r.git.Reset().InfoRefs > 0 })
	renew(wrong)
	r.until("it is refused once more", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
	r.wrote(1) // and nothing before, when nothing was new
	if n := early.Load(); n > 0 {
		t.Errorf("it read %d times before it told what it uses", n)
	}
	if err := r.client.Resource(api.Repositories).Namespace(r.namespace).Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is told to be gone", func() bool { return !told.has(Key{r.namespace, "site"}) })
}

// TestRenewedDuringALook: credentials that change while a look is under way with
// those of before lead to another look.
func TestRenewedDuringALook(t *testing.T) {
	t.Parallel()
	reading, on := make(chan struct{}, 8), make(chan struct{})
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
		remotes := o.Remotes
		o.Remotes = remoteFunc(func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
			found, err := remotes.Remote(ctx, namespace, name, repo)
			reading <- struct{}{}
			<-on
			return found, err
		})
	})
	r.repo.Add(t, "a.json")
	r.creds.Store(&auth.Credentials{Username: "git", Password: "wrong"})
	r.create(map[string]any{"sync": map[string]any{"enabled": false}}, nil)
	<-reading
	r.creds.Store(&auth.Credentials{Username: "git", Password: "right"})
	r.controller.Renewed(r.namespace, "site")
	close(on)
	r.until("it is well", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
}
