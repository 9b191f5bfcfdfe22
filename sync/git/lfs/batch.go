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
	place
	of string // auth.Address.Key of the server that it belongs to
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
	at, _ := time.Parse(time.RFC3339, strings.ToUpper(a.ExpiresAt))
	return at
}

// place is where one content is, or the batch API.
type place struct {
	url    *url.URL
	header map[string]string
	own    bool      // it is on the host of the repository and wants its credentials
	until  time.Time // zero = it has no end
	server int       // of the Source, which has announced it
	err    error     // instead of all else
}

func expired(until time.Time) bool { return !until.IsZero() && time.Until(until) < margin }

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

// places asks where the contents are, by OID. Every error is an *giterr.Error.
func (l *Pull) places(ctx context.Context, want []Pointer) (out map[string]place, err error) {
	served, err := l.source.Ask(ctx, opFetch, func(c *transport.Call, own bool) (err error) {
		out, err = l.ask(c, own, want)
		return err
	})
	for oid, place := range out {
		place.server = served
		out[oid] = place
	}
	return out, err
}

func (l *Pull) ask(c *transport.Call, home bool, want []Pointer) (map[string]place, error) {
	server, err := l.server(c, home)
	if err != nil {
		return nil, err
	}
	c.RedactValues(server.header)
	question := map[string]any{"operation": "download", "transfers": []string{"basic"}, "hash_algo": "sha256"}
	if ref := l.source.Ref(); strings.HasPrefix(ref, "refs/") {
		question["ref"] = map[string]string{"name": ref}
	}
	objects := make([]batchObject, len(want))
	for i, p := range want {
		objects[i] = batchObject{OID: p.OID, Size: p.Size}
	}
	question["objects"] = objects
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(c.Ctx, http.MethodPost, server.url.JoinPath("objects", "batch").String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	c.SetBudget("answer of Git LFS", batchAnswer)
	own := isOwn(c, server.url)
	res, leave, err := c.Send(req, server.header, own)
	if err != nil {
		return nil, err
	}
	defer leave()
	if res.StatusCode != http.StatusOK {
		return nil, refusal(c, res, own && len(server.header) == 0)
	}
	var answer struct {
		Transfer string        `json:"transfer"`
		HashAlgo string        `json:"hash_algo"`
		Objects  []batchObject `json:"objects"`
	}
	if transport.Media(res) == "text/html" {
		return nil, giterr.New(giterr.Unreachable, "expected a Git LFS server, got an HTML page",
			"log in to the network if it has a sign-on page")
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, giterr.New(giterr.Protocol, "its answer is not that of a Git LFS server",
			"check that Git LFS is enabled for this repository")
	}
	if answer.Transfer != "" && answer.Transfer != "basic" || answer.HashAlgo != "" && answer.HashAlgo != "sha256" {
		return nil, giterr.Wrap(giterr.Protocol, fmt.Errorf("unsupported transfer %q with hash %q",
			text.Line(answer.Transfer, 40), text.Line(answer.HashAlgo, 40)), "")
	}
	got, out := map[string]batchObject{}, map[string]place{}
	for _, o := range answer.Objects {
		got[o.OID] = o
	}
	for _, p := range want {
		o, named := got[p.OID]
		place, err := placeOf(c, p, o, named)
		if err != nil {
			err.Err = fmt.Errorf("git-lfs server %s: object %.12s: %w", server.url.Host, p.OID, err.Err)
			place.err = c.Fail(err)
		}
		out[p.OID] = place
	}
	return out, nil
}

// placeOf reads what an answer says of one object.
func placeOf(c *transport.Call, p Pointer, o batchObject, named bool) (place, *giterr.Error) {
	switch a := o.Actions.Download; {
	case !named:
		return place{}, giterr.New(giterr.Protocol, "the answer leaves it out", "")
	case o.Error != nil:
		kind, what, hint := meaning(o.Error.Code)
		return place{}, giterr.New(kind, fmt.Sprintf("%s: %s", what, text.Line(o.Error.Message, 200)), hint)
	case o.Size != p.Size:
		return place{}, giterr.Wrap(giterr.Corrupt, fmt.Errorf("it has %d bytes there, not %d as its pointer says", o.Size, p.Size), "")
	case a == nil:
		return place{}, giterr.New(giterr.Protocol, "the answer has no download for it", "")
	default:
		to, err := parseHref(c, a.Href)
		if e, bad := errors.AsType[*giterr.Error](err); bad {
			return place{}, e
		}
		authorized := o.Authenticated
		for name := range a.Header {
			authorized = authorized || strings.EqualFold(name, "Authorization")
		}
		return place{url: to, header: a.Header, own: isOwn(c, to) && !authorized, until: a.until(time.Now())}, nil
	}
}
