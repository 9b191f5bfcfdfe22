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
	"limpet/sync/reconcile"
	"limpet/sync/testenv"
)

// only shows one object.
type only struct {
	nothing
	obj *unstructured.Unstructured
}

func (o only) Get(string, string) (*unstructured.Unstructured, bool) { return o.obj, true }

// TestInvalidObject: what cannot be decoded is reported, and not retried.
func TestInvalidObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		warned := 0
		obj := &unstructured.Unstructured{Object: map[string]any{"kind": "Repository",
			"metadata": map[string]any{"namespace": "ns", "name": "site", "uid": "1"},
			"spec":     map[string]any{"type": int64(7)}}}
		c := newController(server{}, nil, only{obj: obj}, nothing{}, Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observe: func(e reconcile.Event) {
				if e.Level == "warn" && strings.Contains(e.Text, "ns/site") {
					warned++
				}
			}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := c.Work(ctx, func() []reconcile.Key { return []reconcile.Key{{Namespace: "ns", Name: "site"}} })
		if err != nil || warned != 1 || strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%v, %d events; log %s", err, warned, log.String())
		}
		if next := c.Next("ns", "site"); !next.IsZero() {
			t.Errorf("the next time is %s", next)
		}
	})
}

// uses notes what a controller declares.
type uses struct {
	mu   sync.Mutex // guards told
	told map[reconcile.Key]*unstructured.Unstructured
}

func (u *uses) use(_ string, k reconcile.Key, obj *unstructured.Unstructured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told[k] = obj; obj == nil {
		delete(u.told, k)
	}
}

func (u *uses) has(k reconcile.Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told[k] != nil
}

// TestRecheck: credentials that change have effect at once, for better and for
// worse, and when nothing follows from it nothing is written. What a Repository
// uses is declared before it is read, and that it is gone.
func TestRecheck(t *testing.T) {
	t.Parallel()
	told := &uses{told: map[reconcile.Key]*unstructured.Unstructured{}}
	var early atomic.Int64
	var fails atomic.Bool
	r := newRig(t, "real", func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
		o.Uses = told.use
		remotes := o.Remotes
		o.Remotes = Remotes(func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
			if !told.has(reconcile.Key{Namespace: namespace, Name: name}) {
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
	eventually(t, "it is reported to be gone", func() bool { return !told.has(reconcile.Key{Namespace: r.namespace, Name: "site"}) })
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

// growing shows one object more each time it has been asked for all of them, and wakes the
// controller for it.
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

// TestObjectsCreatedAtTheStart: an object that comes while a run finds out what there is is
// reconciled.
func TestObjectsCreatedAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen sync.Map
		objects := &growing{}
		c := newController(server{}, time.Now, objects, nothing{}, Options{Logger: slog.New(slog.DiscardHandler),
			Uses: func(_ string, k reconcile.Key, _ *unstructured.Unstructured) { seen.Store(k.Name, true) }})
		objects.wake = c.Wake
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
