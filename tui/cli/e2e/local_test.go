package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv/suite"
)

// TestLocalDirectory pulls from a directory of plain files, follows its changes, and has jobs write to it. What is not below
// --local-prefix, or leads out of it, is refused.
func TestLocalDirectory(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir, elsewhere := filepath.Join(h.dir, "srv", "boards"), t.TempDir()
	board := func(name, title string) {
		h.file(t, "srv/boards/"+name, fmt.Sprintf(`{"uid":%q,"title":%q,"tags":[],"panels":[],"schemaVersion":41}`,
			strings.TrimSuffix(filepath.Base(name), ".json"), title))
	}
	for i := range 6 {
		board(fmt.Sprintf("team/b%d.json", i), "T")
	}
	if err := os.Symlink(elsewhere, filepath.Join(h.dir, "srv", "out")); err != nil {
		t.Fatal(err)
	}
	d := h.daemon(t, "--local-prefix", filepath.Join(h.dir, "srv"))
	h.must(t, exitUsage, "repo", "create", "x", "--type", "local", "--path", "relative")
	for name, path := range map[string]string{"absent": dir + "-not", "outside": elsewhere, "leaves": filepath.Join(h.dir, "srv", "out")} {
		h.must(t, 0, "repo", "create", name, "--type", "local", "--path", path)
		until(t, name+" is not healthy", func() bool { return strings.Contains(h.run(t, "repo", "show", name).out, "spec.local.path: ") })
		if r := h.run(t, "repo", "test", name); r.code == 0 || !strings.Contains(r.out, "spec.local.path") {
			t.Errorf("%s: %s%s", name, r.out, r.err)
		}
	}
	if r := h.run(t, "repo", "pull", "absent", "--wait"); r.code != exitError || !strings.Contains(r.err, "is not healthy: spec.local.path: ") {
		t.Errorf("a missing directory: %s%s", r.out, r.err)
	}
	h.file(t, "srv/boards-not/x.txt", "x")
	h.must(t, 0, "repo", "pull", "absent", "--wait") // it is checked again
	h.must(t, exitError, "apply", "-f", h.file(t, "bad.yaml", localYAML("boards/")))
	h.must(t, 0, "apply", "-f", h.file(t, "good.yaml", localYAML(dir)))
	titles := func() string {
		var out []string
		for _, o := range h.objects(t, "default", "dashboards") {
			out = append(out, o.Metadata.Name)
		}
		return strings.Join(out, " ")
	}
	h.must(t, 0, "repo", "pull", "boards", "--wait")
	if got := titles(); got != "b0 b1 b2 b3 b4 b5" {
		t.Fatalf("pulled %s", got)
	}
	if r := h.must(t, 0, "repo", "test", "boards"); !strings.Contains(r.out, "write access") {
		t.Errorf("%s", r.out)
	}
	if r := h.must(t, 0, "repo", "show", "boards"); !strings.Contains(r.out, dir) {
		t.Errorf("%s", r.out)
	}
	if r := h.must(t, 0, "repo", "pull", "boards", "--wait"); !strings.Contains(r.out+r.err, "same commit as last sync") {
		t.Errorf("nothing has changed: %s%s", r.out, r.err)
	}
	board("new.json", "New")
	if err := os.Remove(filepath.Join(dir, "team/b5.json")); err != nil {
		t.Fatal(err)
	}
	until(t, "the interval brings the change", func() bool { return titles() == "b0 b1 b2 b3 b4 new" })
	h.must(t, 0, "job", "create", "boards", "--action", "delete", "--path", "team/b4.json", "--wait")
	h.must(t, 0, "job", "create", "boards", "--action", "move", "--path", "team/b3.json", "--target-path", "moved/", "--wait")
	if got := titles(); got != "b0 b1 b2 b3 new" {
		t.Errorf("after the jobs: %s", got)
	}
	h.must(t, 0, "apply", "-f", h.file(t, "free.yaml",
		"apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: free, namespace: default}\n"+
			"spec: {title: Free one, panels: []}\n"))
	h.must(t, 0, "job", "create", "boards", "--action", "push", "--wait")
	for name, there := range map[string]bool{"team/b4.json": false, "team/b3.json": false, "moved/b3.json": true, "team/b0.json": true,
		"free-one.json": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestKilledWhileWritingDirectory kills the agent while a job writes to a directory: a repeat ends it, and nothing is lost.
func TestKilledWhileWritingDirectory(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-local", first, map[string]int{"a": small})
	dir := filepath.Join(m.dir, "boards")
	m.args = append(m.args, "--local-prefix", m.dir)
	m.user.create(api.Repositories, "local", nil, map[string]any{"title": "L", "type": "local", "workflows": []any{"write"},
		"local": map[string]any{"path": dir}, "sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}})
	for i, action := range []string{"move", "delete", "push", "migrate"} {
		for at := 1; at <= 3; at++ {
			for n := range 4 {
				m.file(t, fmt.Sprintf("boards/%s/%d/b%d.json", action, at, n), fmt.Sprintf(
					`{"uid":"%s-%d-%d","title":"B","tags":[],"panels":[],"schemaVersion":41}`, action, at, n))
			}
			paths := []any{}
			for n := range 3 {
				paths = append(paths, fmt.Sprintf("%s/%d/b%d.json", action, at, n))
			}
			options := map[string]any{"paths": paths, "targetPath": fmt.Sprintf("moved/%d/", at)}
			switch action {
			case "delete":
				delete(options, "targetPath")
			case "push", "migrate":
				options = map[string]any{}
				for n := range 3 {
					u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "dashboard.grafana.app/v1", "kind": "Dashboard",
						"metadata": map[string]any{"name": fmt.Sprintf("%s-new-%d-%d", action, at, n)},
						"spec":     map[string]any{"title": fmt.Sprint(action, at, n)}}}
					if _, err := m.user.Resource(dashboards).Namespace(m.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			m.jobsCreated++
			job := m.user.create(api.Jobs, fmt.Sprintf("local-%s-%d", action, m.jobsCreated), nil,
				map[string]any{"action": action, "repository": "local", action: options})
			m.jobs[string(job.GetUID())] = true
			if !m.awaitEnd(m.start(fmt.Sprintf("written=kill@%d", at))) {
				t.Fatalf("%s: not killed at file %d", action, at)
			}
			m.finishJobs()
			have, _ := filepath.Glob(filepath.Join(dir, "*", fmt.Sprint(at), "*.json"))
			top, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			if stray, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".limpet-*")); len(stray) > 0 {
				t.Errorf("%s: %q", action, stray)
			}
			if want := []int{4, 5, 9, 13}[i]; len(have) != want || len(top) != []int{0, 0, 3 * at, 18 + 3*at}[i] {
				t.Errorf("%s, killed at file %d: %d files, %q", action, at, len(have), top)
			}
		}
	}
}

func localYAML(path string) string {
	return fmt.Sprintf(`apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: boards, namespace: default}
spec:
  title: Boards
  type: local
  workflows: [write]
  local: {path: %q}
  sync: {enabled: true, target: folder, intervalSeconds: 10}
`, path)
}
