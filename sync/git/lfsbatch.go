package git

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

	"limpet/sync/text"
)

// The batch API of Git LFS. Source: git-lfs docs/api/batch.md, server-discovery.md.

const (
	lfsMedia  = "application/vnd.git-lfs+json"
	batchSize = 100 // objects of one request, as git-lfs asks for
	// batchAnswer bounds an answer: a signed URL of 8 KiB and headers for each object.
	batchAnswer = 4 << 20
	// lfsMargin is how long a place has to be good for, to be used at all.
	lfsMargin = 5 * time.Second
)

// lfsStore is where the batch API of a remote is, and what it is asked with.
type lfsStore struct {
	url    *url.URL
	header map[string]string // of git-lfs-authenticate
	until  time.Time         // zero = it has no end
	of     string            // auth.Address.Key of the server that it belongs to
}

// lfsAction says where something is, and how it is asked for.
type lfsAction struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header"`
	ExpiresIn int64             `json:"expires_in"`
	ExpiresAt string            `json:"expires_at"`
}

// until is when the action ends; zero for never.
func (a lfsAction) until(now time.Time) time.Time {
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

// lfsPlace is where one content is.
type lfsPlace struct {
	url    *url.URL
	header map[string]string
	own    bool // it is on the host of the repository and wants its credentials
	until  time.Time
	server int // of the Remote, which has told it; see Mirrors.beginAt
}

func stale(until time.Time) bool { return !until.IsZero() && time.Until(until) < lfsMargin }

// lfsPlaces has a place or an error for each object that was asked for.
type lfsPlaces struct {
	at   map[string]lfsPlace
	errs map[string]error
}

type lfsObject struct {
	OID           string `json:"oid"`
	Size          int64  `json:"size"`
	Authenticated bool   `json:"authenticated,omitempty"`
	Actions       struct {
		Download *lfsAction `json:"download"`
	} `json:"actions,omitzero"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// places asks where the contents are. Every error is an *Error.
func (l *Large) places(ctx context.Context, want []Pointer) (lfsPlaces, error) {
	var out lfsPlaces
	f := &failover{m: l.m, op: largeOp, remote: l.remote, first: max(l.remote.server(l.ref.Via), 0), quiet: true, do: func(c *call) (err error) {
		out, err = l.ask(c, want)
		return err
	}}
	served, err := f.run(ctx)
	for oid, place := range out.at {
		place.server = served
		out.at[oid] = place
	}
	return out, err
}

func (l *Large) ask(c *call, want []Pointer) (lfsPlaces, error) {
	out := lfsPlaces{map[string]lfsPlace{}, map[string]error{}}
	server, err := l.server(c)
	if err != nil {
		return out, err
	}
	c.redact = redactor(c.remote.Creds, valuesOf(server.header)...)
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
	if strings.HasPrefix(l.ref.Name, "refs/") {
		question.Ref = &ref{l.ref.Name}
	}
	for _, p := range want {
		question.Objects = append(question.Objects, object(p))
	}
	body, err := json.Marshal(question)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, server.url.JoinPath("objects", "batch").String(), bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", lfsMedia)
	req.Header.Set("Accept", lfsMedia)
	c.allow("answer of Git LFS", batchAnswer)
	own := c.isOwn(server.url)
	res, leave, err := c.send(req, server.header, own)
	if err != nil {
		return out, err
	}
	defer leave()
	if res.StatusCode != http.StatusOK {
		return out, c.lfsRefusal(res, own && len(server.header) == 0)
	}
	var answer struct {
		Transfer string      `json:"transfer"`
		HashAlgo string      `json:"hash_algo"`
		Objects  []lfsObject `json:"objects"`
	}
	if media := mediaOf(res); media == "text/html" {
		return out, &Error{Kind: Unreachable, Err: errors.New("something else answers in its place: a web page"), Hint: "log in to the network if it has a sign-on page"}
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return out, &Error{Kind: Protocol, Err: errors.New("its answer is not that of a Git LFS server"), Hint: "check that Git LFS is enabled for this repository"}
	}
	if answer.Transfer != "" && answer.Transfer != "basic" || answer.HashAlgo != "" && answer.HashAlgo != "sha256" {
		return out, &Error{Kind: Protocol, Err: fmt.Errorf("it wants transfer %q with %q, which was not offered", text.Line(answer.Transfer, 40), text.Line(answer.HashAlgo, 40))}
	}
	got := make(map[string]lfsObject, len(answer.Objects))
	for _, o := range answer.Objects {
		got[o.OID] = o
	}
	for _, p := range want {
		o, named := got[p.OID]
		place, err := c.place(p, o, named)
		if err != nil {
			out.errs[p.OID] = c.fail(fmt.Errorf("object %.12s: %w", p.OID, err))
			if e, ok := errors.AsType[*Error](err); ok {
				out.errs[p.OID] = c.fail(&Error{Kind: e.Kind, Err: fmt.Errorf("object %.12s: %w", p.OID, e.Err), Hint: e.Hint})
			}
			continue
		}
		out.at[p.OID] = place
	}
	return out, nil
}

// place reads what an answer says of one object.
func (c *call) place(p Pointer, o lfsObject, named bool) (lfsPlace, error) {
	switch a := o.Actions.Download; {
	case !named:
		return lfsPlace{}, &Error{Kind: Protocol, Err: errors.New("the answer leaves it out")}
	case o.Error != nil:
		return lfsPlace{}, objectError(o.Error.Code, o.Error.Message)
	case o.Size != p.Size:
		return lfsPlace{}, &Error{Kind: Corrupt, Err: fmt.Errorf("it has %d bytes there, not %d as its pointer says", o.Size, p.Size)}
	case a == nil:
		return lfsPlace{}, &Error{Kind: Protocol, Err: errors.New("the answer has no download for it")}
	default:
		to, err := c.lfsURL(a.Href)
		if err != nil {
			return lfsPlace{}, err
		}
		authorized := o.Authenticated
		for name := range a.Header {
			authorized = authorized || strings.EqualFold(name, "Authorization")
		}
		return lfsPlace{url: to, header: a.Header, own: c.isOwn(to) && !authorized, until: a.until(time.Now())}, nil
	}
}

// objectError is what a server says of one object.
func objectError(code int, message string) *Error {
	said := text.Line(message, 200)
	switch {
	case code == http.StatusNotFound:
		return &Error{Kind: NotFound, Err: fmt.Errorf("it is not on the Git LFS server: %s", said), Hint: "push it from where it was committed: git lfs push --all origin"}
	case code == http.StatusGone:
		return &Error{Kind: NotFound, Err: fmt.Errorf("its owner has removed it from the Git LFS server: %s", said), Hint: "push it again, or remove the file"}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &Error{Kind: Auth, Err: fmt.Errorf("these credentials may not read it in Git LFS: %s", said), Hint: "check the rights of the token"}
	case code == http.StatusTooManyRequests, code == 509:
		return &Error{Kind: Throttled, Err: fmt.Errorf("the Git LFS server gives out no more for now: %s", said), Hint: "it is asked again later"}
	case code >= 500:
		return &Error{Kind: Unreachable, Err: fmt.Errorf("the Git LFS server says %d: %s", code, said), Hint: "it is asked again later"}
	}
	return &Error{Kind: Protocol, Err: fmt.Errorf("the Git LFS server says %d: %s", code, said)}
}
