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

// TestPullBesideUnservedJob: a pull whose name is taken by a job that no agent serves gets another
// one.
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

// TestJobOwner: a job of an API that has no route for jobs belongs to its Repository; Grafana's
// jobs have no owner.
func TestJobOwner(t *testing.T) {
	for name, c := range map[string]struct {
		code   int    // of the route
		going  string // deletionTimestamp of the Repository
		action string
		want   string
	}{
		"no route":              {404, "", "pull", `[{"apiVersion":"provisioning.grafana.app/v0alpha1","blockOwnerDeletion":true,"controller":true,"kind":"Repository","name":"a","uid":"u-1"}]`},
		"not allowed":           {405, "", "pull", `[{"apiVersion":"provisioning.grafana.app/v0alpha1","blockOwnerDeletion":true,"controller":true,"kind":"Repository","name":"a","uid":"u-1"}]`},
		"being deleted":         {404, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, "pull", "null"},
		"a clean-up":            {404, "", "releaseResources", "null"},
		"a job of pull request": {0, "", "pr", "null"},
	} {
		var owners string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Metadata struct{ OwnerReferences any } }
			_ = json.NewDecoder(r.Body).Decode(&body)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasSuffix(r.URL.Path, "/repositories/a/jobs"):
				w.WriteHeader(c.code)
				fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":%q,"code":%d}`,
					map[int]string{404: "NotFound", 405: "MethodNotAllowed"}[c.code], c.code)
			case r.Method == http.MethodGet:
				fmt.Fprintf(w, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"a","uid":"u-1"%s}}`, c.going)
			default:
				data, _ := json.Marshal(body.Metadata.OwnerReferences)
				owners = string(data)
				fmt.Fprint(w, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"}}`)
			}
		}))
		client := connect(t, Config{Server: server.URL})
		_, err := client.Submit(t.Context(), "default", "a", map[string]any{"action": c.action, c.action: map[string]any{}}, nil)
		if err != nil || owners != c.want {
			t.Errorf("%s: owners %s, %v", name, owners, err)
		}
		server.Close()
	}
}
