package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/control"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// TestTester: a Repository that is on no API is tested with the values that its file
// holds, by a running agent and by a Bench, which leaves nothing behind.
func TestTester(t *testing.T) {
	const password = "canary-of-the-bench"
	server := testenv.Git(t, testenv.GitOptions{User: "git", Password: password})
	url := server.Serve("ops/site.git", testenv.Repo(t, 1, 1).Dir)
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	must(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	object := func(token string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"metadata": map[string]any{"name": "site", "namespace": "default"}, "secure": map[string]any{"token": map[string]any{"create": token}},
			"spec": map[string]any{"title": "Site", "type": "git", "git": map[string]any{"url": url},
				"sync": map[string]any{"enabled": false, "target": "folder"}}}}
	}
	a, log := newAgent(t, func(c *Config) { c.AllowInsecureGit = true })
	// Nobody is at that address: the API is not needed for this.
	cfg := Config{StatePath: filepath.Join(dir, "none", "limpet.db"), Version: "test", AllowInsecureGit: true,
		Logger: slog.New(slog.DiscardHandler),
		API:    kube.Config{Server: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)}, Jobs: jobs.Options{Agent: "test"}}
	bench, err := OpenTester(t.Context(), cfg, "")
	must(t, err)
	for name, test := range map[string]control.Tester{"agent": a, "bench": bench} {
		given := object(password)
		got, err := test.Test(t.Context(), given)
		if err != nil || !got.Success || !strings.Contains(fmt.Sprint(got.Steps), "secure values of default/site") {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if value, _, _ := unstructured.NestedString(given.Object, "secure", "token", "create"); value != password {
			t.Errorf("%s: has changed the object of its caller", name)
		}
		if got, err := test.Test(t.Context(), object("wrong")); err != nil || got.Code != 401 {
			t.Errorf("%s with another: %+v %v", name, got, err)
		}
		if _, err := test.Test(t.Context(), &unstructured.Unstructured{Object: map[string]any{"kind": "Job"}}); err == nil {
			t.Errorf("%s tests a Job", name)
		}
		if text := fmt.Sprint(got) + log.String(); strings.Contains(text, password) {
			t.Errorf("%s shows the token: %s", name, text)
		}
	}
	must(t, bench.Close())
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a Bench has made the directory of the state file")
	}
}
