package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/netx"
	"limpet/sync/text"
)

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

// refusal is what an answer means that is not 200. ours says that the credentials of the remote were sent.
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
