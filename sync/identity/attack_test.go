package identity

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/netx"
)

// TestSecretChoosesNoEndpoint: keys of a Secret beside those of a provider do not say where its
// identity, or that of this host, is shown.
func TestSecretChoosesNoEndpoint(t *testing.T) {
	t.Parallel()
	own, foreign := newCloud(t), newCloud(t)
	own.says("GET /metadata/identity/oauth2/token", `{"access_token": "managed", "expires_in": 3600}`)
	p := here(t, "azure", devops, "AZURE_POD_IDENTITY_AUTHORITY_HOST", own.URL)
	p.with("AZURE_POD_IDENTITY_AUTHORITY_HOST", foreign.URL).must(t)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, canary)
	for _, keys := range [][]string{
		{"AWS_ENDPOINT_URL_STS", foreign.URL},
		{"AWS_EC2_METADATA_SERVICE_ENDPOINT", foreign.URL},
		{"AWS_ROLE_ARN", "arn:aws:iam::1:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ENDPOINT_URL_STS", foreign.URL},
	} {
		p := here(t, "aws", codecommit, "AWS_EC2_METADATA_SERVICE_ENDPOINT", own.URL)
		if got, err := p.with(keys...).credentials(t.Context()); err == nil {
			t.Errorf("%q give %v", keys, got)
		}
	}
	if asked := foreign.requests(); len(asked) > 0 {
		t.Errorf("the endpoint of the Secret was asked: %q", asked)
	}
}

// TestKeysAreNotMixed: what belongs to one identity is not completed with what the
// environment has for another.
func TestKeysAreNotMixed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	p := here(t, "aws", codecommit, "AWS_ACCESS_KEY_ID", "ASIAENV", "AWS_SECRET_ACCESS_KEY", "of the environment", "AWS_SESSION_TOKEN",
		"of-the-environment", "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL)
	p.owner = true
	if got := p.with("AWS_ACCESS_KEY_ID", "AKIDRULE", "AWS_SECRET_ACCESS_KEY", canary).must(t); got.Username != "AKIDRULE" {
		t.Errorf("the session of the environment goes with the keys of a rule: %s", got.Username)
	}
	p.with("AWS_ACCESS_KEY_ID", "AKIDRULE").refuses(t, netx.Invalid, "AWS_SECRET_ACCESS_KEY")
	// Also where the environment names nobody, and where it names the same one.
	for _, env := range [][]string{{"AWS_SESSION_TOKEN", "of-the-environment"}, {"AWS_ACCESS_KEY_ID", "AKIDRULE", "AWS_SESSION_TOKEN",
		"of-the-environment"}} {
		p = here(t, "aws", codecommit, env...)
		p.owner = true
		if got := p.with("AWS_ACCESS_KEY_ID", "AKIDRULE", "AWS_SECRET_ACCESS_KEY", canary).must(t); got.Username != "AKIDRULE" {
			t.Errorf("a session of the environment %q goes with the keys of a file: %s", env, got.Username)
		}
	}
	p = here(t, "aws", codecommit, "AWS_SECRET_ACCESS_KEY", canary)
	p.owner = true
	if got := p.with("AWS_ACCESS_KEY_ID", "AKIDRULE").must(t); got.Username != "AKIDRULE" { // a secret that is kept out of the file
		t.Errorf("user %s", got.Username)
	}
	here(t, "aws", codecommit, "AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL).refuses(t, netx.Invalid,
		"AWS_SECRET_ACCESS_KEY")

	c = newEntra(t)
	c.on("POST /tenant/oauth2/v2.0/token", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "for-%s", "expires_in": 3600}`, form.Get("client_id"))
	})
	c.says("GET /metadata/identity/oauth2/token", `{"access_token": "managed", "expires_in": 3600}`, "Content-Type", "application/json")
	p = here(t, "azure", devops, "AZURE_AUTHORITY_HOST", c.URL, "AZURE_TENANT_ID", "tenant", "AZURE_CLIENT_ID", "other",
		"AZURE_CLIENT_SECRET", "secret-of-the-other", "AZURE_POD_IDENTITY_AUTHORITY_HOST", c.URL)
	p.owner = true
	if got := p.with("AZURE_CLIENT_ID", "mine").must(t); got.Bearer != "managed" {
		t.Errorf("the token is %s", got.Bearer)
	}
	for _, asked := range c.requests() {
		if strings.Contains(asked, "secret-of-the-other") || strings.Contains(asked, "tenant") {
			t.Errorf("the secret of another client is told: %s", asked)
		}
	}
}

// TestWrongClock: what is signed for Google carries its time where the clock of this host is wrong,
// after the first refusal.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.on("POST /token", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
		var claims struct{ Iat, Exp int64 }
		decode(t, strings.Split(form.Get("assertion"), ".")[1], &claims)
		there := time.Now().Add(24 * time.Hour)
		w.Header().Set("Date", there.UTC().Format(http.TimeFormat))
		if there.Unix() > claims.Exp {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, googleToken)
	})
	g := here(t, "gcp", sourceRepo).with("gcpServiceAccount", serviceAccount(t, c.URL+"/token"))
	g.owner = true
	g.must(t)
	if n := len(c.requests()); n != 2 {
		t.Errorf("Google was asked %d times", n)
	}
	// Where nobody of the cloud was asked, the clock of the API is better than none.
	p := here(t, "aws", codecommit, "AWS_ACCESS_KEY_ID", "AKID", "AWS_SECRET_ACCESS_KEY", canary)
	p.Identities = New(Options{Getenv: func(k string) string { return p.env[k] },
		Now: func() time.Time { return time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC) }})
	if got := p.must(t); !strings.HasPrefix(got.Password, "20310102T030405Z") {
		t.Errorf("the password is %s", got.Password[:16])
	}
}
