package webhook

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The payloads in testdata are shaped after the documentation of the hosts: their
// members and nesting are those of GitHub's "Webhook events and payloads", GitLab's
// "Webhook events", Bitbucket Cloud's "Event payloads" and Gitea's "Webhooks";
// names, times and hashes are ours.

func payload(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParse(t *testing.T) {
	t.Parallel()
	const full = "ops/dashboards"
	tests := []struct {
		file string
		host Host
		name string
		// change is replaced in the file: old, new
		change [2]string
		want   Event
	}{
		{file: "github-ping", host: GitHub, name: "ping", want: Event{Kind: Ping}},
		{file: "github-push", host: GitHub, name: "push", want: Event{Kind: Push, Repository: full, Branches: []string{"main"},
			Deleted: []string{"grafana/old/.keep"}, Changes: 4}},
		{file: "github-push", host: GitHub, name: "push", change: [2]string{`"forced": false`, `"forced": true`},
			want: Event{Kind: Push, Repository: full, Branches: []string{"main"}, Deleted: []string{"grafana/old/.keep"}, Changes: 4,
				Partial: true}},
		{file: "github-push", host: GitHub, name: "push", change: [2]string{`"refs/heads/main"`, `"refs/tags/v1"`},
			want: Event{Kind: Push, Repository: full, Deleted: []string{"grafana/old/.keep"}, Changes: 4}},
		{file: "github-push", host: GitHub, name: "push", change: [2]string{`refs/heads/main`, `refs/heads/release/1.x`},
			want: Event{Kind: Push, Repository: full, Branches: []string{"release/1.x"}, Deleted: []string{"grafana/old/.keep"}, Changes: 4}},
		{file: "github-pull-request", host: GitHub, name: "pull_request",
			want: Event{Kind: PullRequest, Repository: full, Branches: []string{"main"}, Action: Opened, Number: 12,
				URL: "https://github.com/ops/dashboards/pull/12", HeadRef: "new-hall", Head: "ab5446a53df9e5f8bdeed52250f51fad08e822bc"}},
		{file: "github-push", host: GitHub, name: "issue_comment", want: Event{Kind: Other}},

		{file: "gitlab-push", host: GitLab, name: "Push Hook", want: Event{Kind: Push, Repository: "plant/ops/dashboards",
			Branches: []string{"main"}, Deleted: []string{"grafana/old.json"}, Changes: 3}},
		{file: "gitlab-push", host: GitLab, name: "Push Hook", change: [2]string{`"total_commits_count": 2`, `"total_commits_count": 21`},
			want: Event{Kind: Push, Repository: "plant/ops/dashboards", Branches: []string{"main"}, Deleted: []string{"grafana/old.json"},
				Changes: 3, Partial: true}},
		{file: "gitlab-merge-request", host: GitLab, name: "Merge Request Hook",
			want: Event{Kind: PullRequest, Repository: "plant/ops/dashboards", Branches: []string{"main"}, Action: Updated, Number: 7,
				URL: "https://gitlab.example.com/plant/ops/dashboards/-/merge_requests/7", HeadRef: "new-hall",
				Head: "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}},
		{file: "gitlab-merge-request", host: GitLab, name: "Merge Request Hook",
			change: [2]string{`"oldrev": "95790bf891e76fee5e1747ab589903a6a1f80f22",`, ""},
			want: Event{Kind: PullRequest, Repository: "plant/ops/dashboards", Branches: []string{"main"}, Action: "update", Number: 7,
				URL: "https://gitlab.example.com/plant/ops/dashboards/-/merge_requests/7", HeadRef: "new-hall",
				Head: "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}},
		{file: "gitlab-push", host: GitLab, name: "Pipeline Hook", want: Event{Kind: Other}},

		{file: "bitbucket-push", host: Bitbucket, name: "repo:push",
			want: Event{Kind: Push, Repository: full, Branches: []string{"main", "done"}, Partial: true}},
		{file: "bitbucket-pull-request", host: Bitbucket, name: "pullrequest:created", want: Event{Kind: PullRequest, Repository: full,
			Branches: []string{"main"}, Action: Opened, Number: 3,
			URL: "https://bitbucket.org/ops/dashboards/pull-requests/3", HeadRef: "new-hall", Head: "d3022fc0ca3d"}},
		{file: "bitbucket-pull-request", host: Bitbucket, name: "pullrequest:fulfilled", want: Event{Kind: PullRequest, Repository: full,
			Branches: []string{"main"}, Action: "fulfilled", Number: 3,
			URL: "https://bitbucket.org/ops/dashboards/pull-requests/3", HeadRef: "new-hall", Head: "d3022fc0ca3d"}},

		{file: "gitea-push", host: Gitea, name: "push", want: Event{Kind: Push, Repository: full, Branches: []string{"main"},
			Deleted: []string{"grafana/old.json"}, Changes: 2}},
		{file: "gitea-push", host: Gitea, name: "push", change: [2]string{`"total_commits": 1`, `"total_commits": 9`},
			want: Event{Kind: Push, Repository: full, Branches: []string{"main"}, Deleted: []string{"grafana/old.json"}, Changes: 2, Partial: true}},
		{file: "gitea-pull-request", host: Gitea, name: "pull_request",
			want: Event{Kind: PullRequest, Repository: full, Branches: []string{"main"}, Action: Updated, Number: 5,
				URL: "https://git.example.com/ops/dashboards/pulls/5", HeadRef: "new-hall", Head: "bffeb74224043ba2feb48d137756c8a9331c449a"}},
	}
	for _, tt := range tests {
		body := payload(t, tt.file)
		if tt.change[0] != "" {
			if !bytes.Contains(body, []byte(tt.change[0])) {
				t.Fatalf("%s has no %s", tt.file, tt.change[0])
			}
			body = bytes.Replace(body, []byte(tt.change[0]), []byte(tt.change[1]), 1)
		}
		tt.want.Host, tt.want.Name = tt.host, tt.name
		got, err := Parse(tt.host, tt.name, body)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s as %s %q: %v\n got %+v\nwant %+v", tt.file, tt.host, tt.name, err, got, tt.want)
		}
	}
}

func TestParseInvalid(t *testing.T) {
	t.Parallel()
	names := map[Host][]string{GitHub: {"push", "pull_request"}, Gitea: {"push", "pull_request"}, GitLab: {"Push Hook", "Merge Request Hook"},
		Bitbucket: {"repo:push", "pullrequest:created"}}
	for host, events := range names {
		for _, name := range events {
			for _, body := range []string{"", "{", "null", "[]", `"x"`, "{}", `{"repository":7,"project":7}`,
				`{"repository":{"full_name":["secret-4711"]},"project":{"path_with_namespace":{}}}`} {
				e, err := Parse(host, name, []byte(body))
				if !errors.Is(err, errPayload) || strings.Contains(err.Error(), "4711") {
					t.Errorf("%s %s %q: %+v, %v", host, name, body, e, err)
				}
			}
		}
	}
	if _, err := Parse("sourceforge", "push", []byte("{}")); err == nil {
		t.Error("an unknown host is understood")
	}
}

// fuzzParser holds what every event keeps to, whatever the body.
func fuzzParser(f *testing.F, host Host, names []string, files ...string) {
	for _, file := range files {
		for i := range names {
			f.Add(byte(i), payload(f, file))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		e, err := Parse(host, names[int(which)%len(names)], body)
		if err != nil {
			if !errors.Is(err, errPayload) {
				t.Errorf("%v", err)
			}
			return
		}
		switch {
		case e.Host != host || !slices.Contains([]Kind{Ping, Push, PullRequest, Other}, e.Kind):
			t.Errorf("%+v", e)
		case (e.Kind == Push || e.Kind == PullRequest) && e.Repository == "":
			t.Errorf("no repository: %+v", e)
		case e.Kind == PullRequest && (len(e.Branches) != 1 || e.Branches[0] == "" || e.Number <= 0):
			t.Errorf("half a pull request: %+v", e)
		case e.Changes < len(e.Deleted) || e.Changes > len(body) || slices.Contains(e.Branches, ""):
			t.Errorf("%+v", e)
		}
		r := &Repository{URL: "https://git.example.com/ops/dashboards.git", Branch: "main", Sync: true}
		if v := Decide(r, e, Listed(100)); (v.Code == 202) != (v.Job != nil) || len(v.Message) > maxText+200 {
			t.Errorf("%+v", v)
		}
	})
}

func FuzzGitHub(f *testing.F) {
	fuzzParser(f, GitHub, []string{"push", "pull_request", "ping", "x"}, "github-push", "github-pull-request", "github-ping")
}

func FuzzGitea(f *testing.F) {
	fuzzParser(f, Gitea, []string{"push", "pull_request", "x"}, "gitea-push", "gitea-pull-request")
}

func FuzzGitLab(f *testing.F) {
	fuzzParser(f, GitLab, []string{"Push Hook", "Merge Request Hook", "Tag Push Hook", "x"}, "gitlab-push", "gitlab-merge-request")
}

func FuzzBitbucket(f *testing.F) {
	fuzzParser(f, Bitbucket, []string{"repo:push", "pullrequest:created", "pullrequest:", "x"}, "bitbucket-push", "bitbucket-pull-request")
}
