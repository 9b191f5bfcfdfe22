package forge

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// oneAnswer gives every request the same answer.
type oneAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a oneAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r}, nil
}

// FuzzAnswers has hosts of each kind answer anything to every call. No call
// crashes or loops, every error has a kind, no wait is absurd, and what a host
// repeats of a secret does not come out again.
func FuzzAnswers(f *testing.F) {
	const secret = "CANARY-of-the-token"
	for _, body := range []string{
		``, `[]`, `{}`, `null`, `[null]`, `{"id":1,"config":{"url":"https://x","insecure_ssl":1},"events":["push"],"active":true}`,
		`[{"id":1.5e300,"url":7,"push_events":"yes"}]`, `{"values":[{"uuid":"{1}","events":null}],"next":"` + secret + `"}`,
		`{"message":"` + secret + `","errors":[{"code":"custom"},"x"]}`, `{"error":{"message":["a",{"b":{"c":{"d":{"e":"f"}}}}]}}`,
		`{"token":"x","expires_at":"2099-01-01T00:00:00Z","permissions":{"contents":"write"},"app_id":1}`,
	} {
		f.Add(200, body, "", "1", "")
		f.Add(403, body, "30", "0", "1")
		f.Add(422, body, "Fri, 20 Nov 2026 12:00:00 GMT", "0", "99999999999999999999")
		f.Add(301, body, "-1", "", "https://u:p@127.0.0.1:1/%zz")
	}
	f.Fuzz(func(t *testing.T, status int, body, after, remaining, reset string) {
		if status < 200 || status > 999 { // net/http answers the others itself
			return
		}
		header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {after}, "X-Ratelimit-Remaining": {remaining},
			"X-Ratelimit-Reset": {reset}, "Location": {reset}, "Date": {after}, "Link": {`<x>; rel="next"`}}
		for kind, target := range map[Kind]Target{
			GitHub: {Type: "github", URL: "https://github.com/a/b"}, GitLab: {Type: "gitlab", URL: "https://gitlab.com/a/b/c"},
			Bitbucket: {Type: "bitbucket", URL: "https://bitbucket.org/a/b"}, Gitea: {Type: "git", URL: "https://codeberg.org/a/b"},
		} {
			calls := []func(r *Remote) error{
				func(r *Remote) error { _, err := r.List(t.Context()); return err },
				func(r *Remote) error { _, err := r.Get(t.Context(), body); return err },
				func(r *Remote) error { _, err := r.PullRequest(t.Context(), 1); return err },
				func(r *Remote) error { return r.Comment(t.Context(), 1, "limpet/a/b", body, false) },
				func(r *Remote) error {
					return r.SetStatus(t.Context(), "0123456789012345678901234567890123456789", CommitStatus{"limpet/a/b", CommitSuccess, body, ""})
				},
				func(r *Remote) error {
					_, err := r.Create(t.Context(), Hook{URL: "https://site.example/x", Secret: "CANARY-of-the-hook"})
					return err
				},
				func(r *Remote) error {
					_, err := r.Edit(t.Context(), Hook{ID: body, Secret: "CANARY-of-the-hook"})
					return err
				},
				func(r *Remote) error { return r.Delete(t.Context(), body) },
				func(r *Remote) error { _, err := facts(t.Context(), r); return err },
				func(r *Remote) error { _, err := r.Protection(t.Context(), body); return err },
			}
			for n, call := range calls {
				hosts := New(Options{})
				hosts.client.Transport = oneAnswer{status, header, []byte(body)}
				r, err := hosts.Remote(t.Context(), target, &auth.Credentials{Bearer: secret})
				if err != nil {
					t.Fatal(err)
				}
				err = call(r)
				if err == nil {
					continue
				}
				e, ok := errors.AsType[*netx.Error](err)
				if !ok || e.Kind == "" || e.Kind == netx.Unknown || e.Kind == netx.Cancelled {
					t.Fatalf("%s, call %d: %v has no kind", kind, n, err)
				}
				if e.RetryAfter < 0 || e.RetryAfter > time.Hour {
					t.Fatalf("%s, call %d: wait %v", kind, n, e.RetryAfter)
				}
				if text := e.Err.Error(); strings.Contains(text, "CANARY-of") || strings.ContainsAny(text, "\n\x1b") {
					t.Fatalf("%s, call %d: %q", kind, n, text)
				}
			}
		}
	})
}

func FuzzPlace(f *testing.F) {
	for _, url := range []string{"https://github.com/a/b", "git@host:a/b.git", "https://host/%2e/a/b", "https://host:1/a//b/",
		"http://[::1]/a/b/c.git"} {
		f.Add(url, "gitlab", "")
		f.Add(url, "git", "gitea")
		f.Add(url, "githubEnterprise", url)
	}
	f.Add("#:0/0", "git", "gitea")
	hosts := New(Options{})
	f.Fuzz(func(t *testing.T, url, kind, more string) {
		target := Target{Type: kind, URL: url, ServerURL: more, Forge: more}
		a, err := auth.ParseAddress(url)
		if err != nil || a.Scheme == "file" {
			return
		}
		known, err := target.kind(a)
		if err != nil || known == "" {
			return
		}
		p, err := hosts.detect(known, target, a)
		if err != nil {
			return
		}
		to, err := neturl.Parse(p.API)
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		same := strings.EqualFold(to.Hostname(), a.Host)
		for _, host := range []string{"api.github.com", "api.bitbucket.org", "api." + a.Host} {
			same = same || to.Hostname() == host
		}
		if !same || to.User != nil || to.RawQuery != "" || strings.HasSuffix(p.API, "/") {
			t.Fatalf("%q leads to %q", url, p.API)
		}
		if !strings.Contains(p.Path, "/") || strings.Contains("/"+p.Path+"/", "/../") || strings.Contains("/"+segments(p.Path)+"/", "/./") {
			t.Fatalf("%q is repository %q", url, p.Path)
		}
	})
}
