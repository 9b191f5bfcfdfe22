package webhook

import (
	"crypto/rand"
	"strings"
	"time"
)

// maxListedGitHub is how many commits GitHub puts into the payload of a push at
// most. Source: its documentation of the event push, "The maximum is 2048".
const maxListedGitHub = 2048

// delivery is what is read of the payloads of all hosts. Source: the pages of GitHub and
// Gitea about webhook payloads, GitLab's "Webhook events", Bitbucket's "Event payloads".
type delivery struct {
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Project struct { // GitLab's
		Path string `json:"path_with_namespace"`
	} `json:"project"`

	// A push of GitHub, Gitea and GitLab. The last two count all commits and list some.
	Ref     string `json:"ref"`
	Created bool   `json:"created"`
	Forced  bool   `json:"forced"`
	Commits []struct {
		Added    []string `json:"added"`
		Removed  []string `json:"removed"`
		Modified []string `json:"modified"`
	} `json:"commits"`
	TotalGitea  int `json:"total_commits"`
	TotalGitLab int `json:"total_commits_count"`

	// A push of Bitbucket, which lists branches and commits, but no paths.
	Push struct {
		Changes []struct {
			New bitbucketRef `json:"new"`
			Old bitbucketRef `json:"old"`
		} `json:"changes"`
	} `json:"push"`

	// A pull request of GitHub and Gitea, of GitLab, of Bitbucket.
	Action      string `json:"action"`
	Number      int64  `json:"number"`
	PullRequest struct {
		HTMLURL string     `json:"html_url"`
		Base    gitHubSide `json:"base"`
		Head    gitHubSide `json:"head"`
	} `json:"pull_request"`
	MergeRequest struct {
		IID        int64  `json:"iid"`
		URL        string `json:"url"`
		Action     string `json:"action"`
		OldRev     string `json:"oldrev"` // set when an update has moved the head
		Source     string `json:"source_branch"`
		Target     string `json:"target_branch"`
		LastCommit struct {
			ID string `json:"id"`
		} `json:"last_commit"`
	} `json:"object_attributes"`
	Bitbucket struct {
		ID    int64 `json:"id"`
		Links struct {
			HTML struct {
				Href string `json:"href"`
			} `json:"html"`
		} `json:"links"`
		Source      bitbucketSide `json:"source"`
		Destination bitbucketSide `json:"destination"`
	} `json:"pullrequest"`
}

type gitHubSide struct {
	Ref string `json:"ref"`
	SHA string `json:"sha"`
}

type bitbucketRef struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type bitbucketSide struct {
	Branch struct {
		Name string `json:"name"`
	} `json:"branch"`
	Commit struct {
		Hash string `json:"hash"`
	} `json:"commit"`
}

// kinds are the events that are understood, by their names.
var kinds = map[Host]map[string]Kind{
	GitHub:    {"ping": Ping, "push": Push, "pull_request": PullRequest},
	Gitea:     {"ping": Ping, "push": Push, "pull_request": PullRequest},
	GitLab:    {"Push Hook": Push, "Tag Push Hook": Push, "Merge Request Hook": PullRequest},
	Bitbucket: {"repo:push": Push}, // and bitbucketPull with any action
}

const bitbucketPull = "pullrequest:"

func kindOf(host Host, name string) Kind {
	if kind, ok := kinds[host][name]; ok {
		return kind
	}
	if host == Bitbucket && strings.HasPrefix(name, bitbucketPull) {
		return PullRequest
	}
	return Other
}

func (d *delivery) push(e *Event) {
	if e.Host == Bitbucket {
		e.Partial = true
		for _, c := range d.Push.Changes {
			for _, ref := range []bitbucketRef{c.New, c.Old} {
				if ref.Type == "branch" && ref.Name != "" {
					e.Branches = append(e.Branches, ref.Name)
					break
				}
			}
		}
		return
	}
	if branch, ok := strings.CutPrefix(d.Ref, "refs/heads/"); ok && branch != "" {
		e.Branches = []string{branch}
	}
	// The commits of a forced push and of a new branch do not begin at what was pulled last.
	e.Partial = d.Forced || d.Created || len(d.Commits) >= maxListedGitHub || max(d.TotalGitea, d.TotalGitLab) > len(d.Commits)
	for _, c := range d.Commits {
		e.Deleted = append(e.Deleted, c.Removed...)
		e.Changes += len(c.Added) + len(c.Removed) + len(c.Modified)
	}
}

// pullRequest reads the event of a pull request. Bitbucket's payload does not say whether
// an update is of the head or of the text.
func (d *delivery) pullRequest(e *Event) {
	switch e.Host {
	case GitLab:
		m := d.MergeRequest
		e.Action, e.Number, e.URL, e.Branches, e.HeadRef, e.Head = m.Action, m.IID, m.URL, []string{m.Target}, m.Source, m.LastCommit.ID
		if m.Action == "update" && m.OldRev == "" {
			return
		}
	case Bitbucket:
		b := d.Bitbucket
		e.Action = strings.TrimPrefix(e.Name, bitbucketPull)
		e.Number, e.URL, e.Branches = b.ID, b.Links.HTML.Href, []string{b.Destination.Branch.Name}
		e.HeadRef, e.Head = b.Source.Branch.Name, b.Source.Commit.Hash
	default:
		p := d.PullRequest
		e.Action, e.Number, e.URL, e.Branches, e.HeadRef, e.Head = d.Action, d.Number, p.HTMLURL, []string{p.Base.Ref}, p.Head.Ref, p.Head.SHA
	}
	if ours, ok := actions[e.Host][e.Action]; ok {
		e.Action = ours
	}
}

// actions are the words of hosts for the actions that are worked on.
var actions = map[Host]map[string]string{
	Gitea:     {"synchronized": Updated},
	GitLab:    {"open": Opened, "reopen": Reopened, "update": Updated},
	Bitbucket: {"created": Opened, "updated": Updated},
}

// signedWindow is how far the time that a signature covers may be from now.
// Source: the Standard Webhooks specification, which GitLab's signed form follows.
const signedWindow = 5 * time.Minute

// standardPrefix marks the secret of GitLab's signed form: base64 of the key
// follows. Source: GitLab's webhook API, signing_token.
const standardPrefix = "whsec_"

// digest names a delivery for the memory of those that were served.
type digest [16]byte

// noSecret stands in for the secret of a Repository that is not there or has none,
// so that its requests take the same way as forged ones.
var noSecret = []byte(rand.Text() + rand.Text())
