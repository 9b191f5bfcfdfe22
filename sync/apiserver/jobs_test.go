package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func (s *site) repository(name string) {
	s.t.Helper()
	s.must("POST", base+"repositories",
		fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":%q},
		"spec":{"type":"git","workflows":["write"],"git":{"url":"https://host/%[1]s"},"sync":{"enabled":true,"target":"folder"}}}`, name))
}

func TestJobsOfRepository(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("test6")
	code, job := s.call("POST", base+"repositories/test6/jobs", `{"action":"pull","pull":{"incremental":false}}`)
	if code != http.StatusAccepted || job["kind"] != "Job" || job["apiVersion"] != "provisioning.grafana.app/v0alpha1" {
		t.Fatalf("%d %v", code, job)
	}
	if at(job, "metadata", "name") != "test6-sync" || at(job, "metadata", "labels", "provisioning.grafana.app/repository") != "test6" ||
		at(job, "spec", "repository") != "test6" || at(job, "status", "state") != nil || at(job, "metadata", "uid") == nil {
		t.Errorf("job %v", job)
	}
	if got := compact(t, job["spec"]); got != `{"action":"pull","pull":{"incremental":false},"repository":"test6"}` {
		t.Errorf("spec %s", got)
	}
	sync := at(s.must("GET", base+"repositories/test6", ""), "status", "sync")
	if got := compact(t, sync); got != `{"started":0,"state":"pending"}` {
		t.Errorf("status.sync = %s", got)
	}
	if code, status := s.call("POST", base+"repositories/test6/jobs", `{"action":"migrate","migrate":{}}`); code != http.StatusConflict ||
		status["reason"] != "AlreadyExists" {
		t.Errorf("a second one: %d %v", code, status)
	}
	uid := fmt.Sprint(at(job, "metadata", "uid"))
	if live := s.must("GET", base+"repositories/test6/jobs/"+uid, ""); live["kind"] != "Job" || at(live, "metadata", "uid") != uid {
		t.Errorf("jobs/UID of a queued job: %v", live)
	}
	s.must("POST", base+"historicjobs",
		fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"HistoricJob","metadata":{"generateName":"test6-sync-",
		"labels":{"provisioning.grafana.app/repository":"test6","provisioning.grafana.app/original-uid":%q}},
		"spec":{"action":"pull","repository":"test6","pull":{"incremental":false}},"status":{"state":"success"}}`, uid))
	s.must("POST", base+"historicjobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"HistoricJob","metadata":{"name":"x",
		"labels":{"provisioning.grafana.app/repository":"other"}},"spec":{"action":"pull","repository":"other"}}`)
	s.must("DELETE", base+"jobs/test6-sync", "")
	list := s.must("GET", base+"repositories/test6/jobs", "")
	if items, _ := list["items"].([]any); list["kind"] != "HistoricJobList" || len(items) != 1 {
		t.Errorf("jobs: %v", list)
	}
	if done := s.must("GET", base+"repositories/test6/jobs/"+uid, ""); done["kind"] != "HistoricJob" ||
		at(done, "status", "state") != "success" {
		t.Errorf("jobs/UID of a finished job: %v", done)
	}
	other := strings.Replace(base, "v0alpha1", "v1beta1", 1)
	if list := s.must("GET", other+"repositories/test6/jobs", ""); list["apiVersion"] != "provisioning.grafana.app/v1beta1" {
		t.Errorf("in another version: %v", list["apiVersion"])
	}
}

// TestUnservedAction: a server that knows its agent refuses a job that would wait for good, and
// takes the end of an old one.
func TestUnservedAction(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("r")
	const push = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"old"},` +
		`"spec":{"action":"push","push":{},"repository":"r"}}`
	s.must("POST", base+"jobs", push)
	s.options.Actions = []string{"delete", "pull"}
	for path, body := range map[string]string{"jobs": strings.Replace(push, "old", "new", 1), "repositories/r/jobs": `{"action":"push","push":{}}`} {
		code, status := s.call("POST", base+path, body)
		causes, _ := at(status, "details", "causes").([]any)
		if code != http.StatusUnprocessableEntity || len(causes) != 1 || at(causes[0].(map[string]any), "field") != "spec.action" ||
			!strings.Contains(fmt.Sprint(status["message"]), `"delete", "pull"`) {
			t.Errorf("%s: %d %v", path, code, status)
		}
	}
	s.must("POST", base+"repositories/r/jobs", `{"action":"pull","pull":{}}`)
	s.must("PATCH", base+"jobs/old", `{"metadata":{"labels":{"a":"b"}}}`)
	s.must("POST", base+"jobs", strings.NewReplacer("old", "pulls", "push", "pull").Replace(push))
	if code, status := s.call("PATCH", base+"jobs/pulls", `{"spec":{"action":"push","push":{},"pull":null}}`); code != http.StatusUnprocessableEntity {
		t.Errorf("changed to another: %d %v", code, status)
	}
	s.must("DELETE", base+"jobs/old", "")
}

func TestJobNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("r1")
	for body, name := range map[string]string{
		`{"action":"pull","pull":{}}`: `^r1-sync$`,
		`{"push":{}}`:                 `^r1-push$`,
		`{"action":"delete","delete":{"paths":["a.json"]}}`:        `^r1-delete$`,
		`{"move":{"paths":["a.json"],"targetPath":"b/"}}`:          `^r1-move$`,
		`{"action":"fixFolderMetadata"}`:                           `^r1-fixFolderMetadata$`,
		`{"action":"test","test":{"duration":"5s"}}`:               `^r1-test-[a-z0-9]+$`,
		`{"action":"test","test":{"duration":"6s"},"message":"m"}`: `^r1-test-[a-z0-9]+$`,
	} {
		code, job := s.call("POST", base+"repositories/r1/jobs", body)
		if got := fmt.Sprint(at(job, "metadata", "name")); code != http.StatusAccepted || !regexp.MustCompile(name).MatchString(got) {
			t.Errorf("%s: %d %q %v, want %s", body, code, got, job["message"], name)
		}
	}
}

func TestJobsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("r1")
	s.repository("sick")
	s.repository("unchecked")
	s.must("PATCH", base+"repositories/sick/status",
		`{"status":{"health":{"healthy":false,"checked":1756973881900,"message":["no such branch"]}}}`)
	s.must("PATCH", base+"repositories/unchecked/status", `{"status":{"health":{"healthy":false,"checked":0}}}`)
	s.must("POST", base+"repositories",
		`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"going","finalizers":["cleanup"]},
		"spec":{"type":"git","git":{"url":"https://host/a"}}}`)
	s.must("DELETE", base+"repositories/going", "")
	for name, workflow := range map[string]string{"branches": `"branch"`, "main": `"write"`, "read": ""} {
		s.repository(name)
		s.must("PATCH", base+"repositories/"+name, `{"spec":{"workflows":[`+workflow+`],"git":{"branch":"main"}}}`)
	}
	const pull = `{"action":"pull","pull":{}}`
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		text                     string
	}{
		{"no such repository", "POST", "absent/jobs", pull, 404, "absent"},
		{"unhealthy", "POST", "sick/jobs", pull, 424, "no such branch"},
		{"never checked", "POST", "unchecked/jobs", pull, 202, ""},
		{"being deleted", "POST", "going/jobs", pull, 409, "deleted"},
		{"no body", "POST", "r1/jobs", "", 400, "spec of a job"},
		{"not JSON", "POST", "r1/jobs", "pull", 400, "spec of a job"},
		{"null", "POST", "r1/jobs", "null", 400, "spec of a job"},
		{"a list", "POST", "r1/jobs", "[]", 400, "spec of a job"},
		{"a whole job", "POST", "r1/jobs", `{"kind":"Job","spec":` + pull + `}`, 400, "alone"},
		{"action as number", "POST", "r1/jobs", `{"action":3}`, 400, "action"},
		{"other repository", "POST", "r1/jobs", `{"action":"pull","pull":{},"repository":"r2"}`, 400, "r2"},
		{"two blocks", "POST", "r1/jobs", `{"pull":{},"push":{}}`, 400, "multiple job types found"},
		{"block of another action", "POST", "r1/jobs", `{"action":"pull","push":{}}`, 400, "push"},
		{"pull request", "POST", "r1/jobs", `{"action":"pr","pr":{"pr":3}}`, 400, "webhooks"},
		{"pull request by its block", "POST", "r1/jobs", `{"pr":{"pr":3}}`, 400, "webhooks"},
		{"nothing to do", "POST", "r1/jobs", `{}`, 422, "spec.action"},
		{"unknown action", "POST", "r1/jobs", `{"action":"fetch"}`, 422, "supported values"},
		{"no options", "POST", "r1/jobs", `{"action":"pull"}`, 422, "spec.pull"},
		{"to a UID", "POST", "r1/jobs/abc", pull, 400, "without a UID"},
		{"orphans of a living one", "POST", "r1/jobs", `{"action":"releaseResources"}`, 409, "delete the repository first"},
		{"orphans of a dying one", "POST", "going/jobs", `{"action":"releaseResources"}`, 202, ""},
		{"orphans of a dead one", "POST", "gone/jobs", `{"action":"deleteResources"}`, 202, ""},
		{"an unknown UID", "GET", "r1/jobs/0000-0000", "", 404, ""},
		{"jobs of no repository", "GET", "absent/jobs", "", 404, "absent"},
		{"too deep", "GET", "r1/jobs/a/b", "", 404, ""},
		{"DELETE", "DELETE", "r1/jobs", "", 405, ""},
		{"PUT", "PUT", "r1/jobs", pull, 405, ""},
		{"push to one that is only read", "POST", "read/jobs", `{"push":{}}`, 403, `lacks "write"`},
		{"push to its own branch", "POST", "branches/jobs", `{"push":{"branch":"main"}}`, 403, `lacks "write"`},
		{"migrate to its own branch", "POST", "branches/jobs", `{"migrate":{}}`, 403, `lacks "write"`},
		{"delete from its own branch", "POST", "branches/jobs", `{"delete":{"paths":["a"]}}`, 403, `lacks "write"`},
		{"move in its own branch", "POST", "branches/jobs", `{"move":{"paths":["a"],"targetPath":"b/"}}`, 403, `lacks "write"`},
		{"folder files on its own branch", "POST", "branches/jobs", `{"action":"fixFolderMetadata"}`, 403, `lacks "write"`},
		{"folder files on another branch", "POST", "branches/jobs", `{"fixFolderMetadata":{"ref":"dev"}}`, 202, ""},
		{"push to another branch", "POST", "main/jobs", `{"push":{"branch":"dev"}}`, 403, `lacks "branch"`},
		{"push to the branch", "POST", "main/jobs", `{"push":{"branch":"main"}}`, 202, ""},
		{"test", "POST", "r1/test", "{}", 404, ""},
		{"files", "GET", "r1/files/", "", 404, ""},
	} {
		code, answer := s.call(c.method, base+"repositories/"+c.path, c.body)
		if code != c.code || !strings.Contains(fmt.Sprint(answer["message"]), c.text) {
			t.Errorf("%s: %d %v, want %d with %q", c.name, code, answer["message"], c.code, c.text)
		}
		if code >= 400 && answer["kind"] != "Status" {
			t.Errorf("%s: answered %v", c.name, answer)
		}
		if code == 403 { // however the job is made
			spec, _, err := readJobSpec([]byte(c.body), strings.TrimSuffix(c.path, "/jobs"))
			if err != nil {
				t.Fatal(err)
			}
			job := func(spec string) string {
				return `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"direct"},"spec":` + spec + `}`
			}
			if code, answer := s.call("POST", base+"jobs", job(compact(t, spec))); code != 403 || !strings.Contains(fmt.Sprint(answer["message"]), c.text) {
				t.Errorf("%s as a Job: %d %v", c.name, code, answer["message"])
			}
			s.must("POST", base+"jobs", job(`{"action":"pull","pull":{},"repository":"r1"}`))
			if code, answer := s.call("PATCH", base+"jobs/direct", `{"spec":`+compact(t, spec)+`}`); code != 403 {
				t.Errorf("%s as another spec: %d %v", c.name, code, answer["message"])
			}
			s.must("DELETE", base+"jobs/direct", "")
		}
	}
	if jobs := s.must("GET", base+"jobs", "")["items"].([]any); len(jobs) != 5 {
		t.Errorf("%d jobs were made, want 5", len(jobs))
	}
}

// TestOrphansOfALivingOne: the clean-up after a Repository is refused while it is there, however
// the job is made.
func TestOrphansOfALivingOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("r")
	const job = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"},` +
		`"spec":{"action":"deleteResources","repository":"r"}}`
	if code, status := s.call("POST", base+"jobs", job); code != http.StatusConflict {
		t.Errorf("%d %v", code, status)
	}
	s.must("POST", base+"jobs", strings.Replace(job, "deleteResources", "fixFolderMetadata", 1))
	patch := `{"spec":{"action":"releaseResources"}}`
	if code, status := s.call("PATCH", base+"jobs/j", patch); code != http.StatusConflict {
		t.Errorf("changed to one: %d %v", code, status)
	}
	s.must("DELETE", base+"repositories/r?propagationPolicy=Orphan", "")
	s.must("PATCH", base+"jobs/j", patch)
}

// TestPendingGivesWay: a pull that was claimed at once is not set back.
func TestPendingGivesWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.repository("r1")
	c := call{server: s.Server, target: target{version: "v0alpha1", namespace: "default"}.of("repositories"),
		req: httptest.NewRequest("POST", "/", nil)}
	c.target.name = "r1"
	read, err := c.repository()
	if err != nil {
		t.Fatal(err)
	}
	s.must("PATCH", base+"repositories/r1/status", `{"status":{"sync":{"state":"working","started":5}}}`)
	c.markPending(t.Context(), read)
	if got := at(s.must("GET", base+"repositories/r1", ""), "status", "sync", "state"); got != "working" {
		t.Errorf("state = %v", got)
	}
}
