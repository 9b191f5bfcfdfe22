package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestPullBesideUnservedJob: a pull whose name is taken by a job that no agent serves gets another one.
func TestPullBesideUnservedJob(t *testing.T) {
	for name, c := range map[string]struct {
		action, label string
		age           time.Duration
		want          string // name of the pull; "" = refused
	}{
		"unserved": {action: "render", age: time.Hour, want: "a-pull"},
		"new":      {action: "render", age: time.Second},
		"claimed":  {action: "render", age: time.Hour, label: "provisioning.grafana.app/claim"},
		"a pull":   {action: "pull", age: time.Hour},
	} {
		var calls []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := map[string]any{}
			_ = json.NewDecoder(r.Body).Decode(&body)
			made, _ := body["metadata"].(map[string]any)
			calls = append(calls, r.Method+" "+r.URL.Path)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodGet:
				fmt.Fprintf(w, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","spec":{"action":%q},"metadata":{"name":"a-sync",`+
					`"labels":{%q:"1"},"creationTimestamp":%q}}`, c.action, cmp.Or(c.label, "x"), time.Now().Add(-c.age).UTC().Format(time.RFC3339))
			case strings.HasSuffix(r.URL.Path, "/repositories/a/jobs"):
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"AlreadyExists","code":409}`)
			default:
				fmt.Fprintf(w, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":%q}}`, made["name"])
			}
		}))
		client := connect(t, Config{Server: server.URL})
		job, err := client.Submit(t.Context(), "default", "a", map[string]any{"action": "pull", "pull": map[string]any{}}, nil)
		switch {
		case c.want == "" && !apierrors.IsAlreadyExists(err):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err != nil || job.GetName() != c.want || !slices.Contains(calls, "POST /apis/provisioning.grafana.app/v0alpha1/namespaces/default/jobs")):
			t.Errorf("%s: %v, calls %q", name, err, calls)
		}
		server.Close()
	}
}
