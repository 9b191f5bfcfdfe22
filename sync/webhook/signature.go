package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// proof is what the headers of a request offer as proof that its sender knows the secret. One of
// mac and token is set.
type proof struct {
	mac    []byte // HMAC-SHA256
	token  string
	signed *signedHead // GitLab's signed form, nil = the MAC covers the body alone
	id     string      // of the delivery, as far as the secret vouches for it
}

// signedHead is what GitLab's signed form covers besides the body.
type signedHead struct {
	id, timestamp string
	macs          [][]byte // any of them
}

// proofOf reads the proof that a host sends; false when there is none.
func proofOf(host Host, h http.Header) (proof, bool) {
	switch host {
	case GitHub:
		return hubProof(h.Get("X-Hub-Signature-256"))
	case Gitea:
		if text := cmp.Or(h.Get("X-Forgejo-Signature"), h.Get("X-Gitea-Signature")); text != "" {
			return macProof(text)
		}
		return hubProof(h.Get("X-Hub-Signature-256"))
	case Bitbucket:
		return hubProof(h.Get("X-Hub-Signature"))
	case GitLab:
		// Which of token and signature counts is decided by the form of the secret.
		p := proof{token: h.Get("X-Gitlab-Token"), id: cmp.Or(h.Get("Idempotency-Key"), h.Get("X-Gitlab-Event-Uuid"))}
		if text := h.Get("Webhook-Signature"); text != "" && len(text) <= 4096 {
			s := signedHead{id: h.Get("Webhook-Id"), timestamp: h.Get("Webhook-Timestamp")}
			for _, one := range strings.Fields(text) {
				if text, ok := strings.CutPrefix(one, "v1,"); ok {
					if mac, err := base64.StdEncoding.DecodeString(text); err == nil && len(mac) == sha256.Size {
						s.macs = append(s.macs, mac)
					}
				}
			}
			if len(s.macs) > 0 && s.id != "" {
				p.signed = &s
			}
		}
		return p, p.token != "" || p.signed != nil
	}
	return proof{}, false
}

// hubProof reads the form of GitHub. The older one, of SHA-1, does not count.
func hubProof(text string) (proof, bool) {
	text, ok := strings.CutPrefix(text, "sha256=")
	if !ok {
		return proof{}, false
	}
	return macProof(text)
}

func macProof(text string) (proof, bool) {
	mac, err := hex.DecodeString(text)
	return proof{mac: mac}, err == nil && len(mac) == sha256.Size
}

// proves reports whether the sender knows the secret. It takes the same time for every wrong proof
// of one length. now is zero when the time is unknown; then it ignores the age of a signature.
func (p proof) proves(secret []byte, b []byte, now time.Time) bool {
	if len(secret) == 0 {
		return false
	}
	if p.mac != nil {
		mac := hmac.New(sha256.New, secret)
		mac.Write(b)
		return hmac.Equal(mac.Sum(nil), p.mac)
	}
	if coded, ok := strings.CutPrefix(string(secret), standardPrefix); ok {
		key, err := base64.StdEncoding.DecodeString(coded)
		return err == nil && p.signed != nil && p.signed.proves(key, b, now)
	}
	want, got := sha256.Sum256(secret), sha256.Sum256([]byte(p.token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

func (s *signedHead) proves(key []byte, b []byte, now time.Time) bool {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(s.id + "." + s.timestamp + "."))
	mac.Write(b)
	want, right := mac.Sum(nil), 0
	for _, got := range s.macs {
		right |= subtle.ConstantTimeCompare(want, got)
	}
	seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
	fresh := err == nil && (now.IsZero() || now.Sub(time.Unix(seconds, 0)).Abs() <= signedWindow)
	return right == 1 && fresh
}

// digest is the same for the same content whatever header carried its proof, so
// that a copy of a delivery is known again without its stronger signature.
func (p proof) digest(secret []byte, repository string, b []byte) digest {
	mac := hmac.New(sha256.New, secret)
	id := p.id
	if p.signed != nil {
		id = p.signed.id
	}
	mac.Write([]byte(repository + "\x00" + id + "\x00"))
	mac.Write(b)
	return digest(mac.Sum(nil)[:16])
}
