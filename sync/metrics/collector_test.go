package metrics

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/kube"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// objectLines returns the lines of a scrape that begin with limpet_repositor,
// limpet_connection or limpet_token.
func objectLines(m *Metrics) (out []string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSpace(line)
		for _, what := range []string{"limpet_repositor", "limpet_connection", "limpet_token"} {
			if strings.HasPrefix(line, what) && !strings.HasPrefix(line, "limpet_repository_reconciles") {
				out = append(out, line)
			}
		}
	}
	return out
}

func objectOf(t testing.TB, namespace, name, rest string) kube.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte("{"+rest+"}"), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return kube.ObjectOf(u)
}

// TestObjectMetrics: Repositories, Connections and tokens are exported as they are at the scrape,
// with labels from fixed sets.
func TestObjectMetrics(t *testing.T) {
	t.Parallel()
	m := New("test", 1, slog.New(slog.DiscardHandler))
	object := func(namespace, name, rest string) kube.Object { return objectOf(t, namespace, name, rest) }
	const well = `"health":{"checked":1,"healthy":true}`
	repositories := []kube.Object{
		object("a", "well", `"spec":{"type":"git","sync":{"enabled":true,"intervalSeconds":60,"target":"folder"}},
			"status":{`+well+`,"sync":{"finished":1700000000500,"state":"warning"}}`),
		object("a", "ill", `"spec":{"type":"github","sync":{"target":"instance"},"connection":{"name":"app"}},
			"status":{"health":{"checked":1},"sync":{"finished":1000,"state":"error"}}`),
		object("b", "new", `"spec":{"type":"made up","sync":{"target":"made up"}}`),
		object("b", "resting", `"spec":{"type":"local"},"status":{`+well+`,"sync":{"state":"working"}}`),
	}
	m.Read(Source{
		Objects: map[string]func() []kube.Object{
			"Repository": func() []kube.Object { return repositories },
			"Connection": func() []kube.Object {
				return []kube.Object{object("a", "app", `"spec":{"type":"github"},"status":{`+well+`}`), object("a", "lab", `"spec":{"type":"x"}`)}
			},
		},
		Suspended: func(o kube.Object) bool { return o.Name() == "resting" },
		Tokens: func() map[string]auth.TokenCounts {
			return map[string]auth.TokenCounts{"connection": {Held: 3, Hits: 40, Minted: 5, Failed: 2, Refused: 1, Overflow: 7, Oldest: time.Minute}}
		},
	})
	want := []string{
		`limpet_repositories{health="healthy"} 1`, `limpet_repositories{health="unhealthy"} 1`, `limpet_repositories{health="unknown"} 1`,
		`limpet_repositories{health="suspended"} 1`,
		`limpet_repository_info{connection="",name="well",namespace="a",ready="True",suspended="false",target="folder",type="git"} 1`,
		`limpet_repository_info{connection="app",name="ill",namespace="a",ready="False",suspended="false",target="instance",type="github"} 1`,
		`limpet_repository_info{connection="",name="new",namespace="b",ready="Unknown",suspended="false",target="other",type="other"} 1`,
		`limpet_repository_info{connection="",name="resting",namespace="b",ready="True",suspended="true",target="",type="local"} 1`,
		`limpet_repository_healthy{name="well",namespace="a"} 1`, `limpet_repository_healthy{name="ill",namespace="a"} 0`,
		`limpet_repository_healthy{name="resting",namespace="b"} 1`,
		`limpet_repository_last_sync_timestamp_seconds{name="well",namespace="a"} 1.7000000005e+09`,
		`limpet_repository_last_sync_timestamp_seconds{name="ill",namespace="a"} 1`,
		`limpet_repository_last_success_timestamp_seconds{name="well",namespace="a"} 1.7000000005e+09`,
		`limpet_repository_sync_interval_seconds{name="well",namespace="a"} 60`,
		`limpet_repository_last_sync_success{name="well",namespace="a"} 1`, `limpet_repository_last_sync_success{name="ill",namespace="a"} 0`,
		`limpet_connection_info{name="app",namespace="a",ready="True",type="github"} 1`,
		`limpet_connection_info{name="lab",namespace="a",ready="Unknown",type="other"} 1`,
		`limpet_connection_healthy{name="app",namespace="a"} 1`,
		`limpet_token_cached_items{provider="connection"} 3`, `limpet_token_cache_oldest_age_seconds{provider="connection"} 60`,
		`limpet_token_cache_events_total{event_type="cache_hit",provider="connection"} 40`,
		`limpet_token_cache_events_total{event_type="cache_miss",provider="connection"} 7`,
		`limpet_token_cache_requests_total{provider="connection",status="success"} 5`,
		`limpet_token_cache_requests_total{provider="connection",status="failure"} 2`,
		`limpet_token_cache_evictions_total{provider="connection",reason="refused"} 1`,
		`limpet_token_cache_evictions_total{provider="connection",reason="overflow"} 7`,
	}
	got := objectLines(m)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	repositories = nil
	if got := objectLines(m); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "limpet_repository_") }) {
		t.Errorf("series of deleted objects: %q", got)
	}
	for i := range maxSeries + 1 {
		repositories = append(repositories, object("a", fmt.Sprint(i), `"status":{`+well+`}`))
	}
	repositories = append(repositories, object("a", "ill", `"status":{"health":{"checked":1}}`))
	got = slices.DeleteFunc(objectLines(m), func(s string) bool { return !strings.HasPrefix(s, "limpet_repository_") })
	slices.Sort(got)
	if want := []string{
		`limpet_repository_healthy{name="ill",namespace="a"} 0`,
		`limpet_repository_info{connection="",name="ill",namespace="a",ready="False",suspended="false",target="",type="other"} 1`,
	}; !slices.Equal(got, want) {
		t.Errorf("of too many repositories: %q", got)
	}
	if got = objectLines(m); !slices.Contains(got, fmt.Sprintf(`limpet_repositories{health="healthy"} %d`, maxSeries+1)) {
		t.Errorf("no total of too many repositories: %q", got)
	}
}
