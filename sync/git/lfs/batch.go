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

// Where the Git LFS server of a remote is. Source: git-lfs docs/api/server-discovery.md.

// server finds the batch API, once for all requests as long as it is good.
func (l *Pull) server(c *transport.Call, home bool) (found endpoint, err error) {
	l.mu.Lock()
	found = l.api
	l.mu.Unlock()
	if found.of == c.Addr.Key() && !expired(found.until) {
		return found, nil
	}
	found = endpoint{of: c.Addr.Key()}
	switch c.Addr.Scheme {
	case "http", "https":
		found.url, err = l.serverOverHTTP(c, home)
	case "ssh":
		found.place, err = authenticate(c)
	default:
		err = giterr.New(giterr.Refused, "a local repository has no Git LFS server", "use https or ssh")
	}
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.api = found
	}
	return found, err
}

func (l *Pull) serverOverHTTP(c *transport.Call, home bool) (*url.URL, error) {
	named, err := l.source.ServerURL(c.Ctx)
	if err != nil {
		return nil, err
	}
	if named == "" || !home { // it names the one of the repository's own host
		return &url.URL{Scheme: c.Addr.Scheme, Host: c.Addr.HostPort(), Path: strings.TrimSuffix(c.Addr.Path, ".git") + ".git/info/lfs"}, nil
	}
	u, err := url.Parse(named)
	if err != nil || !isOwn(c, u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, giterr.Wrap(giterr.Refused,
			fmt.Errorf("the .lfsconfig of the repository names the Git LFS server %q, which is not at %s://%s",
				text.Line(transport.WithoutUserInfo(named), 200), c.Addr.Scheme, c.Addr.HostPort()),
			"credentials go to the host of the repository only")
	}
	return u, nil
}

// authenticate asks over ssh where the batch API is and what it is asked with.
func authenticate(c *transport.Call) (at place, err error) {
	leave, err := c.Visit()
	if err != nil {
		return at, err
	}
	defer leave()
	data, said, err := c.Run("git-lfs-authenticate", "download")
	if err != nil {
		return at, err
	}
	var a action
	if json.Unmarshal(data, &a) != nil || a.Href == "" {
		return at, giterr.Wrap(giterr.Protocol, fmt.Errorf("git-lfs-authenticate over ssh gives no answer: %s", said),
			"use https for a repository with Git LFS, or enable it on the server")
	}
	c.RedactValues(a.Header)
	u, err := parseHref(c, a.Href)
	return place{url: u, header: a.Header, until: a.until(time.Now())}, err
}

// isOwn reports whether u is at the origin of the remote, which is where credentials go.
func isOwn(c *transport.Call, u *url.URL) bool {
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		port = ""
	}
	return u.Scheme == c.Addr.Scheme && strings.EqualFold(u.Hostname(), c.Addr.Host) && port == c.Addr.Port
}

// parseHref reads a URL that a server has sent: https, or the origin of the remote.
func parseHref(c *transport.Call, href string) (*url.URL, error) {
	u, err := url.Parse(href)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, giterr.New(giterr.Protocol, "the Git LFS server sends a url that cannot be read", "")
	case u.User != nil:
		return nil, giterr.New(giterr.Refused, "the Git LFS server sends a url that holds a password", "")
	case u.Scheme != "https" && !isOwn(c, u):
		return nil, giterr.Wrap(giterr.Refused, fmt.Errorf("the Git LFS server sends to %s://%s, which is not https",
			text.Line(u.Scheme, 20), text.Line(u.Host, 100)), "")
	}
	if err := c.CheckHost(u.Hostname()); err != nil {
		e, _ := errors.AsType[*giterr.Error](err)
		e.Err = fmt.Errorf("the Git LFS server sends to %s: %w", text.Line(u.Host, 100), e.Err)
		return nil, e
	}
	return u, nil
}
