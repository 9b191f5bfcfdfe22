package webhook

// gitLabBody is what is read of GitLab's payloads. Source: its page "Webhook
// events". It lists the last 20 commits of a push and counts them all.
type gitLabBody struct {
	Project struct {
		PathWithNamespace string `json:"path_with_namespace"`
	} `json:"project"`

	// push
	Ref     string        `json:"ref"`
	Commits []commitPaths `json:"commits"`
	Total   int           `json:"total_commits_count"`

	// merge request
	Attributes struct {
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
}

func parseGitLab(name string, body []byte) (Event, error) {
	switch name {
	case "Push Hook", "Tag Push Hook", "Merge Request Hook":
	default:
		return Event{Kind: Other}, nil
	}
	var b gitLabBody
	if err := decode(body, &b); err != nil {
		return Event{}, err
	}
	if name != "Merge Request Hook" {
		e := Event{Kind: Push, Repository: b.Project.PathWithNamespace, Branches: branchOf(b.Ref), Partial: b.Total > len(b.Commits)}
		e.add(b.Commits)
		return e, nil
	}
	a := b.Attributes
	e := Event{Kind: PullRequest, Repository: b.Project.PathWithNamespace, Branches: []string{a.Target}, Action: a.Action,
		Number: a.IID, URL: a.URL, HeadRef: a.Source, Head: a.LastCommit.ID}
	switch {
	case a.Action == "open":
		e.Action = Opened
	case a.Action == "reopen":
		e.Action = Reopened
	case a.Action == "update" && a.OldRev != "":
		e.Action = Updated
	}
	return e, nil
}
