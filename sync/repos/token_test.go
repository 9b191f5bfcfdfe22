package repos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/reconcile"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/worker/checkout"
)

func TestTokenIsDue(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) int64 { return at.Add(d).UnixMilli() }
	hour := func(left time.Duration) api.TokenStatus {
		return api.TokenStatus{LastUpdated: in(left - time.Hour), Expiration: in(left)}
	}
	early := 130*time.Second + time.Duration(reconcile.Fraction(inOrder(nil).uid)*float64(5*time.Minute))
	for _, c := range []struct {
		rule   string
		token  *tokenFacts
		status api.TokenStatus
		due    bool
	}{
		{"no connection that mints", nil, api.TokenStatus{}, false},
		{"no secure.token", &tokenFacts{sealed: true}, hour(time.Hour), true},
		{"lastUpdated == 0", &tokenFacts{}, api.TokenStatus{Expiration: in(time.Hour)}, true},
		{"expiration 0 = never", &tokenFacts{}, api.TokenStatus{LastUpdated: 1}, false},
		{"good for a while", &tokenFacts{}, hour(131*time.Second + 5*time.Minute), false},
		{"its place comes before that", &tokenFacts{}, hour(early - time.Millisecond), true},
		{"and not earlier", &tokenFacts{}, hour(early + time.Second), false},
		{"expiry < now + 2 × resync + 10 s", &tokenFacts{}, hour(130 * time.Second), true},
		{"it has ended", &tokenFacts{}, hour(-time.Hour), true},
		{"the object is younger than 10 s", &tokenFacts{created: at.Add(-9 * time.Second)}, hour(time.Second), false},
		{"a short life is not renewed all the time", &tokenFacts{},
			api.TokenStatus{LastUpdated: in(-time.Second), Expiration: in(99 * time.Second)}, false},
		{"but in its last fifth", &tokenFacts{}, api.TokenStatus{LastUpdated: in(-80 * time.Second), Expiration: in(20 * time.Second)}, true},
		{"a stamp of the far future", &tokenFacts{}, api.TokenStatus{LastUpdated: in(-time.Second), Expiration: in(72 * time.Hour)}, true},
	} {
		f := inOrder(func(f *facts) { f.token, f.repo.Status.Token = c.token, c.status })
		if c.token != nil {
			c.token.resync = time.Minute
		}
		if got := f.tokenDue(); got != c.due {
			t.Errorf("%s: %t", c.rule, got)
		}
		if ill := inOrder(func(f *facts) {
			f.token, f.repo.Status.Token = c.token,
				c.status
			f.repo.Status.Health.Healthy = false
		}); ill.due().token {
			t.Errorf("%s: due for one that is not in order and rests", c.rule)
		}
	}
	waits := func(f *facts) {
		f.token, f.start = &tokenFacts{sealed: true}, reconcile.Start{At: at.Add(-time.Millisecond), Count: 1000}
	}
	if f := inOrder(waits); f.tokenDue() {
		t.Error("what was due before the start does not wait for its place")
	}
	if f := inOrder(func(f *facts) { waits(f); f.repo.Status.Health.Checked = 0 }); !f.tokenDue() {
		t.Error("a new one waits")
	}
}

// minting is a rig with a fake GitHub Enterprise in front of the Git host, whose App
// mints the only tokens that are let in.
type minting struct {
	*rig
	host  *forgetest.Host
	app   *forgetest.App
	where *forgetest.Installation
	seals bool

	minter *forge.Minter
}

func newMinting(t *testing.T, server string, change func(*rig, *Options)) *minting {
	t.Helper()
	m := &minting{host: forgetest.New(t, forgetest.Options{}), seals: server == "embedded"}
	m.where = &forgetest.Installation{Account: "team", Repositories: []string{"site"}, Permissions: forgetest.AllPermissions()}
	m.app = m.host.App(t, "123456", map[string]*forgetest.Installation{"454545": m.where})
	m.host.Add("team/site", forgetest.Repository{DefaultBranch: testenv.Branch})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	m.minter = forge.NewMinter(hosts, func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{PrivateKey: m.app.Key, Source: "the test"}, nil
	}, auth.NewTokens(0))
	m.rig = newRig(t, server, func(r *rig, o *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{Accept: func(user, token, path string) bool {
			return m.host.Accepts(user, token, strings.TrimSuffix(path, ".git"))
		}})
		get := func(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
			return r.client.Resource(api.Connections).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		}
		o.Remotes = checkout.Source{Credentials: m.minter.Source(get), AllowInsecure: true}.Remote
		o.Resync = time.Minute
		o.Tokens = &Tokens{Minter: m.minter, Connection: get, Sealed: m.seals}
		o.Webhooks, o.Store, o.Hosts = true, r.store, Forges(hosts)
		if change != nil {
			change(r, o)
		}
	})
	m.host.Behind(m.git)
	m.git.Serve("team/site.git", m.repo.Dir)
	m.repo.Add(t, "a.json")
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "App", "type": "githubEnterprise",
		"githubEnterprise": map[string]any{"appID": "123456", "installationID": "454545", "serverUrl": m.host.URL}}}}
	u.SetAPIVersion(api.Connections.GroupVersion().String())
	u.SetKind("Connection")
	u.SetName("app")
	if _, err := m.client.Resource(api.Connections).Namespace(m.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// use makes the Repository that uses the Connection.
func (m *minting) use(spec map[string]any) {
	m.t.Helper()
	all := map[string]any{"type": "githubEnterprise", "git": nil, "connection": map[string]any{"name": "app"},
		"sync":             map[string]any{"enabled": false},
		"githubEnterprise": map[string]any{"serverUrl": m.host.URL, "url": m.host.URL + "/team/site", "branch": testenv.Branch}}
	for k, v := range spec {
		all[k] = v
	}
	m.create(all, nil)
}

// sealed are the values that the embedded API keeps of the Repository, by field.
func (m *minting) sealed() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	eventually(m.t, "a value goes with its name", func() bool { // the next write replaces both
		repo, _ := m.get()
		clear(out)
		for field, value := range repo.Secure {
			plain, err := m.store.Secret(m.t.Context(), "secure/"+api.ProvisioningGroup+"/repositories/"+m.namespace+"/site/"+value.Name)
			if errors.Is(err, state.ErrNotFound) {
				return false
			}
			if err != nil {
				m.t.Fatal(err)
			}
			out[field] = string(plain)
		}
		return true
	})
	return out
}

// secretsIn looks for tokens and the key in what the API shows and the controller has
// written for others to read.
func (m *minting) secretsIn(tokens []string) {
	m.t.Helper()
	_, shown := m.get()
	text, err := shown.MarshalJSON()
	if err != nil {
		m.t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := m.store.Backup(m.t.Context(), &file); err != nil {
		m.t.Fatal(err)
	}
	for _, secret := range append(tokens, string(m.app.Key[40:100])) {
		if bytes.Contains(text, []byte(secret)) || bytes.Contains(file.Bytes(), []byte(secret)) {
			m.t.Error("a secret can be read")
		}
	}
}

// TestToken: a token is minted once for the request to the remote and for the status, is
// told in the one patch of the reconcile, given to a server that seals it and to no
// other, and renewed before its end and when the host refuses it.
func TestToken(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			m := newMinting(t, server, nil)
			m.use(nil)
			repo := m.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
			first := m.host.Minted()
			if len(first) != 1 {
				t.Fatalf("%d tokens were minted", len(first))
			}
			life := time.UnixMilli(repo.Status.Token.Expiration).Sub(time.UnixMilli(repo.Status.Token.LastUpdated))
			if life > time.Hour || life < 59*time.Minute {
				t.Errorf("status.token %+v", repo.Status.Token)
			}
			secret := ", add /secure, add /secure/token"
			again := ", add /secure/token"
			if !m.seals {
				secret, again = "", ""
			}
			const patch = "PATCH repositories/site/status: test /metadata/resourceVersion, "
			if got, want := m.writes.take(), patch+
				"add /status, add /status/health, add /status/observedGeneration, add /status/conditions, add /status/token"; len(got) != 1 ||
				!sameOps(got[0], want+secret) {
				t.Fatalf("writes\n%q\nwant\n%q", got, want+secret)
			}
			check := func(token string) {
				t.Helper()
				repo, _ := m.get()
				if m.seals && m.sealed()["token"] != token || !m.seals && len(repo.Secure) > 0 {
					t.Errorf("secure %v", repo.Secure)
				}
				m.secretsIn([]string{token})
			}
			check(first[0])

			_, u := m.get()
			f := facts{uid: string(u.GetUID()), repo: repo, token: &tokenFacts{resync: time.Minute}}
			left := func() time.Duration { return f.renewal().Sub(m.controller.now()) }
			m.later(left() - time.Minute)
			m.until("it is checked", func(now api.Repository) bool { return now.Status.Health.Checked > repo.Status.Health.Checked })
			if got := m.writes.take(); len(got) != 1 || strings.Contains(got[0], "token") {
				t.Errorf("a token that is good was written: %q", got)
			}
			eventually(t, "the next look is that for the token", func() bool {
				d := time.Until(m.controller.Next(m.namespace, "site")) - left()
				return d.Abs() < time.Second
			})

			m.later(left() + time.Second)
			now := m.until("it is renewed", func(now api.Repository) bool { return now.Status.Token.Expiration > repo.Status.Token.Expiration })
			if got := m.writes.take(); len(got) != 1 || got[0] != patch+"add /status/token"+again {
				t.Errorf("writes %q", got)
			}

			m.host.Revoke(first[0])
			m.later(healthyFor + time.Second)
			m.until("the new one is reported", func(repo api.Repository) bool { return repo.Status.Token.LastUpdated > now.Status.Token.LastUpdated })
			second := m.host.Minted()
			if got := m.writes.take(); len(second) != 1 || second[0] == first[0] || len(got) != 1 ||
				!strings.Contains(got[0], "add /status/token"+again) {
				t.Errorf("%d tokens, writes %q", len(second), got)
			}
			check(second[0])
			if repo, _ := m.get(); !repo.Status.Health.Healthy {
				t.Errorf("health %+v", repo.Status.Health)
			}
		})
	}
}

// sameOps compares a patch but for the order of its operations.
func sameOps(got, want string) bool {
	sorted := func(s string) []string {
		what, ops, _ := strings.Cut(s, ": ")
		all := strings.Split(ops, ", ")
		slices.Sort(all)
		return append(all, what)
	}
	return slices.Equal(sorted(got), sorted(want))
}

// TestNoToken: no token is minted where its Connection has none to give, nor in the place
// of a Secret that a person has made.
func TestNoToken(t *testing.T) {
	t.Parallel()
	t.Run("nothing to mint", func(t *testing.T) {
		t.Parallel()
		var asks atomic.Int64
		m := newMinting(t, "embedded", func(_ *rig, o *Options) {
			o.Tokens.Connection = func(context.Context, string, string) (*unstructured.Unstructured, error) {
				asks.Add(1)
				return nil, nil
			}
		})
		m.use(nil)
		for range 5 {
			before, _ := m.get()
			m.later(healthyFor + time.Second)
			m.until("it is checked", func(now api.Repository) bool { return now.Status.Health.Checked > before.Status.Health.Checked })
		}
		if repo, _ := m.get(); asks.Load() != 1 || repo.Status.Token.LastUpdated != 0 || !repo.Status.Health.Healthy {
			t.Errorf("asked %d times, status %+v", asks.Load(), repo.Status)
		}
		m.merge(`{"spec":{"title":"x"}}`)
		m.until("the change is dealt with", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 2 })
		if asks.Load() != 2 {
			t.Errorf("asked %d times after a change", asks.Load())
		}
	})
	t.Run("a person's Secret", func(t *testing.T) {
		t.Parallel()
		m := newMinting(t, "embedded", nil)
		m.use(nil)
		m.until("a token is there", func(repo api.Repository) bool { return repo.Status.Token.LastUpdated > 0 })
		m.merge(`{"spec":{"title":"x"},"secure":{"token":{"name":"mine"}}}`)
		m.later(2 * time.Hour)
		m.until("the change is dealt with", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 2 })
		repo, _ := m.get()
		if repo.Secure["token"].Name != "mine" {
			t.Errorf("secure %v", repo.Secure)
		}
	})
}

// TestTokenRefused: an installation that was suspended is reported as the fault of the
// Connection, in one patch, and when it is over the Repository is healthy by itself.
func TestTokenRefused(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "embedded", nil)
	m.host.Change(func() { m.where.Suspended = true })
	m.use(nil)
	repo := m.until("it is reported", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	if c := condition(repo, "Ready"); c.Status != "False" || c.Reason != "AuthenticationFailed" || repo.Status.Token.LastUpdated != 0 ||
		len(repo.Status.FieldErrors) != 1 || repo.Status.FieldErrors[0].Field != "spec.connection.name" {
		t.Errorf("condition %+v, status %+v", c, repo.Status)
	}
	m.wrote(1)
	m.host.Change(func() { m.where.Suspended = false })
	m.later(unhealthyFor + time.Second)
	repo = m.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	if repo.Status.Token.LastUpdated == 0 || m.sealed()["token"] != m.host.Minted()[0] {
		t.Errorf("status.token %+v", repo.Status.Token)
	}
	m.wrote(1)
}

// refusing is an API that forbids patches of one member.
type refusing struct {
	next   http.RoundTripper
	member string // "/secure"
	no     *atomic.Bool
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Method != http.MethodPatch || !r.no.Load() {
		return r.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(r.member)) {
		return r.next.RoundTrip(req)
	}
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not for you"}`
	return &http.Response{StatusCode: 403, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(status)), Request: req}, nil
}

// TestNoSecureValues: an API that cannot keep a secret is reported the rest.
func TestNoSecureValues(t *testing.T) {
	t.Parallel()
	var no atomic.Bool
	no.Store(true)
	m := newMinting(t, "embedded", func(r *rig, _ *Options) { r.writes.next = refusing{r.writes.next, "/secure", &no} })
	m.use(nil)
	repo := m.until("the rest is reported", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	if repo.Status.Token.LastUpdated == 0 || len(repo.Secure) > 0 {
		t.Errorf("status.token %+v, secure %v", repo.Status.Token, repo.Secure)
	}
	m.wrote(2)
	m.later(time.Second)
	no.Store(false)
	m.later(refusedCooldown + time.Second)
	m.until("the token is there", func(repo api.Repository) bool { return repo.Secure["token"].Name != "" })
	for _, line := range m.writes.take() {
		if strings.HasSuffix(line, "[403]") {
			t.Errorf("it was tried again: %s", line)
		}
	}
}

// TestDroppedSecureValues: a server that drops what it said that it seals is reported the
// rest, and is not given the token in every reconcile.
func TestDroppedSecureValues(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "real", func(_ *rig, o *Options) {
		o.Tokens.Sealed = true // its status takes nothing else
	})
	m.use(nil)
	repo := m.until("it is reported", func(repo api.Repository) bool { return repo.Status.Token.LastUpdated > 0 })
	m.wrote(1)
	m.later(healthyFor + time.Second)
	m.until("it is checked", func(now api.Repository) bool { return now.Status.Health.Checked > repo.Status.Health.Checked })
	if got := m.writes.take(); len(got) != 1 || strings.Contains(got[0], "/secure") || strings.Contains(got[0], "/token") {
		t.Errorf("writes %q", got)
	}
}

// TestHandOver: a server that seals has the secret of the webhook that limpet makes,
// as long as there is one.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			m := newMinting(t, server, func(_ *rig, o *Options) { o.WebhookBase = "https://limpet.example.com" })
			m.use(map[string]any{"workflows": []any{"write"}})
			m.until("it has a webhook", func(repo api.Repository) bool { return repo.Status.Webhook != nil })
			hooks := m.host.Hooks("team/site")
			if len(hooks) != 1 {
				t.Fatalf("hooks %+v", hooks)
			}
			if m.seals && m.sealed()["webhookSecret"] != hooks[0].Secret {
				t.Error("the server has another secret than the host")
			}
			m.wrote(1)
			m.secretsIn([]string{hooks[0].Secret})
			m.later(rotateAfter + time.Second)
			m.until("it has a new secret", func(api.Repository) bool { return m.host.Hooks("team/site")[0].Secret != hooks[0].Secret })
			if m.seals {
				eventually(t, "so has the server", func() bool { return m.sealed()["webhookSecret"] == m.host.Hooks("team/site")[0].Secret })
			}
			m.merge(`{"spec":{"webhook":{"disabled":true}}}`)
			repo := m.until("it is gone", func(repo api.Repository) bool {
				return repo.Status.Webhook == nil && repo.Status.ObservedGeneration == 2
			})
			if repo.Secure["webhookSecret"].Name != "" {
				t.Errorf("secure %v", repo.Secure)
			}
			if !m.seals {
				for _, line := range m.writes.take() {
					if strings.Contains(line, "/secure") {
						t.Errorf("a secret was sent: %s", line)
					}
				}
			}
		})
	}
}
