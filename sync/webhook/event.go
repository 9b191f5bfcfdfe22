package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Host is a kind of Git host, by the form of its webhooks.
type Host string

// The hosts that are understood. Forgejo speaks like Gitea.
const (
	GitHub    Host = "github"
	GitLab    Host = "gitlab"
	Bitbucket Host = "bitbucket"
	Gitea     Host = "gitea"
)

// Kind is what an event is about.
type Kind string

// The kinds that lead to different answers.
const (
	Ping        Kind = "ping"
	Push        Kind = "push"
	PullRequest Kind = "pull_request"
	Other       Kind = "other"
)

// Actions of a pull request that are worked on, in the words of GitHub. All
// others stand in Event.Action as the host calls them.
const (
	Opened   = "opened"
	Reopened = "reopened"
	Updated  = "synchronize" // its head has moved
)

// Event is the content of one delivery, in the same form for all hosts.
type Event struct {
	Host       Host
	Kind       Kind
	Name       string   // of the event, as the host calls it
	Repository string   // full name, such as ops/dashboards
	Branches   []string // that a push has moved; of a pull request the one it goes to
	// Deleted and Changes are the paths that the commits of a push delete and the number of paths
	// that they touch. Partial reports that the list is incomplete.
	Deleted []string
	Changes int
	Partial bool

	// Of a pull request:
	Action  string
	Number  int64
	URL     string // for people
	HeadRef string
	Head    string // commit
}

// errPayload reports that a body is not what the host's documentation promises.
var errPayload = errors.New("invalid payload")

// Parse reads the JSON of a delivery. name is the event in its headers.
// Unsupported events are of kind Other, whatever the body holds.
func Parse(host Host, name string, body []byte) (Event, error) {
	if kinds[host] == nil {
		return Event{}, fmt.Errorf("host %q is not known", host)
	}
	e := Event{Kind: kindOf(host, name), Host: host, Name: name}
	if e.Kind != Push && e.Kind != PullRequest {
		return e, nil
	}
	var d delivery
	err := json.Unmarshal(body, &d)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is { // an error quotes nothing of the body, so it may be logged
		return Event{}, fmt.Errorf("%w: %s is a %s", errPayload, wrong.Field, wrong.Value)
	}
	if err != nil {
		return Event{}, fmt.Errorf("%w: not JSON", errPayload)
	}
	if e.Repository = d.Repository.FullName; host == GitLab {
		e.Repository = d.Project.Path
	}
	if e.Kind == Push {
		d.push(&e)
	} else {
		d.pullRequest(&e)
	}
	switch {
	case e.Repository == "":
		return Event{}, fmt.Errorf("%w: no repository in it", errPayload)
	case e.Kind == PullRequest && (e.Number <= 0 || len(e.Branches) != 1 || e.Branches[0] == ""):
		return Event{}, fmt.Errorf("%w: no number or no target branch of the pull request in it", errPayload)
	}
	return e, nil
}

// requestOrigin returns the host, the event and the delivery ID in the headers of a
// request. Gitea and Forgejo send the headers of GitHub as well.
func requestOrigin(h http.Header) (host Host, event, delivery string) {
	for _, by := range []struct {
		host     Host
		event    string
		delivery string
	}{
		{Gitea, "X-Forgejo-Event", "X-Forgejo-Delivery"},
		{Gitea, "X-Gitea-Event", "X-Gitea-Delivery"},
		{GitHub, "X-Github-Event", "X-Github-Delivery"},
		{GitLab, "X-Gitlab-Event", "X-Gitlab-Event-Uuid"},
		{Bitbucket, "X-Event-Key", "X-Request-Uuid"},
	} {
		if event := h.Get(by.event); event != "" {
			return by.host, event, h.Get(by.delivery)
		}
	}
	return "", "", ""
}
