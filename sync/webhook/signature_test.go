package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"
)

// header makes one of pairs of name and value.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func hexMAC(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestProofs(t *testing.T) {
	t.Parallel()
	const secret, text = "s3cr3t", `{"a":1}`
	right, weak := hexMAC(secret, text), strings.Repeat("a", 40)
	wrong := hexMAC("other", text)
	// The example of GitHub's page "Validating webhook deliveries", and that of the
	// Standard Webhooks specification.
	const (
		gitHubSecret, gitHubText = "It's a Secret to Everybody", "Hello, World!"
		gitHubMAC                = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
		standardSecret           = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		standardText             = `{"test": 2432232314}`
		standardMAC              = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	)
	then := time.Unix(1614265330, 0)
	signed := func(id, at, mac string) http.Header {
		return header("X-Gitlab-Event", "Push Hook", "Webhook-Id", id, "Webhook-Timestamp", at, "Webhook-Signature", mac)
	}
	const id, at = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
	other := signedMAC(t, standardSecret, "msg_2", at, standardText)
	tests := []struct {
		name   string
		header http.Header
		secret string
		text   string
		now    time.Time
		want   bool
	}{
		{name: "GitHub's example", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+gitHubMAC), secret: gitHubSecret,
			text: gitHubText, want: true},
		{name: "GitHub", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+right), want: true},
		{name: "GitHub, the older alone", header: header("X-GitHub-Event", "push", "X-Hub-Signature", "sha1="+weak)},
		{name: "GitHub, another secret", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+wrong)},
		{name: "GitHub, another body", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+right), text: `{"a":2}`},
		{name: "GitHub, cut short", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+right[:32])},
		{name: "GitHub, empty", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256=")},
		{name: "GitHub, no prefix", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", right)},
		{name: "GitHub, not hex", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+right[:63]+"x")},
		{name: "GitHub, none", header: header("X-GitHub-Event", "push")},
		{name: "GitHub, a token of GitLab", header: header("X-GitHub-Event", "push", "X-Gitlab-Token", secret)},
		{name: "no secret", header: header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexMAC("", text)), secret: "-"},

		{name: "Gitea", header: header("X-Gitea-Event", "push", "X-GitHub-Event", "push", "X-Gitea-Signature", right), want: true},
		{name: "Gitea, GitHub's header", header: header("X-Gitea-Event", "push", "X-Hub-Signature-256", "sha256="+right), want: true},
		{name: "Gitea, wrong", header: header("X-Gitea-Event", "push", "X-Gitea-Signature", wrong, "X-Hub-Signature-256", "sha256="+right)},
		{name: "Forgejo", header: header("X-Forgejo-Event", "push", "X-Forgejo-Signature", right, "X-Gitea-Signature", wrong), want: true},

		{name: "Bitbucket", header: header("X-Event-Key", "repo:push", "X-Hub-Signature", "sha256="+right), want: true},
		{name: "Bitbucket, SHA-1", header: header("X-Event-Key", "repo:push", "X-Hub-Signature", "sha1="+weak)},
		{name: "Bitbucket, none", header: header("X-Event-Key", "repo:push", "X-Hook-UUID", "{x}")},

		{name: "GitLab", header: header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret), want: true},
		{name: "GitLab, wrong", header: header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", "S3cr3t")},
		{name: "GitLab, longer", header: header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret+"x")},
		{name: "GitLab, none", header: header("X-Gitlab-Event", "Push Hook")},
		{name: "GitLab signed", header: signed(id, at, standardMAC), secret: standardSecret, text: standardText, now: then, want: true},
		{name: "GitLab signed, one of several", header: signed(id, at, other+" v1a,x "+standardMAC), secret: standardSecret, text: standardText,
			now: then, want: true},
		{name: "GitLab signed, by a clock that is unknown", header: signed(id, at, standardMAC), secret: standardSecret, text: standardText,
			want: true},
		{name: "GitLab signed, too old", header: signed(id, at, standardMAC), secret: standardSecret, text: standardText,
			now: then.Add(6 * time.Minute)},
		{name: "GitLab signed, from the future", header: signed(id, at, standardMAC), secret: standardSecret, text: standardText,
			now: then.Add(-6 * time.Minute)},
		{name: "GitLab signed, another time", header: signed(id, "1614265331", standardMAC), secret: standardSecret, text: standardText,
			now: then},
		{name: "GitLab signed, another id", header: signed("msg_2", at, standardMAC), secret: standardSecret, text: standardText, now: then},
		{name: "GitLab signed, no id", header: signed("", at, signedMAC(t, standardSecret, "", at, standardText)), secret: standardSecret,
			text: standardText, now: then},
		{name: "GitLab signed, no time", header: signed(id, "", signedMAC(t, standardSecret, id, "", standardText)), secret: standardSecret,
			text: standardText, now: then},
		{name: "GitLab signed, the key as a token", header: header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", standardSecret),
			secret: standardSecret, text: standardText},
		{name: "GitLab signed, a secret that is no key", header: signed(id, at, standardMAC), secret: secret, text: standardText, now: then},

		{name: "nobody", header: header("X-Hub-Signature-256", "sha256="+right)},
	}
	for _, tt := range tests {
		if tt.secret == "" {
			tt.secret = secret
		}
		if tt.text == "" {
			tt.text = text
		}
		host, _, _ := requestOrigin(tt.header)
		p, ok := proofOf(host, tt.header)
		if got := ok && p.proves([]byte(trimDash(tt.secret)), []byte(tt.text), tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// trimDash stands for the empty secret in the table.
func trimDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// TestDigestOfCopy takes what somebody could change about a captured delivery.
func TestDigestOfCopy(t *testing.T) {
	t.Parallel()
	const secret, text = "s3cr3t", `{"a":1}`
	digestOf := func(h http.Header, repository, text string) digest {
		host, _, _ := requestOrigin(h)
		p, ok := proofOf(host, h)
		if !ok {
			t.Fatalf("no proof in %v", h)
		}
		return p.digest([]byte(secret), repository, []byte(text))
	}
	first := digestOf(header("X-GitHub-Event", "push", "X-GitHub-Delivery", "1", "X-Hub-Signature-256", "sha256="+hexMAC(secret, text)),
		"a/b", text)
	for name, h := range map[string]http.Header{
		"another id": header("X-GitHub-Event", "push", "X-GitHub-Delivery", "2", "X-Hub-Signature-256",
			"sha256="+hexMAC(secret, text)),
		"in capitals": header("X-GitHub-Event", "push", "X-Hub-Signature-256",
			"sha256="+string(bytes.ToUpper([]byte(hexMAC(secret, text))))),
		"another event": header("X-GitHub-Event", "ping", "X-Hub-Signature-256", "sha256="+hexMAC(secret, text)),
		"as from Gitea": header("X-Gitea-Event", "push", "X-Gitea-Signature", hexMAC(secret, text)),
	} {
		if digestOf(h, "a/b", text) != first {
			t.Errorf("%s: not known again", name)
		}
	}
	h := header("X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256="+hexMAC(secret, text))
	if digestOf(h, "a/c", text) == first || digestOf(h, "a/b", text+" ") == first {
		t.Error("another repository or body is taken for a copy")
	}
	// GitLab's bodies carry nothing of their own: the same branch may move to and
	// fro. Who knows its token may send whatever he likes.
	a := digestOf(header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret, "Idempotency-Key", "1"), "a/b", text)
	b := digestOf(header("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret, "Idempotency-Key", "2"), "a/b", text)
	if a == b {
		t.Error("two deliveries of GitLab are taken for one")
	}
}

func FuzzProof(f *testing.F) {
	f.Add("X-Hub-Signature-256", "sha256=00", "X-GitHub-Event", []byte("{}"))
	f.Add("X-Gitlab-Token", "s3cr3", "X-Gitlab-Event", []byte("{}"))
	f.Add("Webhook-Signature", "v1,AAAA v1,", "X-Gitlab-Event", []byte("{}"))
	f.Fuzz(func(t *testing.T, name, value, event string, text []byte) {
		h := header(event, "push", name, value, "Webhook-Id", "1", "Webhook-Timestamp", value)
		host, _, _ := requestOrigin(h)
		p, ok := proofOf(host, h)
		if !ok {
			return
		}
		for _, secret := range []string{"0123456789abcdef-not-in-any-seed", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
			if p.proves([]byte(secret), text, time.Time{}) && value != secret {
				t.Errorf("%q %q proves a secret that it does not know", name, value)
			}
		}
	})
}

// signedMAC is the header that GitLab's signed form carries.
func signedMAC(t *testing.T, secret, id, at, text string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(secret[len(standardPrefix):])
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "." + text))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
