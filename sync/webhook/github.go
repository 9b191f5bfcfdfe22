package webhook

// maxListedGitHub is how many commits GitHub puts into the payload of a push at
// most. Source: its documentation of the event push, "The maximum is 2048".
const maxListedGitHub = 2048

// gitHubBody is what is read of GitHub's payloads; Gitea and Forgejo send the
// same form. Source: the webhook payload pages of both.
type gitHubBody struct {
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`

	// push
	Ref          string        `json:"ref"`
	Created      bool          `json:"created"`
	Forced       bool          `json:"forced"`
	Commits      []commitPaths `json:"commits"`
	TotalCommits int           `json:"total_commits"` // Gitea's

	// pull_request
	Action      string `json:"action"`
	Number      int64  `json:"number"`
	PullRequest struct {
		HTMLURL string `json:"html_url"`
		Base    struct {
			Ref string `json:"ref"`
		} `json:"base"`
		Head struct {
			Ref string `json:"ref"`
			SHA string `json:"sha"`
		} `json:"head"`
	} `json:"pull_request"`
}

func parseGitHub(name string, body []byte) (Event, error) {
	switch name {
	case "ping":
		return Event{Kind: Ping}, nil
	case "push", "pull_request":
	default:
		return Event{Kind: Other}, nil
	}
	var b gitHubBody
	if err := decode(body, &b); err != nil {
		return Event{}, err
	}
	return b.event(name), nil
}

// parseGitea reads what Gitea and Forgejo send. Their test delivery is a push.
func parseGitea(name string, body []byte) (Event, error) {
	e, err := parseGitHub(name, body)
	if e.Action == "synchronized" {
		e.Action = Updated
	}
	return e, err
}

func (b *gitHubBody) event(name string) Event {
	if name == "pull_request" {
		return Event{Kind: PullRequest, Repository: b.Repository.FullName, Branches: []string{b.PullRequest.Base.Ref}, Action: b.Action,
			Number: b.Number, URL: b.PullRequest.HTMLURL, HeadRef: b.PullRequest.Head.Ref, Head: b.PullRequest.Head.SHA}
	}
	// The commits of a forced push and of a new branch do not begin at what was
	// pulled last.
	partial := b.Forced || b.Created || len(b.Commits) >= maxListedGitHub || b.TotalCommits > len(b.Commits)
	e := Event{Kind: Push, Repository: b.Repository.FullName, Branches: branchOf(b.Ref), Partial: partial}
	e.add(b.Commits)
	return e
}
