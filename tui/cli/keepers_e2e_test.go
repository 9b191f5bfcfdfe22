package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestAgentsShareRepositories: two agents look after the Repositories of one API.
// Each Repository is checked by one of them, and when that one dies the other goes
// on with its share.
func TestAgentsShareRepositories(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Leases: true})
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})
	people, err := api.Connect(t.Context(), api.Config{Server: server.URL, TLS: api.TLS{CAFile: server.CAFile}, Token: server.Token, UserAgent: "people"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(people.Close)
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	repo := testenv.Repo(t, 2, 2)
	url := host.Serve("boards.git", repo.Dir)
	const count = 12
	var agents []*home
	for i := range 2 {
		h := newHome(t)
		for n := range count {
			h.file(t, fmt.Sprintf("credentials/default.repo-%d/token", n), gitToken)
			h.file(t, fmt.Sprintf("credentials/default.repo-%d/ca.crt", n), string(ca))
		}
		h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file", h.file(t, "token", server.TokenOf(fmt.Sprint("agent-", i))+"\n")}
		agents = append(agents, h)
	}
	run := func(h *home) *daemon {
		return h.daemon(t, "--controllers", "on", "--credentials-dir", h.dir+"/credentials", "--claim-expiry", "6s", "--lease-renewal-interval", "2s")
	}
	first, second := run(agents[0]), run(agents[1])
	until(t, "both are members", func() bool {
		return strings.Contains(first.log.String(), "2 agents") && strings.Contains(second.log.String(), "2 agents")
	})
	mark := server.Mark(t)
	res := people.Resource(api.Repositories).Namespace("default")
	for n := range count {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Boards", "type": "git", "workflows": []any{},
			"git":  map[string]any{"url": url, "branch": testenv.Branch, "path": testenv.Directory},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}}}}
		u.SetAPIVersion(api.Repositories.GroupVersion().String())
		u.SetKind("Repository")
		u.SetName(fmt.Sprintf("repo-%d", n))
		if _, err := res.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	observed := func(generation int64) func() bool {
		return func() bool {
			list, err := res.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for i := range list.Items {
				if view, err := api.RepositoryView(&list.Items[i]); err == nil && view.Status.ObservedGeneration >= generation && view.Status.Health.Healthy {
					n++
				}
			}
			return n == count
		}
	}
	until(t, "all are looked after", observed(1))
	// Each was checked once, by one agent.
	keeper := map[string]string{}
	for _, r := range server.Requests(t, mark) {
		var ops []struct{ Op, Path string }
		if r.Method != "PATCH" || !strings.HasSuffix(r.Path, "/status") || json.Unmarshal(r.Body, &ops) != nil || r.Code != 200 {
			continue
		}
		name := path.Base(path.Dir(r.Path))
		for _, o := range ops {
			if o.Path != "/status/health" {
				continue
			}
			if who := keeper[name]; who != "" {
				t.Errorf("%s was checked by %s and again by %s", name, who, r.User)
			}
			keeper[name] = r.User
		}
	}
	share := map[string]int{}
	for _, who := range keeper {
		share[who]++
	}
	if len(keeper) != count || share["agent-0"] == 0 || share["agent-1"] == 0 {
		t.Errorf("shares %v of %d", share, count)
	}
	first.kill()
	for n := range count {
		patch := []byte(`{"spec":{"title":"Other"}}`)
		if _, err := res.Patch(t.Context(), fmt.Sprintf("repo-%d", n), "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the second looks after all of them", observed(2))
	if code := second.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	leases, err := people.Resource(testenv.Leases).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 1 {
		t.Errorf("%d leases are left, want that of the killed one; %v", len(leases.Items), err)
	}
}

// TestStatusTellsTheNeighbour: where Grafana looks after a Repository, the agent
// says so and leaves it alone.
func TestStatusTellsTheNeighbour(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	grafana, err := api.Connect(t.Context(), api.Config{Server: server.URL, TLS: api.TLS{CAFile: server.CAFile}, Token: server.Token, UserAgent: "grafana/13.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(grafana.Close)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Boards", "type": "git", "workflows": []any{},
		"git": map[string]any{"url": "https://git.example.com/x.git"}, "sync": map[string]any{"enabled": true, "target": "folder"}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("boards")
	res := grafana.Resource(api.Repositories).Namespace("default")
	if _, err := res.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	checked := fmt.Appendf(nil, `{"status":{"health":{"healthy":true,"checked":%d}}}`, time.Now().UnixMilli())
	if _, err := res.Patch(t.Context(), "boards", "application/merge-patch+json", checked, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	mark := server.Mark(t)
	h := newHome(t)
	h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file", h.file(t, "token", server.TokenOf("agent")+"\n")}
	d := h.daemon(t)
	until(t, "status tells the neighbour", func() bool {
		return strings.Contains(h.run(t, "status").out, "looked after by grafana; it wrote the health of default/boards")
	})
	if shown := h.must(t, 0, "repo", "show", "boards").out; !strings.Contains(shown, "looked after by grafana; it wrote the health of default/boards") {
		t.Errorf("repo show: %s", shown)
	}
	if !strings.Contains(d.log.String(), "looked after by another controller") {
		t.Errorf("the log says nothing: %s", d.log.String())
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if writes := server.Writes(t, mark); len(writes) > 0 {
		t.Errorf("the agent has written %v", writes)
	}
}
