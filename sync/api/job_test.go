package api

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestResourceIssues: a server may list issues in both shapes, or in the newer one alone.
func TestResourceIssues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, status string
		want         string // errors, warnings, warnings of the first summary
	}{
		{"older", `{errors: [e], warnings: [w], summary: [{warnings: [w]}]}`, "[e] [w] [w]"},
		{"both", `{warnings: ["w (file: a.json)"], summary: [{warnings: [w], resourceWarnings: [{message: w, path: a.json}]}]}`,
			"[] [w (file: a.json)] [w]"},
		{"newer", `{summary: [{resourceWarnings: [{reason: ResourceInvalid, message: w, path: a.json}, {message: x}],
			resourceErrors: [{message: e, path: b.json}]}]}`, "[b.json: e] [a.json: w x] [a.json: w x]"},
		{"newer in the summary", `{errors: ["e (b.json)"], summary: [{resourceErrors: [{message: e, path: b.json}]}]}`, "[e (b.json)] [] []"},
	} {
		j, err := JobView(object(t, "status: "+c.status))
		if got := fmt.Sprint(j.Status.Errors, j.Status.Warnings, j.Status.Summary[0].Warnings); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

// TestBlocked: what keeps a Repository that is deleted, in each shape that servers write.
func TestBlocked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, status string
		want         []string
	}{
		{"nothing", `{}`, nil},
		{"text", `{deleteError: "cleanup: no answer"}`, []string{"cleanup: no answer"}},
		{"first shape", `{deleteError: no answer, deletion: {state: Blocked, finalizer: cleanup, message: no answer}}`,
			[]string{"cleanup: no answer"}},
		{"newer shape", `{deletion: {errors: [{code: X, detail: no answer, finalizer: cleanup, target: {name: a}}, {detail: b}]}}`,
			[]string{"cleanup: no answer", "b"}},
	} {
		repo, err := RepositoryView(object(t, "status: "+c.status))
		var got []string
		for _, e := range repo.Status.Blocked() {
			got = append(got, e.String())
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// TestPullState: Grafana writes the state of the health into status.sync; the condition keeps that
// of the pull.
func TestPullState(t *testing.T) {
	t.Parallel()
	unhealthy, failed := []string{UnhealthyText}, []string{"no such branch"}
	for _, c := range []struct {
		sync      SyncStatus
		condition Condition
		want      string
	}{
		{SyncStatus{State: StateError, Message: unhealthy}, Condition{}, ""},
		{SyncStatus{State: StateSuccess, Finished: 1}, Condition{}, StateSuccess},
		{SyncStatus{State: StateError, Finished: 1, Message: failed}, Condition{Status: "True"}, StateError},
		{SyncStatus{State: StateError, Finished: 1, Message: unhealthy}, Condition{Status: "True"}, StateSuccess},
		{SyncStatus{State: StateError, Finished: 1, Message: unhealthy}, Condition{Status: "False", Reason: ReasonSyncFailed}, StateError},
		{SyncStatus{State: StateError, Finished: 1, Message: unhealthy}, Condition{Status: "False", Reason: ReasonSyncWarning}, StateWarning},
	} {
		c.condition.Type = ConditionSyncStatus
		if got := (RepositoryStatus{Sync: c.sync, Conditions: []Condition{c.condition}}).PullState(); got != c.want {
			t.Errorf("%+v %+v: %q, want %q", c.sync, c.condition, got, c.want)
		}
	}
}
