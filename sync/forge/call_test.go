package forge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
)

// silent fails the test when an error shows the canary.
func silent(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "err", err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&log, "%v %+v", e, e)
	}
	if strings.Contains(log.String(), "CANARY") {
		t.Errorf("a secret was printed: %s", log.String())
	}
}

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(90 * time.Second)
	reset := map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(soon.Unix())}
	echo := `{"message":"you sent ` + canary + `-token, Authorization: Bearer ` + canary + `-other"}`
	cases := []struct {
		name   string
		answer forgetest.Answer
		kind   netx.ErrorKind
		reason string
		after  [2]time.Duration // between
		text   string
	}{
		{"bad credentials", forgetest.Answer{Status: 401, Body: `{"message":"Bad credentials"}`}, netx.Unauthorized, netx.ReasonAuthenticationFailed, [2]time.Duration{}, "Bad credentials"},
		{"forbidden", forgetest.Answer{Status: 403, Body: `{"message":"Resource not accessible by integration"}`}, netx.Forbidden, netx.ReasonAuthenticationFailed, [2]time.Duration{}, "not accessible"},
		{"not found", forgetest.Answer{Status: 404, Body: `{"message":"Not Found"}`}, netx.NotFound, netx.ReasonInvalidSpec, [2]time.Duration{}, "Not Found"},
		{"gone", forgetest.Answer{Status: 410}, netx.NotFound, netx.ReasonInvalidSpec, [2]time.Duration{}, "410 Gone"},
		{"refused", forgetest.Answer{Status: 422, Body: `{"message":"Validation Failed","errors":[{"resource":"Hook","code":"custom","message":"no"}]}`}, netx.Refused, netx.ReasonInvalidSpec, [2]time.Duration{}, "Validation Failed: no: custom"},
		{"gitlab's form", forgetest.Answer{Status: 400, Body: `{"message":{"url":["is blocked"]}}`}, netx.Refused, netx.ReasonInvalidSpec, [2]time.Duration{}, "url: is blocked"},
		{"bitbucket's form", forgetest.Answer{Status: 400, Body: `{"type":"error","error":{"message":"Bad","detail":"worse"}}`}, netx.Refused, netx.ReasonInvalidSpec, [2]time.Duration{}, "Bad: worse"},
		{"limit, seconds", forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "30"}}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{30 * time.Second, 30 * time.Second}, "429"},
		{"limit, date", forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": soon.UTC().Format(http.TimeFormat)}}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{60 * time.Second, 91 * time.Second}, "429"},
		{"limit, not said", forgetest.Answer{Status: 429}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{time.Minute, time.Minute}, "429"},
		{"limit, absurd", forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "99999999999"}}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{time.Hour, time.Hour}, "429"},
		{"github's limit", forgetest.Answer{Status: 403, Header: reset, Body: `{"message":"API rate limit exceeded"}`}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{60 * time.Second, 91 * time.Second}, "rate limit"},
		{"github's second limit", forgetest.Answer{Status: 403, Body: `{"message":"You have exceeded a secondary rate limit."}`}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{time.Minute, time.Minute}, "secondary"},
		{"limit, absurd date", forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{time.Hour, time.Hour}, "429"},
		{"limit, absurd reset", forgetest.Answer{Status: 403, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}}, netx.RateLimited, netx.ReasonRateLimited, [2]time.Duration{time.Hour, time.Hour}, "403"},
		{"down for a while", forgetest.Answer{Status: 503, Header: map[string]string{"Retry-After": "120"}}, netx.Unavailable, netx.ReasonServiceUnavailable, [2]time.Duration{2 * time.Minute, 2 * time.Minute}, "503"},
		{"broken", forgetest.Answer{Status: 500, Body: "<html>oops</html>"}, netx.Unavailable, netx.ReasonServiceUnavailable, [2]time.Duration{}, "500 Internal Server Error"},
		{"portal", forgetest.Answer{Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>log in</html>"}, netx.Unavailable, netx.ReasonServiceUnavailable, [2]time.Duration{}, "HTML page"},
		{"not this api", forgetest.Answer{Status: 200, Body: `["a"]`}, netx.Protocol, netx.ReasonServiceUnavailable, [2]time.Duration{}, "not what this API answers"},
		{"too large", forgetest.Answer{Status: 200, Body: strings.Repeat(" ", netx.MaxAnswer+1)}, netx.Protocol, netx.ReasonServiceUnavailable, [2]time.Duration{}, "more than"},
		{"echo", forgetest.Answer{Status: 400, Body: echo}, netx.Refused, netx.ReasonInvalidSpec, [2]time.Duration{}, "[redacted]"},
		{"elsewhere", forgetest.Answer{Status: 302, Header: map[string]string{"Location": "https://evil.example/?token=" + canary}}, netx.Protocol, netx.ReasonServiceUnavailable, [2]time.Duration{}, "evil.example"},
		{"to nowhere", forgetest.Answer{Status: 302}, netx.Protocol, netx.ReasonServiceUnavailable, [2]time.Duration{}, "nowhere"},
		{"around and around", forgetest.Answer{Status: 307, Header: map[string]string{"Location": "/api/v3/x"}}, netx.Protocol, netx.ReasonServiceUnavailable, [2]time.Duration{}, "redirects more than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := forgetest.New(t, forgetest.Options{})
			h.Fault(func(*http.Request) *forgetest.Answer { return &c.answer })
			r := remoteOf(t, h, GitHub, "team/site")
			_, err := facts(t.Context(), r)
			silent(t, err)
			e, ok := errors.AsType[*netx.Error](err)
			if !ok || e.Kind != c.kind || e.Reason() != c.reason || !strings.Contains(e.Error(), c.text) {
				t.Fatalf("%v, want %s with %q", err, c.kind, c.text)
			}
			if e.RetryAfter < c.after[0] || e.RetryAfter > c.after[1] {
				t.Errorf("wait for %v, want %v", e.RetryAfter, c.after)
			}
			if !strings.Contains(e.Error(), "GET "+h.URL+"/api/v3/repos/team/site") || !strings.Contains(e.Error(), "secret default/site") {
				t.Errorf("%v names neither who asked nor where", err)
			}
		})
	}
}

// TestGate: a host that has said when it may be asked again is left alone until
// then, by this identity only.
func TestGate(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Add("team/site", forgetest.Repository{})
	h.Token("other-token", forgetest.Rights{})
	h.Fault(func(r *http.Request) *forgetest.Answer {
		if strings.Contains(r.Header.Get("Authorization"), "other-token") {
			return nil
		}
		return &forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "60"}}
	})
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	target := Target{Type: "github", URL: h.URL + "/team/site"}
	for n := range 5 {
		r, err := hosts.Remote(t.Context(), target, creds())
		if err != nil {
			t.Fatal(err)
		}
		_, err = facts(t.Context(), r)
		if e, ok := errors.AsType[*netx.Error](err); !ok || e.Kind != netx.RateLimited || e.RetryAfter <= 50*time.Second {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	if n := len(h.Requests()); n != 1 {
		t.Errorf("%d requests to a host that wants none", n)
	}
	r, err := hosts.Remote(t.Context(), target, &auth.Credentials{Bearer: "other-token"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := facts(t.Context(), r); err != nil {
		t.Errorf("another identity: %v", err)
	}
}

// TestRetryAfterOfHost checks that no identity calls a host while it is down, and
// that its error keeps its words.
func TestRetryAfterOfHost(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Fault(func(*http.Request) *forgetest.Answer {
		return &forgetest.Answer{Status: 503, Header: map[string]string{"Retry-After": "60"}, Body: `{"message":"maintenance"}`}
	})
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	var first string
	for n := range 3 {
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: h.URL + "/team/site"}, &auth.Credentials{Bearer: fmt.Sprint("token-", n)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = facts(t.Context(), r)
		if e, ok := errors.AsType[*netx.Error](err); !ok || e.Kind != netx.Unavailable || e.RetryAfter <= 50*time.Second || !strings.Contains(err.Error(), "maintenance") {
			t.Fatalf("call %d: %v", n, err)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("call %d: %v, before it was %s", n, err, first)
		}
	}
	if n := len(h.Requests()); n != 1 {
		t.Errorf("%d requests to a host that wants none", n)
	}
}

// TestRetryAfterOfApp: the tokens of one Connection are one identity to the limits of
// its host, however many there are; and a thousand identities are not forgotten.
func TestRetryAfterOfApp(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Fault(func(*http.Request) *forgetest.Answer {
		return &forgetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "60"}}
	})
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	ask := func(c *auth.Credentials) {
		t.Helper()
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: h.URL + "/team/site"}, c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = facts(t.Context(), r); netx.KindOf(err) != netx.RateLimited {
			t.Fatal(err)
		}
	}
	for n := range 100 {
		ask(&auth.Credentials{Password: fmt.Sprint("minted-", n), Source: "connection ns/app", Forget: func() {}})
	}
	if n := len(h.Requests()); n != 1 {
		t.Errorf("%d requests with the tokens of one App", n)
	}
	for range 2 {
		for n := range 200 {
			ask(&auth.Credentials{Password: fmt.Sprint("own-", n)})
		}
	}
	if n := len(h.Requests()); n != 200 {
		t.Errorf("%d requests with 200 tokens", n)
	}
}

// TestRedirectOfRenamedRepository: a repository that has a new name is asked there, with the same
// method and body.
func TestRedirectOfRenamedRepository(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Add("team/new", forgetest.Repository{DefaultBranch: "main"})
	h.Token(canary+"-token", forgetest.Rights{Hooks: true})
	h.Fault(func(r *http.Request) *forgetest.Answer {
		rest, old := strings.CutPrefix(r.URL.Path, "/api/v3/repos/team/site")
		if !old {
			return nil
		}
		return &forgetest.Answer{Status: 301, Header: map[string]string{"Location": h.URL + "/api/v3/repos/team/new" + rest}, Body: `{"message":"Moved Permanently"}`}
	})
	r := remoteOf(t, h, GitHub, "team/site")
	if f, err := facts(t.Context(), r); err != nil || f.Name != "team/new" {
		t.Fatalf("%+v %v", f, err)
	}
	if _, err := r.Create(t.Context(), Hook{URL: hookURL, Secret: canary}); err != nil {
		t.Fatal(err)
	}
	if kept := h.Hooks("team/new"); len(kept) != 1 || kept[0].Secret != canary {
		t.Fatalf("%+v", kept)
	}
}

// TestRedirectToOtherHost: a host cannot send a token on to a neighbour, whose address
// has the same scheme.
func TestRedirectToOtherHost(t *testing.T) {
	t.Parallel()
	neighbour := forgetest.New(t, forgetest.Options{})
	h := forgetest.New(t, forgetest.Options{})
	h.Fault(func(r *http.Request) *forgetest.Answer {
		return &forgetest.Answer{Status: 307, Header: map[string]string{"Location": neighbour.URL + r.URL.Path}}
	})
	r := remoteOf(t, h, GitHub, "team/site")
	if _, err := facts(t.Context(), r); netx.KindOf(err) != netx.Protocol {
		t.Errorf("%v", err)
	}
	if asked := neighbour.Requests(); len(asked) != 0 {
		t.Errorf("the neighbour was asked %q", asked)
	}
}

// TestEndlessAnswer: an answer that does not end is not read to its end.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	sent := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, part := 0, bytes.Repeat([]byte(" "), 64<<10)
		for n < most {
			if _, err := w.Write(part); err != nil {
				break
			}
			n += len(part)
		}
		sent <- n
	}))
	defer server.Close()
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	r, err := hosts.Remote(t.Context(), Target{Type: "gitlab", URL: server.URL + "/a/b"}, creds())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := facts(t.Context(), r); netx.KindOf(err) != netx.Protocol {
		t.Errorf("%v", err)
	}
	if n := <-sent; n >= most {
		t.Errorf("all of %d bytes were taken", n)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	ask := func(url string, creds *auth.Credentials) error {
		hosts := New(Options{AllowInsecure: true})
		defer hosts.Close()
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: url + "/team/site"}, creds)
		if err != nil {
			return err
		}
		_, err = facts(t.Context(), r)
		return err
	}
	if err := ask("http://127.0.0.1:1", creds()); netx.KindOf(err) != netx.Unavailable {
		t.Errorf("nobody listens: %v", err)
	}
	// A certificate that nobody knows, and the same with its authority.
	h := forgetest.New(t, forgetest.Options{TLS: true})
	h.Add("team/site", forgetest.Repository{})
	h.Token(canary+"-token", forgetest.Rights{})
	if err := ask(h.URL, creds()); netx.KindOf(err) != netx.Unavailable || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
		t.Errorf("an unknown certificate: %v", err)
	}
	trusting := creds()
	trusting.CA = h.CA
	if err := ask(h.URL, trusting); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	trusting.CA = []byte("x")
	if err := ask(h.URL, trusting); netx.KindOf(err) != netx.Invalid {
		t.Errorf("with a broken authority: %v", err)
	}
	// Credentials do not go over plain http unless that is wanted.
	hosts := New(Options{})
	for _, c := range []struct {
		creds *auth.Credentials
		kind  netx.ErrorKind
	}{{creds(), netx.Invalid}, {nil, netx.Unavailable}} {
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: "http://127.0.0.1:1/a/b"}, c.creds)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := facts(t.Context(), r); netx.KindOf(err) != c.kind {
			t.Errorf("plain http with %v: %v", c.creds, err)
		}
	}
}

// TestNoRequestAfterCancel: no request leaves after the context has ended, and
// none that is on its way holds a caller up.
func TestNoRequestAfterCancel(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer server.Close()
	defer close(release)
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: server.URL + "/team/site"}, creds())
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the agent stops")
	ctx, end := context.WithCancelCause(t.Context())
	calls := map[string]func() error{
		"list":   func() error { _, err := r.List(ctx); return err },
		"create": func() error { _, err := r.Create(ctx, Hook{URL: hookURL, Secret: canary}); return err },
		"edit":   func() error { _, err := r.Edit(ctx, Hook{ID: "1", URL: hookURL, Secret: canary}); return err },
		"delete": func() error { return r.Delete(ctx, "1") },
		"facts":  func() error { _, err := facts(ctx, r); return err },
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			err := call()
			silent(t, err)
			if netx.KindOf(err) != netx.Cancelled || !errors.Is(err, why) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	for range len(calls) {
		<-arrived
	}
	// A caller who has less time than a call may take hears of the host, not of himself.
	hurried, done := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer done()
	if _, err := facts(hurried, r); netx.KindOf(err) != netx.Unavailable || !strings.Contains(err.Error(), "no complete answer in time") {
		t.Errorf("%v", err)
	}
	end(why)
	wg.Wait()
	before := count.Load()
	for name, call := range calls {
		if err := call(); netx.KindOf(err) != netx.Cancelled {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
	if count.Load() != before {
		t.Errorf("%d requests after the end", count.Load()-before)
	}
}

// TestUnauthorizedIsReported: who keeps the credentials hears of a 401.
func TestUnauthorizedIsReported(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	told := 0
	c := creds()
	c.Forget = func() { told++ }
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	r, err := hosts.Remote(t.Context(), Target{Type: "gitlab", URL: h.URL + "/a/b"}, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := facts(t.Context(), r); netx.KindOf(err) != netx.Unauthorized || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
}

// TestSteadyErrors: the same trouble has the same text each time.
func TestSteadyErrors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.(*net.TCPConn).SetLinger(0) // reset
		conn.Close()
	}))
	defer server.Close()
	texts := map[string]bool{}
	for range 3 {
		hosts := New(Options{AllowInsecure: true})
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: server.URL + "/team/site"}, creds())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Edit(t.Context(), Hook{ID: "1"}); netx.KindOf(err) != netx.Unavailable {
			t.Fatal(err)
		}
		texts[err.Error()] = true
		hosts.Close()
	}
	if len(texts) != 1 {
		t.Errorf("%v", texts)
	}
	expired := fmt.Errorf("tls: %w", errors.New("x509: certificate has expired or is not yet valid: current time 2026-11-20T22:10:00Z is after 2026-01-01T00:00:00Z"))
	if got := netx.SteadyText(expired); got != "tls: x509: certificate has expired or is not yet valid" {
		t.Errorf("%q", got)
	}
}

func TestBitbucketPerson(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Add("work/site", forgetest.Repository{DefaultBranch: "main"})
	h.Token(canary+"-token", forgetest.Rights{User: "me@work.example"})
	hosts := New(Options{AllowInsecure: true, APIs: map[string]string{strings.TrimPrefix(h.URL, "http://"): h.URL + "/2.0"}})
	defer hosts.Close()
	for email, want := range map[string]netx.ErrorKind{"": netx.Unauthorized, "me@work.example": ""} {
		r, err := hosts.Remote(t.Context(), Target{Type: "bitbucket", URL: h.URL + "/work/site", Email: email}, creds())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := facts(t.Context(), r); netx.KindOf(err) != want {
			t.Errorf("with email %q: %v", email, err)
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	versions := func(h *forgetest.Host) (n int) {
		for _, r := range h.Requests() {
			if strings.HasSuffix(r, "/api/v1/version") {
				n++
			}
		}
		return n
	}
	h := forgetest.New(t, forgetest.Options{Speaks: []string{"gitea"}})
	h.Add("team/site", forgetest.Repository{DefaultBranch: "main"})
	h.Token(canary+"-token", forgetest.Rights{})
	hosts := New(Options{AllowInsecure: true})
	defer hosts.Close()
	target := Target{Type: "git", URL: h.URL + "/team/site.git"}

	// It is down at first: that is no answer.
	h.Fault(func(r *http.Request) *forgetest.Answer {
		if r.Header.Get("Authorization") != "" {
			t.Error("the probe shows credentials")
		}
		return &forgetest.Answer{Status: 502}
	})
	if _, err := hosts.Remote(t.Context(), target, creds()); netx.KindOf(err) != netx.Unavailable || errors.Is(err, ErrNone) {
		t.Fatalf("%v", err)
	}
	h.Fault(nil)
	h.Requests()
	for range 20 {
		if r, err := hosts.Remote(t.Context(), target, creds()); err != nil || r.Kind() != Gitea {
			t.Errorf("%v %v", r, err)
		}
	}
	if n := versions(h); n != 1 {
		t.Errorf("asked %d times for its version", n)
	}
	other := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	for range 3 {
		if _, err := hosts.Remote(t.Context(), Target{Type: "git", URL: other.URL + "/team/site.git"}, creds()); !errors.Is(err, ErrNone) {
			t.Errorf("%v", err)
		}
	}
	if n := versions(other); n != 1 {
		t.Errorf("asked %d times a host that is no Gitea", n)
	}

	// Something else has answered in its place, such as a proxy that wanted a
	// password: an hour later it is asked again.
	late := forgetest.New(t, forgetest.Options{Speaks: []string{"gitea"}})
	late.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 403} })
	find := func() error {
		_, err := hosts.Remote(t.Context(), Target{Type: "git", URL: late.URL + "/team/site.git"}, creds())
		return err
	}
	if err := find(); !errors.Is(err, ErrNone) {
		t.Fatalf("%v", err)
	}
	late.Fault(nil)
	if err := find(); !errors.Is(err, ErrNone) {
		t.Errorf("asked again at once: %v", err)
	}
	hosts.mu.Lock()
	for base, p := range hosts.probes {
		hosts.probes[base] = probe{p.gitea, p.at.Add(-negativeFor)}
	}
	hosts.mu.Unlock()
	if err := find(); err != nil {
		t.Errorf("after an hour: %v", err)
	}
	if n := versions(h); n != 0 {
		t.Errorf("a Gitea was asked %d times again", n)
	}
}
