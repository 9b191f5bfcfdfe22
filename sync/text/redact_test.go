package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

const canary = "canary-7b1f6c2e"

func TestRedact(t *testing.T) {
	RegisterSecret([]byte(" " + canary + "/+=\n"))
	RegisterSecret([]byte("short"))
	token := "eyJhbGciOiJub25lIn0.eyJleHAiOjIwMDAwMDAwMDAsIm4iOjF9.c2lnbmF0dXJl"
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIE" + canary + "\nabc\n-----END RSA PRIVATE KEY-----"
	for name, tc := range map[string]struct{ in, want string }{
		"registered":      {"the token " + canary + "/+= was refused", "the token [redacted] was refused"},
		"in a query":      {"GET /x?q=" + url.QueryEscape(canary+"/+="), "GET /x?q=[redacted]"},
		"too short":       {"a short text", "a short text"},
		"authorization":   {"Authorization: Bearer abcdef123456, Accept: x", "Authorization: [redacted], Accept: x"},
		"header map":      {`map[X-Access-Token:[Bearer abcdef123456] A:[b]]`, `map[X-Access-Token:[[redacted]] A:[b]]`},
		"json header":     {`{"authorization":"Basic dXNlcjpwYXNz"}`, `{"authorization":"[redacted]"}`},
		"basic":           {"sent Basic dXNlcjpwYXNzd29yZA== to it", "sent Basic [redacted] to it"},
		"url":             {"clone https://user:pa:ss@git.example.com/x.git", "clone https://[redacted]@git.example.com/x.git"},
		"url, user only":  {"clone https://ghp_0123@host/x", "clone https://[redacted]@host/x"},
		"url, two ats":    {"https://a:b@c@host/x", "https://[redacted]@host/x"},
		"url, a slash":    {"at https://u:p/4@b@host:80/x", "at https://[redacted]@host:80/x"},
		"url, a hash":     {"at https://u:1p#4/?b@host/x", "at https://[redacted]@host/x"},
		"url, an address": {"at https://[::1]:80/x@v1", "at https://[::1]:80/x@v1"},
		"url, plain":      {"see https://host:6443/apis/x@v1?a=b", "see https://host:6443/apis/x@v1?a=b"},
		"query":           {"GET /x?a=1&access_token=abc&b=2", "GET /x?a=1&access_token=[redacted]&b=2"},
		"json web token":  {"got " + token + ".", "got [redacted]."},
		"github":          {"with ghp_abcdefghijklmnop1234", "with [redacted]"},
		"grafana":         {"with glsa_abcdefghijklmnop_1234", "with [redacted]"},
		"pem":             {"key " + pem + " end", "key [redacted] end"},
		"pem, cut":        {"key -----BEGIN PRIVATE KEY-----\nMIIE", "key [redacted]"},
		"nothing":         {"pull job r1-sync of default/r1 at 3f2a", "pull job r1-sync of default/r1 at 3f2a"},
		"mail":            {"author jo@example.com", "author jo@example.com"},
		"ssh remote":      {"git@github.com:a/b.git", "git@github.com:a/b.git"},
		"ssh user":        {"fetch ssh://git@host:22/a.git, SSH://ann.b@host/a", "fetch ssh://git@host:22/a.git, SSH://ann.b@host/a"},
		"ssh password":    {"fetch ssh://git:pw@host/a.git", "fetch ssh://[redacted]@host/a.git"},
		"ssh, two ats":    {"fetch ssh://pw@git@host/a.git", "fetch ssh://[redacted]@host/a.git"},
		"ssh, registered": {"fetch ssh://" + canary + "/+=@host/a.git", "fetch ssh://[redacted]@host/a.git"},
		"ssh, a token":    {"fetch ssh://ghp_abcdefghijklmnop1234@host/a.git", "fetch ssh://[redacted]@host/a.git"},
		"ssh, odd user":   {"fetch ssh://a%3Apw@host/a.git", "fetch ssh://[redacted]@host/a.git"},
		"not ssh": {"fetch git+https://git@host/a.git nossh://git@host/a",
			"fetch git+https://[redacted]@host/a.git nossh://[redacted]@host/a"},
		"words":           {"the token in Authorization: Bearer is missing", "the token in Authorization: Bearer is missing"},
		"a placeholder":   {"send Authorization: Bearer TOKEN or X-Access-Token: Bearer TOKEN", "send Authorization: Bearer TOKEN or X-Access-Token: Bearer TOKEN"},
		"an instruction":  {"use basic authentication; bearer required.", "use basic authentication; bearer required."},
		"a word":          {"Authorization: Bearer swordfish", "Authorization: [redacted]"},
		"a short word":    {"proxy-authorization: basic abcde", "proxy-authorization: [redacted]"},
		"a word of json":  {`{"Authorization":"Bearer mysecrettoken"}`, `{"Authorization":"[redacted]"}`},
		"a private token": {"private-token: token hunter", "private-token: [redacted]"},
		"letters":         {"Authorization: Bearer ProvisioningAdminToken", "Authorization: [redacted]"},
		"no scheme":       {"X-Access-Token: hunter", "X-Access-Token: [redacted]"},
		"the word bearer": {"a bearer of news", "a bearer of news"},
	} {
		if got := Redact(tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestRedactError(t *testing.T) {
	RegisterSecret([]byte(canary))
	if RedactError(nil) != nil {
		t.Error("nil is not nil")
	}
	clean := errors.New("open file")
	if RedactError(clean) != clean {
		t.Error("a clean error is wrapped")
	}
	err := RedactError(fmt.Errorf("send %s: %w", canary, fs.ErrNotExist))
	if err.Error() != "send [redacted]: file does not exist" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

type speaker string

func (s speaker) String() string { return string(s) }

func TestRedactAttr(t *testing.T) {
	RegisterSecret([]byte(canary))
	var text, structured bytes.Buffer
	options := &slog.HandlerOptions{ReplaceAttr: RedactAttr}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&text, options), slog.NewJSONHandler(&structured, options)} {
		slog.New(handler).With("config", struct{ Token, Server string }{canary, "https://u:" + canary + "@host"}).Info("say "+canary,
			"string", "a "+canary, "err", fmt.Errorf("b %s", canary), "bytes", []byte(canary), "stringer", speaker(canary),
			"struct", struct{ A, B string }{"c", canary}, "map", map[string]string{"k": canary}, "n", 42,
			"token", "x", "Password", "y", "secret", false, slog.Group("g", "in", canary, "secret", []int{1}), "nil", nil, "took", time.Minute)
	}
	for name, out := range map[string]string{"text": text.String(), "json": structured.String()} {
		if strings.Contains(out, canary) {
			t.Errorf("%s tells the secret: %s", name, out)
		}
		if !strings.Contains(out, "42") || !strings.Contains(out, "g") {
			t.Errorf("%s lost something: %s", name, out)
		}
	}
	var line map[string]any
	if err := json.Unmarshal(structured.Bytes(), &line); err != nil || line["token"] != Redacted || line["Password"] != Redacted ||
		line["secret"] != false || line["took"] != "1m0s" {
		t.Errorf("line %v, %v", line, err)
	}
}

// TestRegisterSecretKeepsLasting registers many tokens, which displace no secret.
func TestRegisterSecretKeepsLasting(t *testing.T) {
	RegisterSecret([]byte("lasting-secret-value"))
	for n := range 1000 {
		RegisterToken(fmt.Sprintf("fleeting-token-%04d", n))
	}
	if got := Redact("lasting-secret-value fleeting-token-0999"); got != "[redacted] [redacted]" {
		t.Errorf("got %q", got)
	}
	if n := len(secrets.Load().tokens); n != maxTokens {
		t.Errorf("%d fleeting secrets are kept", n)
	}
}

// FuzzRedact: no secret is left, and no text matches a format without having a part of it.
func FuzzRedact(f *testing.F) {
	RegisterSecret([]byte(canary))
	for _, s := range []string{"eyJabcdefgh.x", "X-Grafana-Id=abc", "bearer\fabcdefgh", "?sig=1", "gho_0123456789", "github_pat_0123456789",
		"glpat-0123456789", "glsa_0123456789", "glc_0123456789", "sk-0123456789", "https://a:b@c"} {
		f.Add(s, "")
	}
	f.Add("a", "b")
	f.Add("https://", "@host")
	f.Add("Authorization: Bearer ", "\n")
	f.Add("-----BEGIN PRIVATE KEY-----", "-----END")
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := Redact(before + canary + after); strings.Contains(got, canary) {
			t.Errorf("%q", got)
		}
		if got := Redact("https://user:" + canary + "x@host/"); strings.Contains(got, canary) {
			t.Errorf("%q", got)
		}
		if text := before + after; urlUser().MatchString(text) && !strings.Contains(text, "://") {
			t.Errorf("%q is searched for no user", text)
		}
		for _, shape := range shapes {
			text := before + after
			has := slices.ContainsFunc(shape.parts, func(part string) bool { return strings.Contains(text, part) })
			if shape.pattern().MatchString(text) && !has {
				t.Errorf("%q is not searched for %s", text, shape.pattern())
			}
		}
	})
}
