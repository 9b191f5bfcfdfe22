package repos

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/testenv/suite"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
)

// crowdRig is a controller with many Repositories on the embedded API, in virtual
// time. Their remotes are not asked for real: what is tested is when they are.
type crowdRig struct {
	Prober // of which nothing else is asked
	t      testing.TB
	client *kube.Client
	wire   *recording
	urls   []string   // of the Repositories; nil = a host for each
	mu     sync.Mutex // guards looks
	looks  []time.Time
}

const headOfAll = "0123456789012345678901234567890123456789"

// Resolve implements Prober.
func (c *crowdRig) Resolve(context.Context, git.Remote, gitref.Selector) (git.Ref, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, time.Now())
	return git.Ref{Name: "refs/heads/main", Hash: headOfAll}, nil
}

// CheckFallbacks implements Prober. These Repositories have no mirrors.
func (c *crowdRig) CheckFallbacks(context.Context, git.Remote, gitref.Selector) []git.FallbackResult {
	return nil
}

// Pushable implements Prober. Nobody writes to these Repositories.
func (c *crowdRig) Pushable(context.Context, git.Remote) error {
	c.t.Error("asked for a push")
	return nil
}

// take returns the requests since the last call.
func (c *crowdRig) take() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.looks
	c.looks = nil
	return out
}

// fill makes n Repositories that have been pulled a moment ago.
func (c *crowdRig) fill(n int) {
	c.t.Helper()
	var g errgroup.Group
	g.SetLimit(100) // commits of the state file are shared
	for i := range n {
		g.Go(func() error { return c.make(i) })
	}
	if err := g.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// make makes one Repository.
func (c *crowdRig) make(i int) error {
	url := fmt.Sprintf("https://git-%d.example.com/r.git", i)
	if c.urls != nil {
		url = c.urls[i]
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "r", "type": "git",
		"git":  map[string]any{"url": url, "branch": "main"},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName(fmt.Sprintf("r%04d", i))
	res := c.client.Resource(api.Repositories).Namespace("default")
	made, err := res.Create(c.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	made.Object["status"] = map[string]any{"observedGeneration": int64(1), "health": map[string]any{"healthy": true, "checked": now,
		"message": []any{}},
		"conditions": []any{(&facts{}).namespaceQuota().Map(time.Now(), 1, nil)},
		"sync": map[string]any{"state": "success", "job": u.GetName() + "-sync", "started": now, "finished": now, "message": []any{},
			"lastRef": headOfAll}}
	_, err = res.UpdateStatus(c.t.Context(), made, metav1.UpdateOptions{})
	return err
}

// run runs a controller for a time.
func (c *crowdRig) run(d time.Duration) {
	c.t.Helper()
	objects, queue := informers(c.client)
	k := New(c.client, objects, queue, Options{Git: c, Logger: slog.New(slog.DiscardHandler), Remotes: plainRemotes})
	stop := running(c.t, objects.Run, queue.Run, k.Run)
	time.Sleep(d) // of the bubble
	stop()
}

// busiest is the largest number of requests in any second.
func busiest(looks []time.Time) (most int) {
	from := 0
	for i, at := range looks {
		for at.Sub(looks[from]) >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// TestBursts: a thousand Repositories of one minute are spread over it: in no second are
// there more than three times as many as in the mean, neither after they were all pulled at
// once nor after a restart; and nothing is written.
func TestBursts(t *testing.T) {
	suite.Full(t) // 4,000 reconciles
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowdRig{t: t}
		c.client, c.wire, _ = embedded(t)
		const crowd = 1000
		c.fill(crowd)
		c.wire.take()
		check := func(what string, least, most int) {
			t.Helper()
			looks := c.take()
			if n := busiest(looks); n > 3*crowd/60 {
				t.Errorf("%s: %d looks in one second, the mean is %d", what, n, crowd/60)
			}
			if n := len(looks); n < least || n > most {
				t.Errorf("%s: %d looks, want %d to %d", what, n, least, most)
			}
			t.Logf("%s: %d looks, at most %d in one second", what, len(looks), busiest(looks))
		}
		// All of it is less than the five minutes after which health is noted.
		c.run(150 * time.Second)
		check("after they were made at once", crowd, 2*crowd)
		time.Sleep(70 * time.Second)
		c.run(70 * time.Second)
		check("after a time off", crowd, 2*crowd)
		if writes := c.wire.take(); len(writes) > 0 {
			t.Errorf("%d writes, such as %s", len(writes), writes[0])
		}
	})
}

// TestCostOfAReconcile: a reconcile of a Repository that has nothing new reads nothing again
// and writes nothing. What the remote's answer costs is not in it.
func TestCostOfAReconcile(t *testing.T) {
	const (
		warm  = 2        // one that asks nobody, and one in its turn
		looks = 3        // in turn, within the five minutes after which health is noted
		most  = 16 << 10 // bytes for each
	)
	synctest.Test(t, func(t *testing.T) {
		c := &crowdRig{t: t}
		c.client, c.wire, _ = embedded(t)
		c.fill(1)
		c.wire.take()
		objects, queue := informers(c.client)
		k := New(c.client, objects, queue, Options{Git: c, Logger: slog.New(slog.DiscardHandler), Remotes: plainRemotes})
		stop := running(t, objects.Run, queue.Run)
		ctx := t.Context()
		if err := objects.WaitSynced(ctx); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		next := time.Now()
		for i := range warm + looks {
			time.Sleep(time.Until(next))
			synctest.Wait()
			if i == warm {
				c.take()
				runtime.ReadMemStats(&before)
			}
			result, err := k.reconcile(ctx, reconcile.Key{Namespace: "default", Name: "r0000"})
			if err != nil {
				t.Fatal(err)
			}
			next = result.Next
		}
		runtime.ReadMemStats(&after)
		if n := len(c.take()); n != looks {
			t.Errorf("%d looks, want %d", n, looks)
		}
		if writes := c.wire.take(); len(writes) > 0 {
			t.Errorf("%d writes, such as %s", len(writes), writes[0])
		}
		each := (after.TotalAlloc - before.TotalAlloc) / looks
		t.Logf("%d bytes, %d objects a look", each, (after.Mallocs-before.Mallocs)/looks)
		if each > most {
			t.Errorf("%d bytes a look, want %d", each, most)
		}
		stop()
	})
}

// TestInvalidSpecAtTheStart: a spec that could not work is checked at once, because a flag may have
// been corrected; a host that was away is asked in its turn.
func TestInvalidSpecAtTheStart(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]int{"InvalidSpec": 1, "ServiceUnavailable": 0} {
		synctest.Test(t, func(t *testing.T) {
			c := &crowdRig{t: t}
			c.client, c.wire, _ = embedded(t)
			c.fill(1)
			res := c.client.Resource(api.Repositories).Namespace("default")
			u, err := res.Get(t.Context(), "r0000", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			status := u.Object["status"].(map[string]any)
			status["health"] = map[string]any{"healthy": false, "error": "health", "checked": time.Now().UnixMilli(), "message": []any{"x"}}
			status["conditions"] = []any{map[string]any{"type": "Ready", "status": "False", "reason": reason, "message": "x",
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}
			if _, err := res.UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.run(2 * time.Second)
			if got := len(c.take()); got != want {
				t.Errorf("%s: asked %d times, want %d", reason, got, want)
			}
		})
	}
}
