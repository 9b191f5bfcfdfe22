package source_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/sourcetest"
)

var gitRepository, _ = api.SourceKind("gitrepository")

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// real is a client of the API machinery.
func real(t *testing.T, s *testenv.Server) *kube.Client {
	return sourcetest.Connect(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token})
}

// onEach runs a test on both APIs.
func onEach(t *testing.T, test func(t *testing.T, c *kube.Client, namespace string)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, sourcetest.Connect(t, sourcetest.Embedded(t)), "flux-system")
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, real(t, testenv.Real(t)), "flux-"+strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	})
}

// TestAsk: what is asked for is written beside what the controller writes, and to the
// source that was meant alone.
func TestAsk(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *kube.Client, namespace string) {
		resource := c.Resource(api.GitRepositories).Namespace(namespace)
		u := named(t, "whole").Put(t, resource, namespace)
		uid := string(u.GetUID())
		before := source.FromObject(u)
		asked, err := source.Reconcile(t.Context(), c, gitRepository, namespace, "whole", uid)
		if err != nil {
			t.Fatal(err)
		}
		now := source.FromObject(asked)
		if !now.Waiting || time.Since(now.Asked).Abs() > time.Hour || source.Handled(asked, source.Asked(asked)) {
			t.Errorf("asked: %+v", now)
		}
		now.Waiting, now.Asked = false, time.Time{}
		if got, want := now.Artifact, before.Artifact; *got != *want || now.State != before.State ||
			len(now.Conditions) != len(before.Conditions) || now.Ref != before.Ref || asked.GetGeneration() != u.GetGeneration() {
			t.Errorf("the request has changed something else:\n%+v\nbefore\n%+v", now, before)
		}
		// The controller writes in between: nobody loses.
		if _, err := resource.UpdateStatus(t.Context(), asked, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		again, err := source.Reconcile(t.Context(), c, gitRepository, namespace, "whole", uid)
		if err != nil || source.Asked(again) == source.Asked(asked) {
			t.Errorf("asked again: %v, %s", err, source.Asked(again))
		}
		suspended, err := source.Suspend(t.Context(), c, gitRepository, namespace, "whole", uid, true)
		if err != nil || !source.FromObject(suspended).Suspended || suspended.GetGeneration() != u.GetGeneration()+1 {
			t.Errorf("suspended: %v, %+v", err, suspended)
		}
		resumed, err := source.Suspend(t.Context(), c, gitRepository, namespace, "whole", uid, false)
		if _, there, _ := unstructured.NestedFieldNoCopy(resumed.Object, "spec", "suspend"); err != nil || there ||
			source.FromObject(resumed).Suspended {
			t.Errorf("resumed: %v, %v", err, resumed.Object["spec"])
		}
		if again, err := source.Suspend(t.Context(), c, gitRepository, namespace, "whole", "", false); err != nil ||
			again.GetGeneration() != resumed.GetGeneration() {
			t.Errorf("resumed twice: %v", err)
		}
		for _, err := range []error{
			func() error {
				_, err := source.Reconcile(t.Context(), c, gitRepository, namespace, "whole", "0d9c2f4e-1111-4222-8333-000000000000")
				return err
			}(),
			func() error {
				_, err := source.Suspend(t.Context(), c, gitRepository, namespace, "whole", "0d9c2f4e-1111-4222-8333-000000000000", true)
				return err
			}(),
		} {
			if !errors.Is(err, source.ErrReplaced) {
				t.Errorf("a namesake: %v", err)
			}
		}
		if _, err := source.Reconcile(t.Context(), c, gitRepository, namespace, "nobody", ""); !apierrors.IsNotFound(err) {
			t.Errorf("nobody: %v", err)
		}
	})
}

// watching runs a watcher, and says when it has changed.
func watching(t *testing.T, c *kube.Client, namespace string, glance time.Duration) (*source.Watcher, <-chan struct{}) {
	t.Helper()
	changed := make(chan struct{}, 1)
	w := source.NewWatcher(c, gitRepository, namespace, slog.New(slog.DiscardHandler), func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	w.Glances(glance)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("the watcher ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return w, changed
}

// until waits for changes of a watcher until a condition holds.
func until(t *testing.T, what string, changed <-chan struct{}, holds func() bool) {
	t.Helper()
	late := time.NewTimer(60 * time.Second)
	defer late.Stop()
	for !holds() {
		select {
		case <-changed:
		case <-late.C:
			t.Fatalf("not seen: %s", what)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *kube.Client, namespace string) {
		resource := c.Resource(api.GitRepositories).Namespace(namespace)
		all := testenv.Sources()
		for _, s := range all[1:] {
			s.Put(t, resource, namespace)
		}
		w, changed := watching(t, c, namespace, time.Minute)
		until(t, "all sources", changed, func() bool { rows, known := w.Objects(); return known && len(rows) == len(all)-1 })
		rows, _ := w.Objects()
		states := map[string]string{}
		for _, seen := range rows {
			from := source.FromObject(seen.Unstructured())
			states[from.Name] = from.State
		}
		for _, s := range all[1:] {
			if states[s.Name] != s.Want {
				t.Errorf("%s is %s, want %s", s.Name, states[s.Name], s.Want)
			}
		}
		all[0].Put(t, resource, namespace)
		until(t, "a new one", changed, func() bool { rows, _ := w.Objects(); return len(rows) == len(all) })
		if err := resource.Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "one less", changed, func() bool { rows, _ := w.Objects(); return len(rows) == len(all)-1 })
		if synced, n, trouble, on := w.Watch(); !synced || n != len(all)-1 || trouble != "" || !on || w.Refused() != "" {
			t.Errorf("the watch: %v %d %q %v", synced, n, trouble, on)
		}
	})
}

// TestWatchWithoutFlux: an API that has no sources, or shows none, is asked once.
func TestWatchWithoutFlux(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o       testenv.Options
		refused string
		most    int // requests
	}{
		"no definitions": {testenv.Options{NoFlux: true}, "", 1},
		"no list": {testenv.Options{Deny: []string{"list gitrepositories *"}},
			"it takes get, list and watch of gitrepositories.source.toolkit.fluxcd.io", 2},
		"no watch": {testenv.Options{Deny: []string{"watch gitrepositories *"}}, "it takes get, list and watch", 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Start(t, c.o)
			client := real(t, server)
			server.Settle(t)
			since := server.Mark(t)
			w, changed := watching(t, client, "", 20*time.Millisecond)
			until(t, "that there is nothing", changed, func() bool {
				_, known := w.Objects()
				_, _, _, on := w.Watch()
				return known && on == (c.refused != "")
			})
			if c.refused != "" {
				until(t, "why", changed, func() bool { return strings.Contains(w.Refused(), c.refused) })
			}
			if rows, _ := w.Objects(); len(rows) > 0 {
				t.Errorf("%d sources", len(rows))
			}
			server.Settle(t)
			var asked []string
			for _, r := range server.Requests(t, since) {
				if strings.Contains(r.Path, "source.toolkit.fluxcd.io") {
					asked = append(asked, r.String())
				}
			}
			if len(asked) > c.most || len(asked) == 0 {
				t.Errorf("%d requests: %q", len(asked), asked)
			}
			if _, _, trouble, on := w.Watch(); on != (c.refused != "") || trouble != w.Refused() {
				t.Errorf("the watch says %q, %v", trouble, on)
			}
		})
	}
}

// TestRefusedWrites: what may not be written says so.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Deny: []string{"patch gitrepositories *"}})
	client := real(t, server)
	named(t, "ready").Put(t, client.Resource(api.GitRepositories).Namespace("default"), "default")
	if _, err := source.Reconcile(t.Context(), client, gitRepository, "default", "ready", ""); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
	if u, err := client.Resource(api.GitRepositories).Namespace("default").Get(t.Context(), "ready", metav1.GetOptions{}); err != nil ||
		source.FromObject(u).State != source.Ready {
		t.Errorf("%v", err)
	}
}
