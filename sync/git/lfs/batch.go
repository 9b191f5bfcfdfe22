package lfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"limpet/sync/git/giterr"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// The batch API of Git LFS. Source: git-lfs docs/api/batch.md, server-discovery.md.

const (
	mediaType = "application/vnd.git-lfs+json"
	batchSize = 100 // objects of one request, as git-lfs asks for
	// batchAnswer bounds an answer: a signed URL of 8 KiB and headers for each object.
	batchAnswer = 4 << 20
	// margin is how long a place has to be good for, to be used at all.
	margin = 5 * time.Second
)

// endpoint is where the batch API of a remote is, and what it is asked with.
type endpoint struct {
	url    *url.URL
	header map[string]string // of git-lfs-authenticate
	until  time.Time         // zero = it has no end
	of     string            // auth.Address.Key of the server that it belongs to
}

// action describes where something is, and how it is asked for.
type action struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header"`
	ExpiresIn int64             `json:"expires_in"`
	ExpiresAt string            `json:"expires_at"`
}

// until is when the action ends; zero for never.
func (a action) until(now time.Time) time.Time {
	if a.ExpiresIn != 0 {
		const most = 1<<31 - 1 // of the API
		return now.Add(time.Duration(min(max(a.ExpiresIn, -most), most)) * time.Second)
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(a.ExpiresAt))
	if err != nil || at.Year() <= 1 {
		return time.Time{}
	}
	return at
}

// place is where one content is.
type place struct {
	url    *url.URL
	header map[string]string
	own    bool // it is on the host of the repository and wants its credentials
	until  time.Time
	server int // of the Source, which has announced it
}

func expired(until time.Time) bool { return !until.IsZero() && time.Until(until) < margin }

// places has a place or an error for each object that was asked for.
type places struct {
	at   map[string]place
	errs map[string]error
}

type batchObject struct {
	OID           string `json:"oid"`
	Size          int64  `json:"size"`
	Authenticated bool   `json:"authenticated,omitempty"`
	Actions       struct {
		Download *action `json:"download"`
	} `json:"actions,omitzero"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// places asks where the contents are. Every error is an *giterr.Error.
func (l *Pull) places(ctx context.Context, want []Pointer) (places, error) {
	var out places
	served, err := l.source.Ask(ctx, opFetch, func(c *transport.Call, own bool) (err error) {
		out, err = l.ask(c, own, want)
		return err
	})
	for oid, place := range out.at {
		place.server = served
		out.at[oid] = place
	}
	return out, err
}

func (l *Pull) ask(c *transport.Call, home bool, want []Pointer) (places, error) {
	out := places{map[string]place{}, map[string]error{}}
	server, err := l.server(c, home)
	if err != nil {
		return out, err
	}
	c.RedactValues(server.header)
	type ref struct {
		Name string `json:"name"`
	}
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	question := struct {
		Operation string   `json:"operation"`
		Transfers []string `json:"transfers"`
		Ref       *ref     `json:"ref,omitempty"`
		Objects   []object `json:"objects"`
		HashAlgo  string   `json:"hash_algo"`
	}{Operation: "download", Transfers: []string{"basic"}, HashAlgo: "sha256"}
	if strings.HasPrefix(l.source.Ref(), "refs/") {
		question.Ref = &ref{l.source.Ref()}
	}
	for _, p := range want {
		question.Objects = append(question.Objects, object(p))
	}
	body, err := json.Marshal(question)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(c.Ctx, http.MethodPost, server.url.JoinPath("objects", "batch").String(), bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	c.SetBudget("answer of Git LFS", batchAnswer)
	own := isOwn(c, server.url)
	res, leave, err := c.Send(req, server.header, own)
	if err != nil {
		return out, err
	}
	defer leave()
	if res.StatusCode != http.StatusOK {
		return out, refusal(c, res, own && len(server.header) == 0)
	}
	var answer struct {
		Transfer string        `json:"transfer"`
		HashAlgo string        `json:"hash_algo"`
		Objects  []batchObject `json:"objects"`
	}
	if media := mediaOf(res); media == "text/html" {
		return out, &giterr.Error{Kind: giterr.Unreachable, Err: errors.New("something else answers in its place: a web page"),
			Hint: "log in to the network if it has a sign-on page"}
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return out, &giterr.Error{Kind: giterr.Protocol, Err: errors.New("its answer is not that of a Git LFS server"),
			Hint: "check that Git LFS is enabled for this repository"}
	}
	if answer.Transfer != "" && answer.Transfer != "basic" || answer.HashAlgo != "" && answer.HashAlgo != "sha256" {
		return out, &giterr.Error{Kind: giterr.Protocol, Err: fmt.Errorf("it wants transfer %q with %q, which was not offered",
			text.Line(answer.Transfer, 40), text.Line(answer.HashAlgo, 40))}
	}
	got := make(map[string]batchObject, len(answer.Objects))
	for _, o := range answer.Objects {
		got[o.OID] = o
	}
	for _, p := range want {
		o, named := got[p.OID]
		place, err := placeOf(c, p, o, named)
		if err != nil {
			out.errs[p.OID] = c.Fail(fmt.Errorf("object %.12s: %w", p.OID, err))
			if e, ok := errors.AsType[*giterr.Error](err); ok {
				out.errs[p.OID] = c.Fail(&giterr.Error{Kind: e.Kind, Err: fmt.Errorf("object %.12s: %w", p.OID, e.Err), Hint: e.Hint})
			}
			continue
		}
		out.at[p.OID] = place
	}
	return out, nil
}

// place reads what an answer says of one object.
func placeOf(c *transport.Call, p Pointer, o batchObject, named bool) (place, error) {
	switch a := o.Actions.Download; {
	case !named:
		return place{}, &giterr.Error{Kind: giterr.Protocol, Err: errors.New("the answer leaves it out")}
	case o.Error != nil:
		return place{}, objectError(o.Error.Code, o.Error.Message)
	case o.Size != p.Size:
		return place{}, &giterr.Error{Kind: giterr.Corrupt, Err: fmt.Errorf("it has %d bytes there, not %d as its pointer says", o.Size, p.Size)}
	case a == nil:
		return place{}, &giterr.Error{Kind: giterr.Protocol, Err: errors.New("the answer has no download for it")}
	default:
		to, err := parseHref(c, a.Href)
		if err != nil {
			return place{}, err
		}
		authorized := o.Authenticated
		for name := range a.Header {
			authorized = authorized || strings.EqualFold(name, "Authorization")
		}
		return place{url: to, header: a.Header, own: isOwn(c, to) && !authorized, until: a.until(time.Now())}, nil
	}
}

// objectError is what a server says of one object.
func objectError(code int, message string) *giterr.Error {
	said := text.Line(message, 200)
	switch {
	case code == http.StatusNotFound:
		return &giterr.Error{Kind: giterr.NotFound, Err: fmt.Errorf("it is not on the Git LFS server: %s", said),
			Hint: "push it from where it was committed: git lfs push --all origin"}
	case code == http.StatusGone:
		return &giterr.Error{Kind: giterr.NotFound, Err: fmt.Errorf("its owner has removed it from the Git LFS server: %s", said),
			Hint: "push it again, or remove the file"}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &giterr.Error{Kind: giterr.Auth, Err: fmt.Errorf("these credentials may not read it in Git LFS: %s", said),
			Hint: "check the rights of the token"}
	case code == http.StatusTooManyRequests, code == 509:
		return &giterr.Error{Kind: giterr.Throttled, Err: fmt.Errorf("the Git LFS server gives out no more for now: %s", said),
			Hint: "it is asked again later"}
	case code >= 500:
		return &giterr.Error{Kind: giterr.Unreachable, Err: fmt.Errorf("the Git LFS server says %d: %s", code, said),
			Hint: "it is asked again later"}
	}
	return &giterr.Error{Kind: giterr.Protocol, Err: fmt.Errorf("the Git LFS server says %d: %s", code, said)}
}
