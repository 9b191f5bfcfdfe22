package git

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

	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// lfsRedirects is how many redirects of a download are followed: hosts send to where
// they store things, which sends nowhere else.
const lfsRedirects = 3

// download brings one content into the cache and pins it. Every error is an *Error.
func (l *Large) download(ctx context.Context, p Pointer, at lfsPlace) error {
	c, err := l.m.beginAt(ctx, largeOp, l.remote, at.server)
	if err != nil {
		return err
	}
	defer c.end()
	c.redact = redactor(c.remote.Creds, valuesOf(at.header)...)
	return c.fail(l.get(c, p, at))
}

func (l *Large) get(c *call, p Pointer, at lfsPlace) error {
	if stale(at.until) {
		return &Error{Kind: Auth, Err: fmt.Errorf("object %.12s: %w", p.OID, errStale), Hint: "check the clock of this host"}
	}
	c.allow("file in Git LFS", p.Size)
	for range lfsRedirects + 1 {
		req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, at.url.String(), nil)
		if err != nil {
			return err
		}
		res, leave, err := c.send(req, at.header, at.own)
		if err != nil {
			return err
		}
		if to := res.Header.Get("Location"); res.StatusCode >= 300 && res.StatusCode < 400 && to != "" {
			leave()
			next, err := at.url.Parse(to)
			if err == nil {
				next, err = c.lfsURL(next.String())
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
	return &Error{Kind: Protocol, Err: fmt.Errorf("object %.12s: more than %d redirects", p.OID, lfsRedirects)}
}

// take reads the content into a file, and puts it into the cache if it is the right one.
func (l *Large) take(c *call, p Pointer, at lfsPlace, res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		c.allow("answer of Git LFS", errorBody)
		err := c.lfsRefusal(res, at.own)
		if code := res.StatusCode; code == http.StatusUnauthorized || code == http.StatusForbidden {
			e, _ := errors.AsType[*Error](err)
			e.Err = fmt.Errorf("object %.12s at %s: %w: %w", p.OID, text.Line(at.url.Host, 100), e.Err, errStale)
		}
		return err
	}
	f, err := os.CreateTemp(c.m.dir, pack.TempPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), res.Body)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != p.Size || sum != p.OID {
		return &Error{Kind: Corrupt, Err: fmt.Errorf("object %.12s: what came from %s is not it: %d bytes of %d, with another SHA-256", p.OID, text.Line(at.url.Host, 100), n, p.Size),
			Hint: "nothing of it is used"}
	}
	path := l.path(p.OID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	l.m.pin(path)
	if err := os.Rename(f.Name(), path); err != nil {
		l.m.unpin(path)
		return err
	}
	return nil
}

// send sends a request with what the answer before said for it, and with the
// credentials of the remote where own says so. It follows no redirect. leave ends the visit.
func (c *call) send(req *http.Request, header map[string]string, own bool) (res *http.Response, leave func(), err error) {
	creds := c.remote.Creds
	if !own || c.addr.Scheme == "ssh" {
		creds = creds.ForOtherHost()
	}
	client, err := c.m.httpClient(creds)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "limpet")
	if creds != nil && req.Header.Get("Authorization") == "" {
		switch {
		case creds.Bearer != "":
			req.Header.Set("Authorization", "Bearer "+creds.Bearer)
		case creds.Password != "":
			req.SetBasicAuth(creds.Username, creds.Password)
		}
	}
	end, err := c.visitHost(req.URL.Host)
	if err != nil {
		return nil, nil, err
	}
	c.requests.Add(1)
	asked := req.Context()
	if own {
		asked = c.m.asked.Watch(asked, c.asks(req.URL.Host))
	}
	res, err = client.Transport.(wire).next.RoundTrip(req.WithContext(asked))
	if err != nil {
		end()
		return nil, nil, err
	}
	res.Body = counted{res.Body, c}
	return res, func() {
		res.Body.Close()
		end()
	}, nil
}

// lfsRefusal is what an answer means that is not 200. ours says that the credentials of
// the remote were sent.
func (c *call) lfsRefusal(res *http.Response, ours bool) error {
	said := c.reason(res, strings.Replace(mediaOf(res), lfsMedia, "application/json", 1))
	after := retryAfter(res.Header.Get("Retry-After"), time.Now())
	certificate := ""
	if ours && c.addr.Scheme != "ssh" {
		certificate = c.certificateHint(res.Request.URL.Host)
	}
	tell := func(k Kind, text, hint string) error {
		if k == Auth && certificate != "" {
			hint += "; " + certificate
		}
		return &Error{Kind: k, Err: errors.New(text + said), Hint: hint, RetryAfter: after}
	}
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized:
		if ours {
			c.remote.Creds.Refused()
		}
		return tell(Auth, "its Git LFS server refuses these credentials", "check that the token is valid and may read this repository")
	case code == http.StatusForbidden:
		return tell(Auth, "these credentials may not read from its Git LFS server", "check the rights of the token")
	case code == http.StatusBadRequest && certificate != "": // what nginx answers
		return &Error{Kind: Auth, Err: errors.New("its Git LFS server answers 400 Bad Request" + said), Hint: certificate}
	case code == http.StatusNotFound, code == http.StatusGone:
		return tell(NotFound, "it has no Git LFS server for this repository, or none for these credentials", "enable Git LFS on the host, or commit the files themselves")
	case code == http.StatusTooManyRequests, code == 509:
		return tell(Throttled, "its Git LFS server gets too many requests", "it is asked again later")
	case code >= 500 && code != http.StatusNotImplemented:
		return tell(Unreachable, fmt.Sprintf("its Git LFS server answers %d %s", code, http.StatusText(code)), "it is asked again later")
	}
	return tell(Protocol, fmt.Sprintf("its Git LFS server answers %d %s", res.StatusCode, http.StatusText(res.StatusCode)), "check that Git LFS is enabled for this repository")
}

func mediaOf(res *http.Response) string {
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	return strings.TrimSpace(media)
}

func valuesOf(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
