package apiserver

import (
	"fmt"
	"strings"
	"testing"
)

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

// TestFolderThatIsNotEmpty: it is not deleted, and the answer names what is in it,
// unless that is what somebody asks for.
func TestFolderThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", folders, folderJSON("f", ""))
	s.must("POST", folders, folderJSON("ff", ""))
	s.must("POST", folders, folderJSON("below", "f"))
	s.must("POST", dashboards, boardJSON("mine", "f"))
	s.must("POST", dashboards, boardJSON("elsewhere", "ff"))
	code, answer := s.call("DELETE", folders+"/f", "")
	if text := fmt.Sprint(answer["message"]); code != 400 || text != "Folder cannot be deleted: folder is not empty: dashboard/mine, folder/below in it" && text != "Folder cannot be deleted: folder is not empty: folder/below, dashboard/mine in it" {
		t.Errorf("%d %s", code, text)
	}
	for i := range 10 {
		s.must("POST", dashboards, boardJSON(fmt.Sprintf("d%d", i), "f"))
	}
	if _, answer = s.call("DELETE", folders+"/f", ""); !strings.HasSuffix(fmt.Sprint(answer["message"]), " and others in it") || strings.Count(fmt.Sprint(answer["message"]), "/") != mostNamed {
		t.Errorf("of many: %v", answer["message"])
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
