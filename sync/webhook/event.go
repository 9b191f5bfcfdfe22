package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sync/semaphore"
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

const (
	maxBody   = 25 << 20 // bytes of a body. Source: GitHub caps its payloads there, and Grafana's endpoint does
	smallBody = 64 << 10 // that each request may hold without asking; most deliveries are smaller
	// bodyRoom bounds what all larger bodies hold together, in bytes: one of the largest and some
	// others. Strangers may fill it, and then only larger deliveries have to come again.
	bodyRoom = 32 << 20
)

// Why a body cannot be had.
var (
	errTooLarge  = errors.New("the body is larger than 25 MiB")
	errNoRoom    = errors.New("too many large requests at once")
	errTruncated = errors.New("the body ended early")
	errSlow      = errors.New("the body took too long")
)

// payloadOf returns the JSON of a body: itself, or the member payload of a form, which is
// how GitHub sends it when nothing else is asked for.
func payloadOf(body []byte, contentType string) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != "application/x-www-form-urlencoded" {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !form.Has("payload") {
		return nil, errPayload
	}
	return []byte(form.Get("payload")), nil
}

// readBody reads a body of at most maxBody bytes. A large one acquires its size from limit;
// release, which is never nil, returns it.
func readBody(req *http.Request, limit *semaphore.Weighted) (body []byte, release func(), err error) {
	release = func() {}
	if req.ContentLength > maxBody {
		return nil, release, errTooLarge
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(req.Body, smallBody))
	if err == nil && b.Len() == smallBody {
		size := req.ContentLength
		if size < 0 {
			size = maxBody
		}
		if !limit.TryAcquire(size) {
			return nil, release, errNoRoom
		}
		release = func() { limit.Release(size) }
		b.Grow(int(size) - smallBody + bytes.MinRead)
		_, err = b.ReadFrom(io.LimitReader(req.Body, maxBody-smallBody+1))
	}
	switch {
	case b.Len() > maxBody:
		return nil, release, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, release, errSlow
	case err != nil:
		return nil, release, errTruncated
	}
	return b.Bytes(), release, nil
}
