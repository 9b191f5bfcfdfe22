package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/netx"
	"limpet/sync/testenv/gittest"
)

const sourceRepo = "https://source.developers.google.com/p/project/r/site"

// keyOnce makes one key for all tests.
var keyOnce = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// serviceAccount is the JSON that Google hands out.
func serviceAccount(t testing.TB, tokenURI string) string {
	t.Helper()
	key, err := keyOnce()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]string{"type": "service_account", "project_id": "project", "private_key_id": "kid-1",
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})),
		"client_email": "site@project.iam.gserviceaccount.com", "client_id": "1", "auth_uri": "https://accounts.google.com/o/oauth2/auth",
		"token_uri": tokenURI})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const googleToken = `{"access_token":"ya29.` + canary + `","expires_in":3599,"token_type":"Bearer"}`

func TestServiceAccount(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.says("POST /token", googleToken)
	p := here(t, "", sourceRepo).with("gcpServiceAccount", serviceAccount(t, c.URL+"/token"))
	p.refuses(t, netx.Invalid, "not below https://*.googleapis.com") // a Secret sends proofs to Google alone
	p.lookup.URL = c.URL + "/p/project/r/site"
	p.refuses(t, netx.Invalid, "https only")
	p.owner, p.lookup.Provider = true, "gcp"
	got := p.must(t)
	if got.Username != "site@project.iam.gserviceaccount.com" || got.Password != "ya29."+canary {
		t.Errorf("user %q, password %q", got.Username, got.Password)
	}
	asked := c.requests()
	head, proof, _ := strings.Cut(asked[0], "assertion=")
	proof, tail, _ := strings.Cut(proof, "\n")
	if head != "POST /token\nContent-Type: application/x-www-form-urlencoded\n" ||
		tail != "grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer" {
		t.Errorf("the request is %q", asked[0])
	}
	parts := strings.Split(proof, ".")
	var header map[string]string
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	decode(t, parts[0], &header)
	decode(t, parts[1], &claims)
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	key, _ := keyOnce()
	if err != nil || rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		t.Errorf("the signature does not hold: %v", err)
	}
	if header["alg"] != "RS256" || header["kid"] != "kid-1" || claims.Iss != got.Username || claims.Aud != c.URL+"/token" ||
		claims.Scope != "https://www.googleapis.com/auth/cloud-platform" || claims.Exp-claims.Iat > 3600 || claims.Iat > time.Now().Unix() ||
		claims.Exp < time.Now().Unix() {
		t.Errorf("header %v, claims %+v", header, claims)
	}
	p.must(t)
	equal(t, "a second look-up asks", c.requests(), nil)
	// Another key is another identity at once.
	p.keys["gcpServiceAccount"] = []byte(strings.Replace(string(p.keys["gcpServiceAccount"]), "kid-1", "kid-2", 1))
	p.must(t)
	if len(c.requests()) != 1 {
		t.Error("a replaced key has the token of the old one")
	}
}

// TestServiceAccountErrors: what Google, a proxy or a stranger says instead.
func TestServiceAccountErrors(t *testing.T) {
	t.Parallel()
	account := map[string]string{}
	if err := json.Unmarshal([]byte(serviceAccount(t, googleTokens)), &account); err != nil {
		t.Fatal(err)
	}
	key, _ := gittest.LargeRSA(t)
	account["private_key"] = string(key)
	here(t, "gcp", sourceRepo).with("gcpServiceAccount", string(gittest.Must[[]byte](t)(json.Marshal(account)))).
		refuses(t, netx.Invalid, "at most 8192 bits")
	echo := func(status int, form string) func(http.ResponseWriter, *http.Request, url.Values) {
		return func(w http.ResponseWriter, _ *http.Request, f url.Values) {
			w.WriteHeader(status)
			fmt.Fprintf(w, form, f.Get("assertion"))
		}
	}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, url.Values)
		kind   netx.ErrorKind
		text   string
	}{
		"refused": {echo(400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature %s"}`), netx.Unauthorized,
			"400 Bad Request: invalid_grant: Invalid JWT Signature [redacted]"},
		"late": {func(w http.ResponseWriter, r *http.Request, f url.Values) {
			w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			echo(400, `{"error":"invalid_grant","error_description":"Invalid JWT %s"}`)(w, r, f)
		}, netx.Unauthorized, "Invalid JWT"},
		"busy": {echo(503, `{"error":{"code":503,"message":"try later %s","status":"UNAVAILABLE"}}`), netx.Unavailable,
			"try later [redacted]"},
		"often":    {echo(429, `{}%s`), netx.RateLimited, "429"},
		"no token": {echo(200, `{"expires_in":3599,"x":"%s"}`), netx.Protocol, "no token"},
		"no life":  {echo(200, `{"access_token":"x","y":"%s"}`), netx.Protocol, "no lifetime"},
		"no json":  {echo(200, `ok %s`), netx.Protocol, "not that of a token endpoint"},
		"long":     {echo(200, strings.Repeat(" ", netx.MaxAnswer)+"%s"), netx.Protocol, "more than"},
		"redirected": {func(w http.ResponseWriter, r *http.Request, _ url.Values) {
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusTemporaryRedirect)
		}, netx.Protocol, "redirects"},
		"portal": {func(w http.ResponseWriter, _ *http.Request, _ url.Values) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>log in</html>")
		}, netx.Unavailable, "HTML page"},
		"silent": {func(w http.ResponseWriter, _ *http.Request, _ url.Values) { panic(http.ErrAbortHandler) }, netx.Unavailable, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			c.on("POST /token", test.answer)
			p := here(t, "gcp", c.URL+"/p/project/r/site").with("gcpServiceAccount", serviceAccount(t, c.URL+"/token"))
			p.owner = true
			p.refuses(t, test.kind, test.text, "service account site@project.iam.gserviceaccount.com", "POST "+c.URL+"/token")
			want := map[string]int{"late": 2}[name] // once more by the clock of the other side
			if n := len(c.requests()); n != max(want, 1) {
				t.Errorf("%d requests: nothing is followed or repeated", n)
			}
			p.refuses(t, test.kind, test.text) // told again, not asked again
			equal(t, "requests of a second look-up", c.requests(), nil)
		})
	}
}

func TestFederation(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	file := filepath.Join(t.TempDir(), "subject")
	write(t, file, `{"id_token":"subject-`+canary+`"}`)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	c.says("POST /v1/token", `{"access_token":"sts-`+canary+
		`","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`)
	c.says("POST /v1/projects/-/serviceAccounts/site@project.iam.gserviceaccount.com:generateAccessToken", `{"accessToken":"ya29.`+canary+
		`","expireTime":"`+until+`"}`)
	audience := "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/site"
	config := map[string]any{"type": "external_account", "audience": audience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url":                         c.URL + "/v1/token",
		"service_account_impersonation_url": c.URL + "/v1/projects/-/serviceAccounts/site@project.iam.gserviceaccount.com:generateAccessToken",
		"credential_source": map[string]any{"file": file,
			"format": map[string]string{"type": "json", "subject_token_field_name": "id_token"}}}
	text := func() string { data, _ := json.Marshal(config); return string(data) }
	exchange := func(subject string) string {
		return "POST /v1/token\nContent-Type: application/x-www-form-urlencoded\naudience=" + audience +
			"\ngrant_type=urn:ietf:params:oauth:grant-type:token-exchange" +
			"\nrequested_token_type=urn:ietf:params:oauth:token-type:access_token\nscope=https://www.googleapis.com/auth/cloud-platform\nsubject_token=" + subject + "\nsubject_token_type=urn:ietf:params:oauth:token-type:jwt"
	}
	impersonate := "POST /v1/projects/-/serviceAccounts/site@project.iam.gserviceaccount.com:generateAccessToken\nContent-Type: application/json\nAuthorization: Bearer sts-" + canary +
		"\n" + `{"lifetime":"3600s","scope":["https://www.googleapis.com/auth/cloud-platform"]}`
	p := here(t, "gcp", sourceRepo).with("gcpServiceAccount", text())
	p.refuses(t, netx.Invalid, "external_account")
	p.lookup.URL = c.URL + "/p/project/r/site"
	p.owner = true
	got := p.must(t)
	if got.Username != "site@project.iam.gserviceaccount.com" || got.Password != "ya29."+canary {
		t.Errorf("user %q, password %q", got.Username, got.Password)
	}
	equal(t, "requests", c.requests(), []string{exchange("subject-" + canary), impersonate})
	write(t, file, `{"id_token":"next-`+canary+`"}`)
	got.Refused()
	p.must(t)
	equal(t, "requests after the subject was replaced", c.requests(), []string{exchange("next-" + canary), impersonate})

	// From the environment, with a URL as the source and without a service account.
	c.says("GET /subject", "url-"+canary, "Content-Type", "text/plain")
	delete(config, "service_account_impersonation_url")
	config["credential_source"] = map[string]any{"url": c.URL + "/subject", "headers": map[string]string{"Metadata": "true"}}
	account := filepath.Join(t.TempDir(), "account.json")
	write(t, account, text())
	p = here(t, "gcp", sourceRepo, "GOOGLE_APPLICATION_CREDENTIALS", account)
	if got := p.must(t); got.Username != "git" || got.Password != "sts-"+canary {
		t.Errorf("user %q, password %q", got.Username, got.Password)
	}
	equal(t, "requests with a URL", c.requests(), []string{"GET /subject\nMetadata: true", exchange("url-" + canary)})
	c.fails("GET /subject", 500, "{}")
	p.restart(t)
	p.refuses(t, netx.Unavailable, "GET "+c.URL+"/subject", audience)

	// A Secret may hold none: it names files and hosts. A program is never started.
	p = here(t, "", sourceRepo).with("gcpServiceAccount", text())
	p.refuses(t, netx.Invalid, "external_account names files and hosts")
	config["credential_source"] = map[string]any{"executable": map[string]any{"command": "/bin/true"}}
	write(t, account, text())
	here(t, "gcp", sourceRepo, "GOOGLE_APPLICATION_CREDENTIALS", account).refuses(t, netx.Invalid, "limpet starts none")
}

func TestGoogleMetadata(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const at = "/computeMetadata/v1/instance/service-accounts/default/"
	c.says("GET "+at+"token", googleToken, "Metadata-Flavor", "Google")
	c.says("GET "+at+"email", "node@project.iam.gserviceaccount.com\n", "Metadata-Flavor", "Google", "Content-Type", "application/text")
	p := here(t, "gcp", sourceRepo, "GCE_METADATA_HOST", strings.TrimPrefix(c.URL, "http://"))
	if got := p.must(t); got.Username != "node@project.iam.gserviceaccount.com" || got.Password != "ya29."+canary {
		t.Errorf("user %q, password %q", got.Username, got.Password)
	}
	equal(t, "requests", c.requests(), []string{"GET " + at + "token\nMetadata-Flavor: Google",
		"GET " + at + "email\nMetadata-Flavor: Google"})
	p.lookup.URL = "https://site-1-git.europe-west1.sourcemanager.dev/project/site"
	p.must(t)
	equal(t, "another repository asks", c.requests(), nil)
	p.lookup.URL = "https://evil.example.com/p/project/r/site"
	p.refuses(t, netx.Invalid, "source.developers.google.com")
	// Something else that answers in a strange network is not believed.
	c.says("GET "+at+"token", googleToken)
	p = here(t, "gcp", sourceRepo, "GCE_METADATA_HOST", strings.TrimPrefix(c.URL, "http://"))
	p.refuses(t, netx.Unavailable, "Metadata-Flavor", "service account of this host")
}
