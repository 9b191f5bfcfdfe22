package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// other is a controller that works as Grafana's does: it looks at all objects again
// and again, and writes what it found as JSON patches of their status.
type other struct {
	t      testing.TB
	client *kube.Client
	period time.Duration // age of a check that is made again
	atWork atomic.Bool
}

func newOther(t testing.TB, server *testenv.Server, period time.Duration) *other {
	t.Helper()
	client, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, TLS: kube.TLS{CAFile: server.CAFile}, Token: server.TokenOf("grafana"), UserAgent: "grafana/13.1.0 (linux/amd64)"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &other{t: t, client: client, period: period}
}

func (o *other) Run(ctx context.Context) error {
	tick := time.NewTicker(max(o.period/8, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, kind := range []schema.GroupVersionResource{api.Repositories, api.Connections} {
			list, err := o.client.Resource(kind).Namespace("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if err := o.look(ctx, kind, &list.Items[i]); err != nil {
					return err
				}
			}
		}
	}
}

func (o *other) look(ctx context.Context, kind schema.GroupVersionResource, u *unstructured.Unstructured) error {
	repo, err := api.RepositoryView(u)
	if err != nil || !o.atWork.Load() {
		return err
	}
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	now := time.Now()
	changed := u.GetGeneration() != repo.Status.ObservedGeneration
	ill := strings.Contains(fmt.Sprint(u.Object["spec"]), "missing.git")
	var ops []op
	if u.Object["status"] == nil {
		ops = append(ops, op{"add", "/status", map[string]any{}})
	}
	if repo.Status.Health.Checked == 0 || changed || now.Sub(time.UnixMilli(repo.Status.Health.Checked)) > o.period {
		message := []any{}
		if ill {
			message = append(message, "repository not found")
		}
		ops = append(ops, op{"add", "/status/health", map[string]any{"healthy": !ill, "checked": now.UnixMilli(), "message": message}})
	}
	if changed {
		ops = append(ops, op{"add", "/status/observedGeneration", u.GetGeneration()})
	}
	sync := repo.Status.Sync
	pull := kind == api.Repositories && !ill && sync.State != api.StatePending && sync.State != api.StateWorking &&
		(changed || now.Sub(time.UnixMilli(sync.Finished)) > o.period)
	if pull {
		if _, there, _ := unstructured.NestedMap(u.Object, "status", "sync"); !there {
			ops = append(ops, op{"add", "/status/sync", map[string]any{"state": "", "message": []any{}}})
		}
		ops = append(ops, op{"add", "/status/sync/state", "pending"}, op{"add", "/status/sync/started", int64(0)})
	}
	if len(ops) == 0 || len(ops) == 1 && ops[0].Path == "/status" {
		return nil
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	if _, err := o.client.Resource(kind).Namespace("default").Patch(ctx, u.GetName(), types.JSONPatchType, body, metav1.PatchOptions{}, "status"); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	if !pull {
		return nil
	}
	_, err = o.client.Submit(ctx, "default", u.GetName(), map[string]any{"action": "pull", "pull": map[string]any{"incremental": !changed}}, nil)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// note is a write of a controller as the log of the server has it.
type note struct {
	testenv.Request
	who  string
	what string // "health", "pull", "work" for what a job writes, "lease"
	of   string // "repositories/name"
	ops  map[string]json.RawMessage
}

// notesOf sorts writes by what they are.
func notesOf(t testing.TB, requests []testenv.Request) (out []note) {
	t.Helper()
	for _, r := range requests {
		_, rest, _ := strings.Cut(r.Path, "/namespaces/default/")
		parts := strings.Split(rest, "/")
		n := note{Request: r, who: r.User, of: path.Join(parts[0], strings.Join(parts[1:min(2, len(parts))], "")), ops: map[string]json.RawMessage{}, what: "work"}
		var ops []struct {
			Path  string
			Value json.RawMessage
		}
		if r.Method == "PATCH" && json.Unmarshal(r.Body, &ops) == nil {
			for _, o := range ops {
				n.ops[o.Path] = o.Value
			}
		}
		switch {
		case !slices.Contains([]string{"repositories", "connections", "jobs", "leases"}, parts[0]):
			continue // what pulls have made
		case parts[0] == "leases":
			n.what = "lease"
		case r.Method == "POST" && (parts[0] == "jobs" || len(parts) == 3 && parts[2] == "jobs"):
			if n.what = "pull"; r.Code == 404 || r.Code == 405 {
				continue // a route that is not served
			}
			var body struct{ Spec struct{ Repository string } }
			if json.Unmarshal(r.Body, &body) == nil && body.Spec.Repository != "" {
				n.of = "repositories/" + body.Spec.Repository
			}
		case n.is("/status/health", "/status/observedGeneration", "/status/fieldErrors", "/status/quota", "/status/webhook", "/status/token", "/metadata/finalizers"), string(n.ops["/status/sync/state"]) == `"pending"`:
			n.what = "health"
		}
		out = append(out, n)
	}
	return out
}

func (n note) is(paths ...string) bool {
	for _, p := range paths {
		if n.ops[p] != nil {
			return true
		}
	}
	return false
}

func (n note) agent() bool { return strings.HasPrefix(n.who, "agent-") }

// counts sums them up: "agent-1 health", and the refused ones apart.
func counts(notes []note) map[string]int {
	out := map[string]int{}
	for _, n := range notes {
		key := n.who + " " + n.what
		if n.Code >= 400 {
			key += fmt.Sprint(" ", n.Code)
		}
		out[key]++
	}
	return out
}

func table(counts map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(out, ", ")
}

// redundant finds the writes of agents that change nothing but what has just been
// said: the same health within its window, a generation that is observed already,
// a pull that was asked for already, and what leaves the object as it was.
func redundant(notes []note) (out []string) {
	type health struct {
		Healthy bool
		Checked int64
		Message []string
	}
	said, observed, version := map[string]health{}, map[string]string{}, map[string]int64{}
	for _, n := range notes {
		complain := func(why string) {
			if n.agent() {
				out = append(out, fmt.Sprintf("%s %s of %s by %s: %s", n.Method, n.what, n.of, n.who, why))
			}
		}
		if n.what == "pull" && n.Code == 409 {
			complain("the pull was queued already")
		}
		if n.Code >= 400 || n.what == "lease" {
			continue
		}
		if n.Method == "PATCH" && n.UID != "" {
			if n.Version == version[n.UID] {
				complain("it changes nothing")
			}
			version[n.UID] = n.Version
		}
		generation, moves := n.ops["/status/observedGeneration"]
		if moves {
			if observed[n.UID] == string(generation) {
				complain("the generation was observed already")
			}
			observed[n.UID] = string(generation)
		}
		var now health
		if body := n.ops["/status/health"]; body != nil && json.Unmarshal(body, &now) == nil {
			was, known := said[n.UID]
			window := time.Minute
			if now.Healthy {
				window = 5 * time.Minute
			}
			if age := time.UnixMilli(now.Checked).Sub(time.UnixMilli(was.Checked)); known && !moves && age < window && now.Healthy == was.Healthy && slices.Equal(now.Message, was.Message) {
				complain(fmt.Sprintf("the same was noted %s before", age))
			}
			said[n.UID] = now
		}
	}
	return out
}
