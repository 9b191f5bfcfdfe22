package webhook

import "strings"

// bitbucketBody is what is read of the payloads of Bitbucket Cloud. Source: its
// page "Event payloads". A push lists branches and commits, but no paths.
type bitbucketBody struct {
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`

	// repo:push
	Push struct {
		Changes []struct {
			New *bitbucketRef `json:"new"`
			Old *bitbucketRef `json:"old"`
		} `json:"changes"`
	} `json:"push"`

	// pullrequest:*
	PullRequest struct {
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

func parseBitbucket(name string, body []byte) (Event, error) {
	action, isPull := strings.CutPrefix(name, "pullrequest:")
	if !isPull && name != "repo:push" {
		return Event{Kind: Other}, nil
	}
	var b bitbucketBody
	if err := decode(body, &b); err != nil {
		return Event{}, err
	}
	if !isPull {
		e := Event{Kind: Push, Repository: b.Repository.FullName, Partial: true}
		for _, c := range b.Push.Changes {
			for _, ref := range []*bitbucketRef{c.New, c.Old} {
				if ref != nil && ref.Type == "branch" && ref.Name != "" {
					e.Branches = append(e.Branches, ref.Name)
					break
				}
			}
		}
		return e, nil
	}
	p := b.PullRequest
	e := Event{Kind: PullRequest, Repository: b.Repository.FullName, Branches: []string{p.Destination.Branch.Name}, Action: action,
		Number: p.ID, URL: p.Links.HTML.Href, HeadRef: p.Source.Branch.Name, Head: p.Source.Commit.Hash}
	switch action {
	case "created":
		e.Action = Opened
	case "updated":
		e.Action = Updated // of the head or of the text: the payload does not say which
	}
	return e, nil
}
