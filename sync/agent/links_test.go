package agent

import (
	"strings"
	"testing"
)

// TestLinks: of the addresses in the status of a job those that a browser follows
// are shown, the most telling first, without what is secret in them.
func TestLinks(t *testing.T) {
	t.Parallel()
	got := Links(map[string]string{"repositoryURL": "https://git.lab/a", "newPullRequestURL": "https://me:canary-secret@git.lab/a/new", "compareURL": "javascript:alert(1)", "sourceURL": "", "otherURL": "https://git.lab/b"})
	if len(got) != 2 || got[0].Name != "new pull request" || got[1].Name != "repository" || got[1].URL != "https://git.lab/a" {
		t.Fatalf("%+v", got)
	}
	if strings.Contains(got[0].URL, "canary") || !strings.HasSuffix(got[0].URL, "git.lab/a/new") {
		t.Errorf("%s", got[0].URL)
	}
}
