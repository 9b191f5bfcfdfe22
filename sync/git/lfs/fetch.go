// Package lfs brings the files that Git LFS keeps. A tree has a pointer in their place; the batch
// API of the host says where each content is. What comes is counted, checked against the pointer,
// and kept as a file in a cache that may be deleted: nothing of it is held in memory.
//
// The host of the repository gets its credentials, another host what the answer says for it and
// nothing else. A fallback is asked first where it announced the commit, and else while the host is
// unreachable.
//
// Bounds: MaxPointer for a pointer; batchSize for the objects of a batch and batchAnswer for its
// answer; atOnce for downloads at a time; pack.Limits.LargeObject for a file and LargeBytes for a
// pull; maxCache for the cache.
package lfs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// Source is the repository whose files a Pull brings.
type Source interface {
	// Ask runs do at the server that announced the commit, or at another one while that does not
	// answer, and returns which one it was. own reports whether it is the one of the repository's URL.
	Ask(ctx context.Context, op string, do func(c *transport.Call, own bool) error) (server int, err error)
	// Begin starts a call at a server that Ask has returned; 0 is the repository's own.
	Begin(ctx context.Context, op string, server int) (*transport.Call, error)
	// ServerURL is the server that the .lfsconfig of the commit names, "" for none.
	ServerURL(ctx context.Context) (string, error)
	// Ref is the full name of the ref that leads to the commit, "" for none.
	Ref() string
	Limits() pack.Limits
	// Meter counts what comes; nil = none.
	Meter() *transfer.Meter
}

// Pull brings the contents that one pull needs. It is safe for concurrent use. Close bounds the
// cache.
type Pull struct {
	cache  *Cache
	source Source
	dir    string        // of the cache, for this repository
	turn   chan struct{} // capacity 1: full while something is fetched
	spent  *int64        // bytes that were asked for; of whoever has the turn

	mu    sync.Mutex       // guards all below; no network under it
	known map[string]error // by oid; nil = it is in the cache
	api   endpoint         // zero while it is not known
}

// atOnce is how many contents are downloaded at a time.
const atOnce = 2

// opFetch is what errors say was tried.
const opFetch = "fetch from Git LFS"

// Pull begins a pull of files of a repository; dir is the name of its directory in the cache. It
// makes no request.
func (c *Cache) Pull(source Source, dir string) *Pull {
	return &Pull{cache: c, source: source, dir: dir, turn: make(chan struct{}, 1), spent: new(int64), known: map[string]error{}}
}

// Within is the share of a submodule. What it takes counts with what l takes, and they fetch in
// turn. Close it too.
func (l *Pull) Within(source Source, dir string) *Pull {
	return &Pull{cache: l.cache, source: source, dir: dir, turn: l.turn, spent: l.spent, known: map[string]error{}}
}

// Close ends the pull.
func (l *Pull) Close() {
	l.mu.Lock()
	used := len(l.known) > 0
	l.mu.Unlock()
	if used {
		l.cache.trim(maxCache)
	}
}

// Fetch brings what the pointers stand for, in as few requests as there can be. It blocks until all
// is there or cannot be had; Open returns their errors. A second call asks for nothing that the
// first one had.
func (l *Pull) Fetch(ctx context.Context, pointers []Pointer) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return
	}
	var want []Pointer
	seen := make(map[string]bool, len(pointers))
	for _, p := range pointers {
		if !seen[p.OID] && l.accept(ctx, p) {
			want = append(want, p)
		}
		seen[p.OID] = true
	}
	if len(want) > 0 {
		l.source.Meter().Start(transfer.LFS, len(want))
		defer l.source.Meter().End()
	}
	for batch := range slices.Chunk(want, batchSize) {
		if ctx.Err() == nil {
			l.fetchBatch(ctx, batch)
		}
	}
}

// Open opens the content of a pointer, which it fetches where that was not done. Every error is
// an *giterr.Error, also that of a fetch before.
func (l *Pull) Open(ctx context.Context, p Pointer) (io.ReadCloser, error) {
	l.Fetch(ctx, []Pointer{p})
	l.mu.Lock()
	err, known := l.known[p.OID]
	l.mu.Unlock()
	if !known {
		err = context.Cause(ctx)
	}
	if err == nil {
		var f *os.File
		if f, err = os.Open(l.path(p.OID)); err == nil {
			return f, nil
		}
	}
	return nil, l.fail(ctx, err)
}

// Fits reports whether a content may be fetched at all. The error is a *giterr.TooLargeError.
func (l *Pull) Fits(p Pointer) error {
	if most := l.source.Limits().LargeObject; p.Size > most {
		return &giterr.TooLargeError{What: "file in Git LFS", Size: p.Size, Limit: most}
	}
	return nil
}

// accept reports whether p has to be fetched, and settles it if not.
func (l *Pull) accept(ctx context.Context, p Pointer) bool {
	l.mu.Lock()
	_, known := l.known[p.OID]
	l.mu.Unlock()
	if known {
		return false
	}
	err := l.Fits(p)
	if err == nil && l.cache.holds(ctx, l.path(p.OID), p) {
		l.setResult(p, nil)
		return false
	}
	if most := l.source.Limits().LargeBytes; err == nil && *l.spent+p.Size > most {
		err = &giterr.TooLargeError{What: "what a pull takes from Git LFS", Size: *l.spent + p.Size, Limit: most}
	}
	if err != nil {
		l.setResult(p, l.fail(ctx, err))
		return false
	}
	*l.spent += p.Size
	return true
}

// setResult notes what became of p. What failed with the context is not known.
func (l *Pull) setResult(p Pointer, err error) {
	if giterr.KindOf(err) == giterr.Cancelled {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[p.OID] = err
}

// errExpired reports that the place of a content is not good any more: it is asked for once more.
var errExpired = errors.New("what the answer said of its place is not good any more")

// fetchBatch settles every one of the pointers.
func (l *Pull) fetchBatch(ctx context.Context, want []Pointer) {
	for _, last := range []bool{false, true} {
		places, err := l.places(ctx, want)
		var g errgroup.Group
		g.SetLimit(atOnce)
		errs := make([]error, len(want))
		for i, p := range want {
			at := places[p.OID]
			if errs[i] = cmp.Or(err, at.err); errs[i] == nil {
				g.Go(func() error {
					if errs[i] = l.download(ctx, p, at); errs[i] == nil {
						l.source.Meter().Object()
					}
					return nil
				})
			}
		}
		g.Wait()
		var again []Pointer
		for i, p := range want {
			if errors.Is(errs[i], errExpired) && !last {
				again = append(again, p)
			} else {
				l.setResult(p, errs[i])
			}
		}
		want = again
		if len(want) == 0 {
			return
		}
	}
}

// path is where the content of an oid is kept: apart for each remote, because who
// knows the name of a content may not be one who may read it.
func (l *Pull) path(oid string) string { return filepath.Join(l.cache.dir, l.dir, oid) }

// Fail tells an error as those of a call are told.
func (l *Pull) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*giterr.Error](err); ok {
		return e
	}
	c, berr := l.source.Begin(ctx, opFetch, 0)
	if berr != nil {
		return berr
	}
	defer c.End()
	return c.Fail(err)
}

// maxRedirects is how many redirects of a download are followed: hosts send to where
// they store things, which sends nowhere else.
const maxRedirects = 3

// download brings one content into the cache. Every error is an *giterr.Error.
func (l *Pull) download(ctx context.Context, p Pointer, at place) error {
	c, err := l.source.Begin(ctx, opFetch, at.server)
	if err != nil {
		return err
	}
	defer c.End()
	c.RedactValues(at.header)
	return c.Fail(l.get(c, p, at))
}

func (l *Pull) get(c *transport.Call, p Pointer, at place) error {
	if expired(at.until) {
		return giterr.Wrap(giterr.Auth, fmt.Errorf("object %.12s: %w", p.OID, errExpired), "check the clock of this host")
	}
	c.SetBudget("file in Git LFS", p.Size)
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(c.Ctx, http.MethodGet, at.url.String(), nil)
		if err != nil {
			return err
		}
		res, leave, err := c.Send(req, at.header, at.own)
		if err != nil {
			return err
		}
		if to := res.Header.Get("Location"); res.StatusCode >= 300 && res.StatusCode < 400 && to != "" {
			leave()
			next, err := at.url.Parse(to)
			if err == nil {
				next, err = parseHref(c, next.String())
			}
			if err != nil {
				return err
			}
			if next.Scheme != at.url.Scheme || !strings.EqualFold(next.Host, at.url.Host) {
				at.header, at.own = nil, false // they were for that host
			}
			at.url = next
			continue
		}
		defer leave()
		return l.take(c, p, at, res)
	}
	return giterr.Wrap(giterr.Protocol, fmt.Errorf("object %.12s: more than %d redirects", p.OID, maxRedirects), "")
}

// take reads the content into a file, and puts it into the cache if it is the right one.
func (l *Pull) take(c *transport.Call, p Pointer, at place, res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		c.SetBudget("answer of Git LFS", transport.ErrorBody)
		err := refusal(c, res, at.own)
		if code := res.StatusCode; code == http.StatusUnauthorized || code == http.StatusForbidden {
			e, _ := errors.AsType[*giterr.Error](err)
			e.Err = fmt.Errorf("object %.12s at %s: %w: %w", p.OID, text.Line(at.url.Host, 100), e.Err, errExpired)
		}
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(l.cache.dir), pack.TempPrefix) // removed at the next start
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), res.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != p.Size || sum != p.OID {
		return giterr.Wrap(giterr.Corrupt, fmt.Errorf("object %.12s: what came from %s is not it: %d bytes of %d, with another SHA-256",
			p.OID, text.Line(at.url.Host, 100), n, p.Size), "nothing of it is used")
	}
	path := l.path(p.OID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// refusal is what an answer means that is not 200. ours says that the credentials of the remote
// were sent.
func refusal(c *transport.Call, res *http.Response, ours bool) error {
	said := c.ResponseText(res, strings.Replace(transport.Media(res), mediaType, "application/json", 1))
	after, _ := netx.RetryAfter(res.Header, time.Now())
	certificate := ""
	if ours && c.Addr.Scheme != "ssh" {
		certificate = c.CertificateHint(res.Request.URL.Host)
	}
	code, name := res.StatusCode, "Git LFS server "+text.Line(res.Request.URL.Host, 100)+": "
	if code == http.StatusUnauthorized && ours {
		c.Target.Creds.Refused()
	}
	if code == http.StatusBadRequest && certificate != "" { // what nginx answers
		return giterr.New(giterr.Auth, name+"400 Bad Request"+said, certificate)
	}
	kind, what, hint := meaning(code)
	if kind == giterr.Auth && certificate != "" {
		hint += "; " + certificate
	}
	return &giterr.Error{Kind: kind, Err: errors.New(name + what + said), Hint: hint, RetryAfter: after}
}

// meaning is what a number of HTTP means, of a request or of one object.
func meaning(code int) (kind giterr.Kind, what, hint string) {
	what = fmt.Sprintf("%d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return giterr.Auth, map[int]string{401: "authentication failed (401 Unauthorized)", 403: "permission denied (403 Forbidden)"}[code],
			"check that the token is valid and may read this repository"
	case code == http.StatusNotFound, code == http.StatusGone:
		return giterr.NotFound, "not found, or not for these credentials",
			"push it from where it was committed: git lfs push --all origin; or enable Git LFS on the host"
	case code == http.StatusTooManyRequests, code == 509:
		return giterr.Throttled, "too many requests (429)", "it is asked again later"
	case code >= 500 && code != http.StatusNotImplemented:
		return giterr.Unreachable, what, "it is retried later"
	}
	return giterr.Protocol, what, "check that Git LFS is enabled for this repository"
}
