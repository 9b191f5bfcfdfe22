package cli_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/testenv"
)

// TestKilledWhileItWrites kills the agent at each point of a delete and of a move: one
// commit is made of each, and the API is as the branch.
func TestKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	first, w := seeded(t), newWorld(t)
	m := newMortal(t, w, "kill-write", first, map[string]int{"a": small})
	m.repo.Git(t, "config", "http.receivepack", "true")
	repo := m.list(api.Repositories)[0]
	if err := unstructured.SetNestedSlice(repo.Object, []any{"write"}, "spec", "workflows"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.people.Resource(api.Repositories).Namespace(m.namespace).Update(t.Context(), &repo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	type kill struct{ action, point string }
	var kills []kill
	for range times(1, 5) {
		for _, point := range []string{failpoint.Fetched, failpoint.Composed, failpoint.Noted, failpoint.Pushed, failpoint.Published, failpoint.Planned, failpoint.Applying, failpoint.Worked, failpoint.Recorded} {
			kills = append(kills, kill{"delete", point})
		}
		kills = append(kills, kill{"move", failpoint.Pushed}, kill{"move", failpoint.Applying})
	}
	var changes []testenv.Change
	for i := range kills {
		changes = append(changes, testenv.Change{Path: fmt.Sprintf("a/from/target-%d.json", i), Data: fmt.Appendf(nil, `{"uid":"target-%d","title":"Target","tags":[],"panels":[],"schemaVersion":41}`, i)})
	}
	m.repo.Commit(t, "targets", changes...)
	m.pull("a", nil)
	m.rest()
	for i, k := range kills {
		before := m.repo.Head(t)
		options := map[string]any{"paths": []any{fmt.Sprintf("from/target-%d.json", i)}}
		if k.action == "move" {
			options["targetPath"] = "to/"
		}
		m.made++
		job := m.create(api.Jobs, "Job", fmt.Sprintf("a-%s-%d", k.action, m.made), nil, map[string]any{"action": k.action, "repository": "a", k.action: options})
		m.jobs[string(job.GetUID())] = true
		if !m.end(m.start(k.point + "=kill")) {
			t.Fatalf("%s: not killed at %s", k.action, k.point)
		}
		m.rest()
		if got := m.repo.Git(t, "log", "--format=%s", before+"..main"); !strings.HasSuffix(got, " from Grafana "+job.GetName()) || strings.Contains(got, "\n") {
			t.Errorf("%s, killed at %s: commits %q", k.action, k.point, got)
		}
	}
	m.judge()
	m.repo.Git(t, "fsck", "--full", "--strict")
	t.Logf("%d kills", len(kills))
}
