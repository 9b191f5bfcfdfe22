package transport

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"limpet/sync/auth"
	"limpet/sync/git/transfer"
	"limpet/sync/text"
)

// Foreign text: what a server says, names in a repository. It is cleaned once, here, so that no
// escape sequence, no line break and no secret that a server echoes goes further.

// redactor replaces the secrets of some credentials and further ones, in the forms in which they
// travel.
func redactor(c *auth.Credentials, more ...string) *strings.Replacer {
	var pairs []string
	for _, s := range append(c.Secrets(), more...) {
		if len(s) < 4 { // too short to replace without mangling everything
			continue
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
			pairs = append(pairs, form, "***")
		}
	}
	if c != nil && c.Password != "" {
		pairs = append(pairs, base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password)), "***")
	}
	return strings.NewReplacer(pairs...)
}

// userInfo is the part of a URL that may hold a password: a proxy's, or one in a redirect.
var userInfo = regexp.MustCompile(`://[^/@\s"]+@`)

// WithoutUserInfo leaves out user and password of URLs in a text.
func WithoutUserInfo(s string) string { return userInfo.ReplaceAllString(s, "://") }

// remarks collects what the server says beside the pack; the last of it is
// usually the reason when the pack does not come.
type remarks struct {
	meter *transfer.Meter // reads them too; nil = none

	mu   sync.Mutex // guards tail: the ssh library writes from a goroutine
	tail []byte
}

// remarksKept is far more than one message has. Unit: bytes.
const remarksKept = 4 << 10

func (m *remarks) Write(p []byte) (int, error) {
	m.meter.Remark(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tail = append(m.tail, p...)
	m.tail = m.tail[max(0, len(m.tail)-remarksKept):]
	return len(p), nil
}

// Text is the last lines, progress counters left out.
func (m *remarks) Text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keep []string
	for l := range strings.FieldsFuncSeq(string(m.tail), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if l = text.Line(l, remarksKept); l != "" && !containsAny(l, []string{"objects: ", "% ("}) && !strings.HasPrefix(l, "Total ") {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep[max(0, len(keep)-4):], "; ")
}
