package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv/suite"
)

// TestKilledWhileWritingDirectory kills the agent while a job writes to a directory: a repeat ends
// it, and nothing is lost.
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
