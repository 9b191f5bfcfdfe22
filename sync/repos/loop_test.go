package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/testenv"
	"limpet/sync/worker/sink"
)

// TestConflictsThatDoNotEnd: a server that refuses a patch again and again is asked
// quickly at first, as another controller may have been faster, and then seldom, and it is
// logged.
func TestConflictsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		looks := 0
		l := newLoop("repository", func(context.Context, Key) (Result, error) {
			looks++
			return Result{}, fmt.Errorf("%w: no", errConflict)
		}, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		if err := l.Work(ctx, func() []Key { return []Key{{"ns", "site"}} }); err != nil {
			t.Fatal(err)
		}
		// After 1, 2, 4, 8, 16 and 32 seconds, and then each minute.
		if told := strings.Count(log.String(), "cannot reconcile"); looks != 16 || told != looks-quietConflicts {
			t.Errorf("%d looks in ten minutes, told %d times", looks, told)
		}
	})
}

// TestFailsBesides: what fails beside the work of an object does not put off its next time.
func TestFailsBesides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		l := newLoop("source", func(context.Context, Key) (Result, error) {
			looks++
			return Result{Next: time.Now().Add(30 * time.Second)}, errors.New("no")
		}, time.Hour, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		if err := l.Work(ctx, func() []Key { return []Key{{"ns", "site"}} }); err != nil || looks < 20 {
			t.Errorf("%d looks, %v", looks, err)
		}
	})
}

// TestProgramPause: a program that failed has a backoff of its own, and does not put off the next time of its object.
func TestProgramPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ next, wait, want time.Duration }{
		"the pause of the program": {0, 90 * time.Second, 90 * time.Second},
		"the interval":             {30 * time.Second, 90 * time.Second, 30 * time.Second},
		"none":                     {0, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := newLoop("sink", func(context.Context, Key) (Result, error) {
					var r Result
					if c.next > 0 {
						r.Next = began.Add(c.next)
					}
					return r, fmt.Errorf("x: %w", &sink.ExecError{Err: errors.New("no"), RetryAfter: c.wait})
				}, time.Hour, slog.New(slog.DiscardHandler))
				l.runOnce(t.Context(), Key{"ns", "site"})
				if got := l.Next("ns", "site").Sub(began); got != c.want {
					t.Errorf("next after %v, want %v", got, c.want)
				}
			})
		})
	}
}

// only shows one object.
type only struct {
	nothing
	obj *unstructured.Unstructured
}

func (o only) Get(string, string) (*unstructured.Unstructured, bool) { return o.obj, true }

// TestInvalidObject: what cannot be decoded is reported, and not retried.
func TestInvalidObject(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	told := 0
	obj := &unstructured.Unstructured{Object: map[string]any{"kind": "Repository",
		"metadata": map[string]any{"namespace": "ns", "name": "site", "uid": "1"},
		"spec":     map[string]any{"type": int64(7)}}}
	c := newController(server{}, nil, only{obj: obj}, nothing{}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Observe: func(e Event) {
			if e.Level == "warn" && strings.Contains(e.Text, "ns/site") {
				told++
			}
		}})
	c.runOnce(t.Context(), Key{"ns", "site"})
	if told != 1 || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("told %d times; log %s", told, log.String())
	}
	if next := c.Next("ns", "site"); !next.IsZero() {
		t.Errorf("it is looked into again at %s", next)
	}
}

// uses notes what a controller declares.
type uses struct {
	mu   sync.Mutex // guards told
	told map[Key]*unstructured.Unstructured
}

func (u *uses) use(_ string, k Key, obj *unstructured.Unstructured) {
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

// TestRecheck: credentials that change have effect at once, for better and for
// worse, and when nothing follows from it nothing is written. What a Repository
// uses is declared before it is read, and that it is gone.
func TestRecheck(t *testing.T) {
	t.Parallel()
	told := &uses{told: map[Key]*unstructured.Unstructured{}}
	var early atomic.Int64
	var fails atomic.Bool
	r := newRig(t, "real", func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
		o.Uses = told.use
		remotes := o.Remotes
		o.Remotes = Remotes(func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
			if !told.has(Key{namespace, name}) {
				early.Add(1)
			}
			if fails.CompareAndSwap(true, false) {
				return git.Remote{}, errors.New("the API is away")
			}
			return remotes(ctx, namespace, name, repo)
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
		r.controller.Recheck(r.namespace, "site")
	}
	renew(right)
	r.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	r.wrote(1)
	r.creds.Store(wrong)
	renew(wrong)
	r.until("it is refused again", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
	r.wrote(1)
	fails.Store(true) // the first look comes to nothing
	renew(right)
	r.until("it is healthy again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
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
	eventually(t, "it is reported to be gone", func() bool { return !told.has(Key{r.namespace, "site"}) })
}

// TestRecheckDuringAReconcile: credentials that change while a reconcile is under way with
// those of before lead to another reconcile.
func TestRecheckDuringAReconcile(t *testing.T) {
	t.Parallel()
	reading, on := make(chan struct{}, 8), make(chan struct{})
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
		remotes := o.Remotes
		o.Remotes = Remotes(func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
			found, err := remotes(ctx, namespace, name, repo)
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
	r.controller.Recheck(r.namespace, "site")
	close(on)
	r.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
}

// growing shows one object more each time it has been asked for all of them, and wakes the controller for it.
type growing struct {
	nothing
	wake  func(namespace, name string)
	shown []kube.Object
}

func (g *growing) Objects() []kube.Object {
	before := g.shown
	g.shown = append(slices.Clone(before), kube.ObjectOf(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": fmt.Sprint("site-", len(before))}}}))
	g.wake("ns", fmt.Sprint("site-", len(before)))
	return before
}

// TestObjectsCreatedAtTheStart: an object that comes while a run finds out what there is is reconciled.
func TestObjectsCreatedAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen sync.Map
		objects := &growing{}
		c := newController(server{}, time.Now, objects, nothing{}, Options{Logger: slog.New(slog.DiscardHandler)})
		objects.wake = c.Wake
		c.Loop.reconcile = func(_ context.Context, k Key) (Result, error) {
			seen.Store(k.Name, true)
			return Result{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects.shown {
			if _, ok := seen.Load(o.Name()); !ok {
				t.Errorf("%s was not reconciled", o.Name())
			}
		}
	})
}
