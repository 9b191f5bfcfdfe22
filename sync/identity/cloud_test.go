package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/netx"
)

// canary is in every secret of these tests.
const canary = "s3cr3t-canary"

// fakeCloud is a fake of the endpoints of a cloud: it speaks their documented wire
// form, keeps what was asked, and makes no tokens of its own.
type fakeCloud struct {
	*httptest.Server

	mu      sync.Mutex // guards what follows
	answers map[string]func(w http.ResponseWriter, r *http.Request, form url.Values)
	asked   []string
}

func newCloud(t testing.TB) *fakeCloud { return startCloud(t, httptest.NewServer) }

// newEntra is a cloud over TLS, as the token endpoint of Azure is.
func newEntra(t testing.TB) *fakeCloud { return startCloud(t, httptest.NewTLSServer) }

func startCloud(t testing.TB, start func(http.Handler) *httptest.Server) *fakeCloud {
	c := &fakeCloud{answers: map[string]func(http.ResponseWriter, *http.Request, url.Values){}}
	c.Server = start(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

// shown are the headers that a documented request has.
var shown = []string{"Metadata", "Metadata-Flavor", "Content-Type", "Authorization", "X-Aws-Ec2-Metadata-Token",
	"X-Aws-Ec2-Metadata-Token-Ttl-Seconds"}

func (c *fakeCloud) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := r.Method + " " + r.URL.RequestURI()
	for _, name := range shown {
		if v := r.Header.Get(name); v != "" {
			text += "\n" + name + ": " + v
		}
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		form = nil
	}
	for _, key := range sorted(form) {
		text += "\n" + key + "=" + form.Get(key)
	}
	if form == nil && len(body) > 0 {
		text += "\n" + strings.TrimSpace(string(body))
	}
	c.mu.Lock()
	c.asked = append(c.asked, text)
	answer := c.answers[r.Method+" "+r.URL.Path]
	c.mu.Unlock()
	if answer == nil {
		http.Error(w, "no such endpoint", http.StatusNotFound)
		return
	}
	answer(w, r, form)
}

func sorted(form url.Values) []string {
	var keys []string
	for k := range form {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// on says how a method and path are answered.
func (c *fakeCloud) on(what string, answer func(w http.ResponseWriter, r *http.Request, form url.Values)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[what] = answer
}

// says answers with a text.
func (c *fakeCloud) says(what, body string, headers ...string) {
	c.on(what, func(w http.ResponseWriter, _ *http.Request, _ url.Values) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		io.WriteString(w, body)
	})
}

// fails answers with an error.
func (c *fakeCloud) fails(what string, status int, body string) {
	c.on(what, func(w http.ResponseWriter, _ *http.Request, _ url.Values) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

// requests are those since the last call.
func (c *fakeCloud) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.asked
	c.asked = nil
	return out
}

// place is an agent with an environment and the keys of one repository.
type place struct {
	env    map[string]string
	keys   map[string][]byte // nil = there are none
	lookup auth.Lookup
	owner  bool // the keys are from a rule of the config file
	*Identities
}

// here makes a place; env and keys come as name and value.
func here(t testing.TB, provider, repository string, env ...string) *place {
	t.Helper()
	p := &place{env: map[string]string{}, lookup: auth.Lookup{Namespace: "default", Repository: "site", URL: repository, Provider: provider}}
	for i := 0; i+1 < len(env); i += 2 {
		p.env[env[i]] = env[i+1]
	}
	p.restart(t)
	return p
}

// restart forgets what was in memory.
func (p *place) restart(t testing.TB) {
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	p.Identities = New(Options{Apps: hosts, AllowInsecure: true, Getenv: func(k string) string { return p.env[k] }})
	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	p.providers["azure"].(*azure).registry.client.Transport = trusting
}

// with gives keys.
func (p *place) with(keys ...string) *place {
	if p.keys = map[string][]byte{}; len(keys)%2 != 0 {
		panic("a key without a value")
	}
	for i := 0; i+1 < len(keys); i += 2 {
		p.keys[keys[i]] = []byte(keys[i+1])
	}
	return p
}

// credentials looks up what the repository is asked with.
func (p *place) credentials(ctx context.Context) (*auth.Credentials, error) {
	get := func(context.Context, string, string) (map[string][]byte, error) { return p.keys, nil }
	l := p.lookup
	l.Secure = map[string]string{"token": "keys"}
	from := auth.Places{Secrets: get}.Credentials
	if p.owner {
		values := map[string]string{}
		for k, v := range p.keys {
			values[k] = string(v)
		}
		rule := auth.Rule{URL: originOf(p.lookup.URL), Provider: l.Provider, Values: values}
		if err := rule.Check(); err != nil {
			return nil, err
		}
		from = auth.Places{Rules: auth.NewList([]auth.Rule{rule})}.Credentials
	}
	return p.Source(from)(ctx, l)
}

func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return u.Scheme + "://" + u.Host
}

// must look up.
func (p *place) must(t *testing.T) *auth.Credentials {
	t.Helper()
	c, err := p.credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Identity != nil || strings.Contains(fmt.Sprintf("%v %+v %#v", c, c, *c), canary) {
		t.Fatalf("the credentials are not complete, or print a secret: %v", c)
	}
	return c
}

// refuses wants an error of a kind with all the texts, and without a secret.
func (p *place) refuses(t *testing.T, kind netx.ErrorKind, texts ...string) {
	t.Helper()
	c, err := p.credentials(t.Context())
	if err == nil {
		t.Fatalf("it gives %v", c)
	}
	if got := netx.KindOf(err); got != kind {
		t.Errorf("the kind is %q, want %q: %v", got, kind, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoes not say %q", err, text)
		}
	}
	if strings.Contains(fmt.Sprintf("%v %+v", err, err), canary) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a secret or a line break in: %v", err)
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n--\n"), strings.Join(want, "\n--\n"))
	}
}
