package commit

import (
	"fmt"
	"testing"

	"limpet/sync/api"
)

// TestPages holds the pages that people are led to.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, url, ref string
		want           map[string]string
	}{
		{"github", "https://github.com/o/r", "edit/a b", map[string]string{"repositoryURL": "https://github.com/o/r",
			"sourceURL":         "https://github.com/o/r/tree/edit/a%20b",
			"compareURL":        "https://github.com/o/r/compare/main...edit/a%20b",
			"newPullRequestURL": "https://github.com/o/r/compare/main...edit/a%20b?quick_pull=1&labels=grafana"}},
		{"gitlab", "https://user:secret@gitlab.com/o/r.git", "x", map[string]string{"repositoryURL": "https://gitlab.com/o/r",
			"sourceURL":         "https://gitlab.com/o/r/-/tree/x",
			"compareURL":        "https://gitlab.com/o/r/-/compare/main...x",
			"newPullRequestURL": "https://gitlab.com/o/r/-/merge_requests/new?merge_request%5Bsource_branch%5D=x&merge_request%5Btarget_branch%5D=main"}},
		{"bitbucket", "https://bitbucket.org/o/r/", "main", map[string]string{"repositoryURL": "https://bitbucket.org/o/r",
			"sourceURL": "https://bitbucket.org/o/r/src/main"}},
		{"git", "https://git.example.com/o/r.git", "x", map[string]string{"repositoryURL": "https://git.example.com/o/r"}},
		{"git", "git@example.com:o/r.git", "x", nil},
	} {
		block := &api.GitBlock{URL: c.url, Branch: "main"}
		spec := api.RepositorySpec{Type: c.kind, GitHub: block, GitLab: block, Bitbucket: block, Git: block}
		got := pages(api.Repository{Spec: spec}, "main", c.ref)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s %s:\n got %v\nwant %v", c.kind, c.url, got, c.want)
		}
	}
}
