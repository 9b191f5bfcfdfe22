package apiserver

import (
	"fmt"
	"strings"
	"testing"
)

// TestDependents: what names an owner goes with it, unless it has another one or the deletion
// orphans it.
func TestDependents(t *testing.T) {
	t.Parallel()
	const secrets = "/api/v1/namespaces/default/secrets"
	type step struct{ method, path, body string }
	secret := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"` + more + `},"stringData":{"a":"` + canaryOne + `"}}`
	}
	for name, c := range map[string]struct {
		steps []step
		left  string // names of the jobs and secrets, with what is special of them
	}{
		"background": {[]step{{"DELETE", "repositories/r", ""}}, "two:1 free:0"},
		"foreground": {[]step{{"DELETE", "repositories/r?propagationPolicy=Foreground", ""}}, "two:1 free:0"},
		"orphan":     {[]step{{"DELETE", "repositories/r", `{"propagationPolicy":"Orphan"}`}}, "direct:0 r-sync:0 free:0 mine:0 two:1"},
		"dry run":    {[]step{{"DELETE", "repositories/r?dryRun=All", ""}}, "direct:1 r-sync:1 free:0 mine:1 two:2"},
		"with the last finalizer": {[]step{{"PATCH", "repositories/r", `{"metadata":{"finalizers":["cleanup"]}}`}, {"DELETE", "repositories/r", ""},
			{"PATCH", "repositories/r", `{"metadata":{"finalizers":null}}`}}, "two:1 free:0"},
		"not before the last finalizer": {[]step{{"PATCH", "repositories/r", `{"metadata":{"finalizers":["cleanup"]}}`},
			{"DELETE", "repositories/r", ""}}, "direct:1 r-sync:1 free:0 mine:1 two:2"},
		"orphan before the last finalizer": {[]step{{"PATCH", "repositories/r", `{"metadata":{"finalizers":["cleanup"]}}`},
			{"DELETE", "repositories/r?propagationPolicy=Orphan", ""}, {"PATCH", "repositories/r", `{"metadata":{"finalizers":null}}`}},
			"direct:0 r-sync:0 free:0 mine:0 two:1"},
		"a dependent with a finalizer": {[]step{{"PATCH", "jobs/direct", `{"metadata":{"finalizers":["a/b"]}}`}, {"DELETE", "repositories/r", ""}},
			"direct:1:going two:1 free:0"},
		"another of its name": {[]step{{"DELETE", "repositories/r?propagationPolicy=Orphan", ""}, {"POST", "repositories",
			`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r"},"spec":{"type":"git","git":{"url":"https://host/r"}}}`},
			{"DELETE", "repositories/r", ""}}, "direct:0 r-sync:0 free:0 mine:0 two:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.repository("r")
			uid := at(s.must("GET", base+"repositories/r", ""), "metadata", "uid").(string)
			s.must("POST", base+"repositories/r/jobs", `{"action":"pull","pull":{}}`)
			job := s.must("POST", base+"jobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"direct"},`+
				`"spec":{"action":"push","push":{},"repository":"r"}}`)
			if got := compact(t, at(job, "metadata", "ownerReferences")); got != `[{"apiVersion":"provisioning.grafana.app/v0alpha1",`+
				`"blockOwnerDeletion":true,"controller":true,"kind":"Repository","name":"r","uid":"`+uid+`"}]` {
				t.Errorf("owners of a job: %s", got)
			}
			one := `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","name":"r","uid":"` + uid + `"}`
			s.must("POST", secrets, secret("mine", `,"ownerReferences":[`+one+`]`))
			s.must("POST", secrets, secret("two", `,"ownerReferences":[`+one+`,{"apiVersion":"v1","kind":"Secret","name":"x","uid":"u-2"}]`))
			s.must("POST", secrets, secret("free", `,"annotations":{"a/uid":"`+uid+`"}`))
			s.must("POST", strings.Replace(secrets, "default", "other", 1), secret("far", `,"ownerReferences":[`+one+`]`))
			for _, step := range c.steps {
				s.must(step.method, base+step.path, step.body)
			}
			got := map[string]bool{}
			for _, list := range []string{base + "jobs", secrets} {
				for _, item := range s.must("GET", list, "")["items"].([]any) {
					meta := item.(map[string]any)["metadata"].(map[string]any)
					owners, given := meta["ownerReferences"].([]any)
					if given && len(owners) == 0 {
						t.Errorf("%s has an empty list of owners", meta["name"])
					}
					text := fmt.Sprintf("%s:%d", meta["name"], len(owners))
					if meta["deletionTimestamp"] != nil {
						text += ":going"
					}
					got[text] = true
				}
			}
			for _, want := range strings.Fields(c.left) {
				if !got[want] {
					t.Errorf("%s is not left, %v are", want, got)
				}
			}
			sealed := 1 // of the other namespace
			for what := range got {
				if n, _, _ := strings.Cut(what, ":"); n == "mine" || n == "two" || n == "free" {
					sealed++
				}
			}
			if len(got) != len(strings.Fields(c.left)) || len(s.sealedNames()) != sealed {
				t.Errorf("%v are left with %d sealed values, want %q", got, len(s.sealedNames()), c.left)
			}
		})
	}
}
