package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
)

const (
	sourceReady = `"spec":{"url":"https://me:secret@git.example.com/a","suspend":false},"status":{
		"conditions":[{"type":"Reconciling","status":"True"},{"type":"Ready","status":"True","reason":"Succeeded"}],
		"artifact":{"revision":"main@sha1:5d41","size":512,"lastUpdateTime":"2026-11-29T00:00:00Z"}}`
	sourceFailed = `"spec":{"url":"ssh://git@git.example.com/b"},"status":{
		"conditions":[{"type":"Ready","status":"False","reason":"GitOperationFailed"}]}`
)

// lines returns the series of a metric without their name, sorted.
func lines(t *testing.T, m *Metrics, name string) (out []string) {
	t.Helper()
	for line := range strings.Lines(ask(t, m, "").Body.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok && strings.HasPrefix(rest, "{") {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out
}

// TestResourceInfo: each object has the labels that kube-state-metrics gives it, which leaves out
// what an object does not have; no password is among them, and nothing is left of a deleted object.
func TestResourceInfo(t *testing.T) {
	t.Parallel()
	sources := []kube.Object{objectOf(t, "a", "well", sourceReady), objectOf(t, "a", "ill", sourceFailed), objectOf(t, "b", "new", `"spec":{}`)}
	m := New("test", 1, slog.New(slog.DiscardHandler))
	m.Read(Source{Objects: map[string]func() []kube.Object{
		"GitRepository": func() []kube.Object { return sources },
		"Job": func() []kube.Object {
			return []kube.Object{objectOf(t, "a", "j", `"spec":{"action":"pull","repository":"r"},"status":{"state":"working"}`)}
		},
	}})
	const flux = `{customresource_group="source.toolkit.fluxcd.io",customresource_kind="GitRepository",customresource_version="v1",`
	want := []string{
		`{action="pull",customresource_group="provisioning.grafana.app",customresource_kind="Job",customresource_version="v0alpha1",` +
			`exported_namespace="a",name="j",repository="r",state="working"} 1`,
		flux + `exported_namespace="a",name="ill",ready="False",url="ssh://git@git.example.com/b"} 1`,
		flux + `exported_namespace="a",name="well",ready="True",revision="main@sha1:5d41",suspended="false",url="https://git.example.com/a"} 1`,
		flux + `exported_namespace="b",name="new"} 1`,
	}
	if got := lines(t, m, InfoName); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := lines(t, m, "limpet_resource_info"); len(got) != 2 || !strings.Contains(got[0], `reason="GitOperationFailed"`) {
		t.Errorf("reasons: %q", got)
	}

	for i := range maxSeries {
		sources = append(sources, objectOf(t, "c", fmt.Sprint(i), sourceReady))
	}
	got := slices.DeleteFunc(lines(t, m, InfoName), func(s string) bool { return !strings.HasPrefix(s, flux) })
	if len(got) != 1 || !strings.Contains(got[0], `name="ill",ready="False"`) {
		t.Errorf("of too many sources: %q", got)
	}
	for status, n := range map[string]float64{"True": maxSeries + 1, "False": 1, "None": 1} {
		if got := value(scrape(t, m), "limpet_resources", "customresource_kind=GitRepository", "ready="+status); got != n {
			t.Errorf("%v sources with ready %s, want %v", got, status, n)
		}
	}
	if n := value(scrape(t, m), "limpet_resources_unlisted", "customresource_kind=GitRepository"); n != maxSeries+2 {
		t.Errorf("%v unlisted", n)
	}
	sources = nil
	if got := lines(t, m, InfoName); len(got) != 1 {
		t.Errorf("of deleted sources: %q", got)
	}
}

// TestReconciles: reconciles are counted as controller-runtime and Flux do, with series that end
// with their source and are bounded.
func TestReconciles(t *testing.T) {
	t.Parallel()
	sources := []kube.Object{objectOf(t, "a", "well", sourceReady), objectOf(t, "a", "ill", sourceFailed)}
	m := New("test", 1, slog.New(slog.DiscardHandler))
	m.Read(Source{Objects: map[string]func() []kube.Object{"GitRepository": func() []kube.Object { return sources }}})
	done := func(name string, next bool, unready bool, err error) {
		d := reconcile.Done{Kind: "GitRepository", Key: reconcile.Key{Namespace: "a", Name: name}, Took: time.Second, Err: err}
		d.Result.Unready = unready
		if next {
			d.Result.Next = time.Now().Add(time.Minute)
		}
		m.Reconciled(d)
	}
	began := time.Now()
	done("well", true, false, nil)
	done("well", false, false, errors.New("away"))
	done("ill", true, true, nil)
	done("ill", false, false, reconcile.ErrBusy)
	families := scrape(t, m)
	for result, n := range map[string]float64{"requeue_after": 2, "error": 1, "requeue": 1, "success": 0} {
		if got := value(families, "controller_runtime_reconcile_total", "controller=gitrepository", "result="+result); got != n {
			t.Errorf("%v reconciles with %s, want %v", got, result, n)
		}
	}
	if b := bounds(families["gotk_reconcile_duration_seconds"]); len(b) != 10 || b[0] != 0.01 || b[9] < 1799 || b[9] > 1801 {
		t.Errorf("buckets %v", b)
	}
	const success = "limpet_source_last_success_timestamp_seconds"
	if at := value(families, success, "kind=GitRepository", "namespace=a", "name=well"); at < float64(began.Unix()) {
		t.Errorf("succeeded at %v", at)
	}
	if at := value(families, success, "kind=GitRepository", "namespace=a", "name=ill"); at != -1 {
		t.Errorf("one that was never ready succeeded at %v", at)
	}
	sources = sources[:1]
	scrape(t, m) // it may be collected before the list of sources is
	if got := lines(t, m, "gotk_reconcile_duration_seconds_count"); len(got) != 1 {
		t.Errorf("of a deleted source: %q", got)
	}
	for i := range maxSeries + 10 {
		done(fmt.Sprint(i), true, false, nil)
	}
	if n := len(m.reconciles.sources); n != maxSeries {
		t.Errorf("%d sources have series", n)
	}
}

// TestLastSuccess: when a pull has succeeded last is known after it failed, and after a restart.
func TestLastSuccess(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1700000000000)
	status := `"status":{"sync":{"state":"error","finished":1800000000000}}`
	m := New("test", 1, slog.New(slog.DiscardHandler))
	m.Read(Source{
		Objects:   map[string]func() []kube.Object{"Repository": func() []kube.Object { return []kube.Object{objectOf(t, "a", "r", status)} }},
		Suspended: func(kube.Object) bool { return false },
		History: func(context.Context, state.Query) ([]state.Record, error) {
			return []state.Record{{Namespace: "a", Repository: "r", Finished: at}, {Namespace: "a", Repository: "r", Finished: at.Add(-time.Hour)}}, nil
		},
	})
	for _, step := range []struct {
		status string
		want   int64
	}{
		{status, at.Unix()},
		{`"status":{"sync":{"state":"success","finished":1900000000000}}`, 1900000000},
		{`"status":{"sync":{"state":"error","finished":1950000000000}}`, 1900000000},
		{`"metadata":{"creationTimestamp":"2033-01-01T00:00:00Z"}`, -1}, // another one of that name
	} {
		status = step.status
		if got := value(scrape(t, m), "limpet_repository_last_success_timestamp_seconds", "namespace=a", "name=r"); got != float64(step.want) {
			t.Errorf("%s: %v, want %v", step.status, got, step.want)
		}
	}
}

var update = flag.Bool("update", false, "write the golden file anew")

// TestNames holds the names, types and labels of all metrics against a list, which the tests of the
// boards and rules read too.
func TestNames(t *testing.T) {
	t.Parallel()
	const golden = "../../testdata/golden/metrics.txt"
	w := &world{}
	m := New("1.2.3", 1, slog.New(slog.DiscardHandler))
	from := w.source()
	list := func(objects ...kube.Object) func() []kube.Object { return func() []kube.Object { return objects } }
	const wellRepository = `"spec":{"type":"git","sync":{"enabled":true,"intervalSeconds":60,"target":"folder"}},"status":{
		"health":{"checked":1,"healthy":true},"conditions":[{"type":"Ready","status":"True","reason":"Available"}],
		"sync":{"state":"success","finished":1700000000000,"lastRef":"5d41"}}`
	from.Objects = map[string]func() []kube.Object{
		"GitRepository": list(objectOf(t, "a", "s", sourceReady)), "Repository": list(objectOf(t, "a", "r", wellRepository)),
		"Connection":     list(objectOf(t, "a", "c", wellRepository)),
		"Bucket":         list(objectOf(t, "a", "b", `"spec":{"endpoint":"s3.example.com","bucketName":"site"}`)),
		"HelmChart":      list(objectOf(t, "a", "h", `"spec":{"chart":"podinfo","version":"6.x"}`)),
		"HelmRepository": list(objectOf(t, "a", "h", `"spec":{"url":"https://charts.example.com"}`)),
		"Job":            list(objectOf(t, "a", "j", `"spec":{"action":"pull","repository":"r"},"status":{"state":"working"}`)),
	}
	from.Ready = func() bool { return true }
	from.Requests = func() map[kube.RequestKind]int64 { return map[kube.RequestKind]int64{{Code: "200"}: 1} }
	from.Suspended = func(kube.Object) bool { return false }
	from.Tokens = func() map[string]auth.TokenCounts { return map[string]auth.TokenCounts{"connection": {}} }
	from.Drifted = func(kube.Object) (int, bool) { return 1, true }
	from.Notifications = func() []notify.Status { return []notify.Status{{Target: "t"}} }
	from.Active = func() map[string]bool { return map[string]bool{"sources": true} }
	from.Received = func() int64 { return 1 }
	from.Fetched = func() map[string]int64 { return map[string]int64{"GitRepository": 1} }
	from.Mirrors = func(context.Context) (int, int64, error) { return 1, 1, nil }
	from.Disk = func() (int64, int64) { return 1, 1 }
	w.store.Oldest = time.Now()
	m.Read(from)
	everything(m, w)
	w.live[0].LeaseUntil = time.Now()
	m.Reconciled(reconcile.Done{Kind: "GitRepository", Key: reconcile.Key{Namespace: "a", Name: "s"}})
	m.Reconciled(reconcile.Done{Kind: "HelmRepository", Key: reconcile.Key{Namespace: "a", Name: "h"}, Result: reconcile.Result{Cache: "cache_hit"}})
	m.Controller().Failed("fetch", true)
	m.Observe(jobs.Event{Type: jobs.EventDead, State: "timeout"})

	families := scrape(t, m)
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // the library's own, which differ by system
		}
		fmt.Fprintln(&got, strings.Join(append([]string{name, strings.ToLower(families[name].GetType().String())}, labelNames(families[name])...), " "))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("differs from %s; look at the change and run go test ./sync/metrics -run Names -update:\n%s", golden, got.String())
	}
}

// labelNames returns the labels of all series, sorted.
func labelNames(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
