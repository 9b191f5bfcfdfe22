package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// causes answers field and text of each cause of a Status.
func causes(status map[string]any) string {
	list, _ := at(status, "details", "causes").([]any)
	var out []string
	for _, c := range list {
		cause := c.(map[string]any)
		out = append(out, fmt.Sprintf("%v: %v", cause["field"], cause["message"]))
	}
	return strings.Join(out, "\n")
}

func TestAdmissionAnswersCauses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	code, status := s.call("POST", base+"repositories",
		`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r"},
		"spec":{"type":"git","git":{"url":"https://user:hunter2@host/a","branch":"a b"},"sync":{"enabled":true}}}`)
	if code != http.StatusUnprocessableEntity || status["kind"] != "Status" || status["reason"] != "Invalid" ||
		at(status, "details", "kind") != "Repository" {
		t.Errorf("%d %v", code, status)
	}
	got := causes(status)
	for _, want := range []string{"spec.git.url: ", "spec.git.branch: ", "spec.sync.target: Required value: "} {
		if !strings.Contains(got, want) {
			t.Errorf("causes lack %q:\n%s", want, got)
		}
	}
	if strings.Contains(fmt.Sprint(status), "hunter2") {
		t.Errorf("the answer repeats the password: %v", status)
	}
	if code, _ := s.call("GET", base+"repositories/r", ""); code != http.StatusNotFound {
		t.Errorf("a refused object is stored: %d", code)
	}
}

// TestOneInstanceOfManyAtOnce: creates, patches and applies that are decided side by side; one of
// them wins.
func TestOneInstanceOfManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":%[1]q},
		"spec":{"type":"git","git":{"url":"https://host/%[1]s"},"sync":{"enabled":true,"target":%[2]q}}}`
	for round := range 20 {
		space := fmt.Sprintf("%sround-%d/repositories", strings.TrimSuffix(base, "default/"), round)
		requests := []func() *httptest.ResponseRecorder{}
		for n := range 4 {
			made, patched, applied := fmt.Sprint("made", n), fmt.Sprint("patched", n), fmt.Sprint("applied", n)
			s.must("POST", space, fmt.Sprintf(body, patched, "folder"))
			requests = append(requests,
				func() *httptest.ResponseRecorder {
					return s.send("POST", space, fmt.Sprintf(body, made, "instance"), nil)
				},
				func() *httptest.ResponseRecorder {
					return s.send("PATCH", space+"/"+patched, `{"spec":{"sync":{"target":"instance"}}}`, nil)
				},
				func() *httptest.ResponseRecorder {
					return s.send("PATCH", space+"/"+applied+"?fieldManager=m", "application/apply-patch+yaml "+fmt.Sprintf(body, applied, "instance"),
						nil)
				})
		}
		var won atomic.Int32
		var all sync.WaitGroup
		for _, ask := range requests {
			all.Go(func() {
				if ask().Code < 300 {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d repositories have the target instance", round, won.Load())
		}
	}
}

func TestAuthorsStay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", base+"jobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j","annotations":{"provisioning.grafana.app/author":"ann"}},
		"spec":{"action":"pull","repository":"r","pull":{"incremental":false}}}`)
	for _, patch := range []string{
		`{"metadata":{"annotations":{"provisioning.grafana.app/author":"bob"}}}`,
		`{"metadata":{"annotations":{"provisioning.grafana.app/author":null}}}`,
		`{"metadata":{"annotations":{"provisioning.grafana.app/authorOrigin":"Grafana"}}}`,
	} {
		if code, status := s.call("PATCH", base+"jobs/j", patch); code != http.StatusBadRequest {
			t.Errorf("%s: %d %v", patch, code, status["message"])
		}
	}
	s.must("PATCH", base+"jobs/j", `{"metadata":{"annotations":{"limpet/attempt":"2"}},"status":{"state":"working"}}`)
}

// TestUnknownFields: fieldValidation is about members of the spec, too; a stored one hinders
// nothing.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r"},
		"spec":{"type":"git","titel":"x","git":{"url":"https://host/a"},"sync":{"enabled":true,"target":"folder"}}}`
	if code, status := s.call("POST", base+"repositories?fieldValidation=Strict", body); code != http.StatusBadRequest {
		t.Errorf("strict: %d %v", code, status)
	}
	s.must("POST", base+"repositories", body)
	s.must("PATCH", base+"repositories/r?fieldValidation=Strict", `{"spec":{"title":"y"}}`)
	if code, status := s.call("PATCH", base+"repositories/r?fieldValidation=Strict", `{"spec":{"tilte":"y"}}`); code != http.StatusBadRequest {
		t.Errorf("strict patch: %d %v", code, status)
	}
}

// TestDeletionIsNotChecked: an object that became invalid can still go.
func TestDeletionIsNotChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", base+"repositories",
		`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r","finalizers":["cleanup"]},
		"spec":{"type":"git","git":{"url":"https://host/a"}},"secure":{"token":{"create":"`+canaryOne+`"}}}`)
	s.must("DELETE", base+"repositories/r", "")
	if names := s.sealedNames(); len(names) != 1 {
		t.Errorf("sealed values %q, want one while the finalizer stands", names)
	}
	s.must("PATCH", base+"repositories/r", `{"spec":{"type":"local"},"metadata":{"finalizers":null}}`)
	if code, _ := s.call("GET", base+"repositories/r", ""); code != http.StatusNotFound {
		t.Errorf("the object is still there: %d", code)
	}
	if names := s.sealedNames(); len(names) != 0 {
		t.Errorf("sealed values %q outlive their object", names)
	}
}

// Paths of what lies in folders.
const (
	folders    = "/apis/folder.grafana.app/v1/namespaces/default/folders"
	dashboards = "/apis/dashboard.grafana.app/v1/namespaces/default/dashboards"
)

// inFolder is an object of the two kinds; "" is the top.
func inFolderJSON(group, kind, name, folder string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"%s","metadata":{"name":"%s","annotations":{"grafana.app/folder":"%s"}},"spec":{"title":"%s"}}`, group, kind, name, folder, name)
}

func folderJSON(name, in string) string {
	return inFolderJSON("folder.grafana.app", "Folder", name, in)
}

func boardJSON(name, in string) string {
	return inFolderJSON("dashboard.grafana.app", "Dashboard", name, in)
}

// TestFolderThatIsNotEmpty: it is not deleted, and the answer names what is in it, unless it is
// forced.
func TestFolderThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folders, folderJSON("f", ""))
	s.must("POST", folders, folderJSON("ff", ""))
	s.must("POST", folders, folderJSON("below", "f"))
	s.must("POST", dashboards, boardJSON("mine", "f"))
	s.must("POST", dashboards, boardJSON("elsewhere", "ff"))
	code, answer := s.call("DELETE", folders+"/f", "")
	if text := fmt.Sprint(answer["message"]); code != 400 ||
		text != "Folder cannot be deleted: folder is not empty: dashboard/mine, folder/below in it" &&
			text != "Folder cannot be deleted: folder is not empty: folder/below, dashboard/mine in it" {
		t.Errorf("%d %s", code, text)
	}
	if code, answer = s.call("DELETE", folders+"/f?dryRun=All", ""); code != 400 {
		t.Errorf("a rehearsal: %d %v", code, answer)
	}
	if code, answer = s.call("DELETE", folders+"/below", ""); code != 200 {
		t.Errorf("an empty one: %d %v", code, answer)
	}
	if code, answer = s.call("DELETE", folders+"/f", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`); code != 200 {
		t.Errorf("by force: %d %v", code, answer)
	}
}

// TestFinalizersOfALivingOne: a Repository has Grafana's finalizers from the first write of anyone,
// and cannot lose all.
func TestFinalizersOfALivingOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	s.must("POST", base+"repositories", repositoryJSON("{}"))
	s.options.Finalizers = true
	stored := s.must("PATCH", path, `{"metadata":{"labels":{"site":"east"}}}`) // stored before an agent was there
	if got := fmt.Sprint(at(stored, "metadata", "finalizers")); got != "[remove-orphan-resources remove-pending-jobs cleanup]" {
		t.Errorf("finalizers %s", got)
	}
	for _, patch := range []string{`{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":[]}}`} {
		code, answer := s.call("PATCH", path, patch)
		if got := fmt.Sprint(code, " ", causes(answer)); !strings.HasPrefix(got, "422 ") || !strings.Contains(got, "metadata.finalizers") {
			t.Errorf("%s: %s", patch, got)
		}
	}
	s.must("PATCH", path, `{"metadata":{"finalizers":["release-orphan-resources"]}}`)
	s.must("DELETE", path, "")
	s.must("PATCH", path, `{"metadata":{"finalizers":null}}`)
	if code, _ := s.call("GET", path, ""); code != 404 {
		t.Errorf("a deleted one without finalizers answers %d", code)
	}
}

// TestConnectionInUse: a Connection of living Repositories is deleted by force alone.
func TestConnectionInUse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "connections/lab"
	s.must("POST", base+"connections", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Connection","metadata":{"name":"lab"},
		"spec":{"title":"Lab","type":"gitlab"}}`)
	use := `{"spec":{"connection":{"name":"lab"}}}`
	for _, name := range []string{"a", "b", "going"} {
		s.repository(name)
		s.must("PATCH", base+"repositories/"+name, use)
	}
	s.must("PATCH", base+"repositories/going", `{"metadata":{"finalizers":["cleanup"]}}`)
	s.must("DELETE", base+"repositories/going", "")
	code, answer := s.call("DELETE", path, "")
	if got := fmt.Sprint(code, " ", causes(answer)); got != "422 metadata.name: Forbidden: cannot delete connection: "+
		"referenced by 2 repository(s): [a b]" {
		t.Error(got)
	}
	if code, _ := s.call("DELETE", path, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`); code != 200 {
		t.Errorf("by force: %d", code)
	}
	code, answer = s.call("POST", base+"repositories", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",
		"metadata":{"name":"late","labels":{"cloud.grafana.com/pending-delete":"true"}},"spec":{"type":"git","git":{"url":"https://host/late"}}}`)
	if got := fmt.Sprint(code, " ", causes(answer)); !strings.HasPrefix(got, "422 metadata.labels[cloud.grafana.com/pending-delete]: Forbidden") {
		t.Error(got)
	}
}
