package e2e

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv"
)

// cloudLife is how long the tokens of vouchers live: a run sees several.
const tokenLifetime = 5 * time.Second

// tokenIssuer is a fake of all token services in their documented wire form, and a real git
// http-backend that accepts their tokens. Every secret has the canary in it.
type tokenIssuer struct {
	*httptest.Server
	git *testenv.GitServer

	mu     sync.Mutex // guards what follows
	tokens map[string]issuedToken
	issued map[string]int // by who made them
	refuse bool
	next   string // refresh token of GitLab that is good
}

// issuedToken is the use of a token.
type issuedToken struct {
	path  string // of the repository
	until time.Time
}

const tokenCanary = "s3cr3t-canary-identity"

func newTokenIssuer(t *testing.T) *tokenIssuer {
	t.Helper()
	v := &tokenIssuer{git: testenv.Git(t, testenv.GitOptions{}), tokens: map[string]issuedToken{}, issued: map[string]int{},
		next: "refresh-0-" + tokenCanary}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(v.Close)
	return v
}

// issue makes a token for a path.
func (v *tokenIssuer) issue(who string) string {
	v.issued[who]++
	token := fmt.Sprintf("%s-%d-%s", who, v.issued[who], tokenCanary)
	v.tokens[token] = issuedToken{"/" + who + "/", time.Now().Add(tokenLifetime)}
	return token
}

func (v *tokenIssuer) serve(w http.ResponseWriter, r *http.Request) {
	if who, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/site.git"); ok {
		if !v.accepts(who, r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		v.git.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.refuse { // with all that it was sent
		w.WriteHeader(http.StatusBadRequest)
		text, _ := url.QueryUnescape(string(body))
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": text + r.Header.Get("Authorization"),
			"message": text + r.Header.Get("Authorization")})
		return
	}
	until, seconds := time.Now().Add(tokenLifetime).UTC().Format(time.RFC3339Nano), int(tokenLifetime/time.Second)
	switch {
	case r.URL.Path == "/google/token" && form.Get("assertion") != "":
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":%d,"token_type":"Bearer"}`, v.issue("gcp"), seconds)
	case r.URL.Path == "/oauth/token" && form.Get("refresh_token") == v.next:
		token := v.issue("gitlab")
		v.next = "refresh-" + token
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":%d,"refresh_token":%q,"token_type":"Bearer"}`, token, seconds, v.next)
	case r.URL.Path == "/api/v3/app/installations/34/access_tokens" && strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ey"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":%q,"expires_at":%q}`, v.issue("github"), until)
	case form.Get("Action") == "AssumeRoleWithWebIdentity" && form.Get("WebIdentityToken") == "projected-"+tokenCanary:
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIALENT</AccessKeyId><SecretAccessKey>aws-%s</SecretAccessKey>
			<SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, tokenCanary, v.issue("aws"), until)
	default:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_request"}`)
	}
}

// accepts checks the credentials as each Git host does.
func (v *tokenIssuer) accepts(who string, r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	token := password
	switch who {
	case "aws":
		id, session, _ := strings.Cut(user, "%")
		if id != "ASIALENT" || !signedForGit(password, r.Host, "/aws/site.git") {
			return false
		}
		user, token = "", session
	}
	want := map[string]string{"gcp": "site@project.iam.gserviceaccount.com", "github": "x-access-token", "gitlab": "oauth2"}[who]
	v.mu.Lock()
	defer v.mu.Unlock()
	good, known := v.tokens[token]
	return known && user == want && good.path == "/"+who+"/" && time.Now().Before(good.until)
}

// signedForGit checks a password as CodeCommit does.
func signedForGit(password, host, path string) bool {
	stamp, signature, ok := strings.Cut(password, "Z")
	if !ok || len(stamp) != len("20060102T150405") {
		return false
	}
	hash := func(text string) string { sum := sha256.Sum256([]byte(text)); return hex.EncodeToString(sum[:]) }
	key := []byte("AWS4aws-" + tokenCanary)
	for _, part := range []string{stamp[:8], "eu-west-1", "codecommit", "aws4_request", "AWS4-HMAC-SHA256\n" + stamp + "\n" + stamp[:8] +
		"/eu-west-1/codecommit/aws4_request\n" + hash("GIT\n"+path+"\n\nhost:"+host+"\n\nhost\n")} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return signature == hex.EncodeToString(key)
}

// count returns how many tokens were issued.
func (v *tokenIssuer) count(who string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.issued[who]
}

// revoke ends all tokens; refuse also refuses new ones.
func (v *tokenIssuer) revoke(refuse bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens, v.refuse = map[string]issuedToken{}, refuse
}

// TestIdentities pulls with the credentials that each provider makes while they
// end, are revoked, and are refused. No job fails for a token that has ended, and
// no secret is anywhere afterwards.
func TestIdentities(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	v, h := newTokenIssuer(t), newHome(t)
	repo := testenv.Repo(t, 2, 2)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "site@project.iam.gserviceaccount.com",
		"private_key": private, "private_key_id": "kid", "token_uri": v.URL + "/google/token"})
	if err != nil {
		t.Fatal(err)
	}
	h.file(t, ".config/limpet/config.yaml", fmt.Sprintf(`git-credentials:
- url: %[1]s/gcp
  provider: gcp
  files: {gcpServiceAccount: %[2]s}
- url: %[1]s/aws
  provider: aws
  values: {AWS_REGION: eu-west-1}
`, v.URL, h.file(t, "credentials/gcp.json", string(account))))
	for name, text := range map[string]string{"githubAppID": "12", "githubAppInstallationID": "34", "githubAppPrivateKey": private,
		"githubAppBaseURL": v.URL + "/api/v3"} {
		h.file(t, "credentials/default.via-github/"+name, text)
	}
	h.env = append(h.env, "AWS_ENDPOINT_URL_STS="+v.URL, "AWS_ROLE_ARN=arn:aws:iam::1:role/site", "AWS_WEB_IDENTITY_TOKEN_FILE="+
		h.file(t, "credentials/projected", "projected-"+tokenCanary))
	flags := []string{"--credentials-dir", filepath.Join(h.dir, "credentials"), "--allow-insecure-git", "--resync-interval", "1s",
		"--sink-prefix", h.dir}
	d := h.daemon(t, flags...)
	names := []string{"aws", "gcp", "github", "gitlab"} // Azure takes https alone; package identity has its tests
	for _, name := range names {
		v.git.Serve(name+"/site.git", repo.Dir)
		if name == "gitlab" { // sealed in the embedded API
			site := fmt.Sprintf(`{apiVersion: provisioning.grafana.app/v0alpha1, kind: Repository, metadata: {name: via-gitlab, namespace: default, annotations: {limpet/git-provider: gitlab, limpet/sink-dir: %q}},
				spec: {title: x, type: git, git: {url: %q, branch: %s, path: %s}, sync: {enabled: true, target: folder, intervalSeconds: 86400}},
				secure: {gitlabAppID: {create: app}, gitlabAppSecret: {create: "app-%[5]s"}, gitlabAppRefreshToken: {create: "refresh-0-%[5]s"}}}`,
				filepath.Join(h.dir, "sinks", name), v.URL+"/gitlab/site.git", testenv.Branch, testenv.Directory, tokenCanary)
			if r := h.runWithInput(t, site, "apply", "-f", "-"); r.code != 0 || strings.Contains(r.err, "unknown") {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			continue
		}
		h.must(t, 0, "repo", "create", "via-"+name, "--url", v.URL+"/"+name+"/site.git", "--branch", testenv.Branch, "--path", testenv.Directory,
			"--interval", "24h",
			"--sink-dir", filepath.Join(h.dir, "sinks", name))
	}
	pull := func(what string, enough int) {
		t.Helper()
		until(t, what, func() bool {
			done := true
			for _, name := range names {
				h.must(t, 0, "repo", "pull", "via-"+name, "--wait")
				done = done && v.count(name) >= enough
			}
			return done
		})
	}
	pull("each provider has made another token", 2)
	v.revoke(false)
	pull("a revoked token is replaced", 3)
	d.stop(t)
	d2 := h.daemon(t, flags...) // with GitLab's newest refresh token
	pull("after a restart", 4)
	for _, r := range h.history(t) {
		if r.State != "success" {
			t.Errorf("job %s ended as %s: %+v", r.Name, r.State, r)
		}
	}
	var told strings.Builder
	told.WriteString(h.evidence(t, d2, "via-gitlab"))
	v.revoke(true)
	for _, name := range names {
		if r := h.run(t, "repo", "pull", "via-"+name, "--wait", "--timeout", "20s"); r.code == 0 {
			t.Errorf("%s is pulled without a token", name)
		} else {
			told.WriteString(r.out + r.err)
		}
	}
	told.WriteString(h.evidence(t, d2, "via-gitlab"))
	d2.stop(t)
	lines := strings.Split(strings.TrimSpace(private), "\n")
	secrets := []string{tokenCanary, lines[1], base64.StdEncoding.EncodeToString([]byte(private))[:60]}
	h.noSecret(t, d.log.String()+d2.log.String()+told.String(), secrets...)
	// Authorization headers hide it; so do users and passwords joined.
	for _, log := range []string{d.log.String(), d2.log.String(), told.String()} {
		for _, user := range []string{"oauth2", "x-access-token", "site@project.iam.gserviceaccount.com"} {
			if strings.Contains(log, base64.StdEncoding.EncodeToString([]byte(user + ":"))[:8]) {
				t.Errorf("an Authorization header of %s is in a log", user)
			}
		}
	}
}
