package text

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// This file is the one place that removes secrets from text, in two ways: the values that the
// program knows to be secret (RegisterSecret), and the formats in which secrets travel
// (authorization headers, user information in URLs, JSON web tokens, PEM blocks). The formats catch
// secrets in foreign text, such as the message of a server.

// Redacted replaces a secret.
const Redacted = "[redacted]"

const (
	// minSecret is the least length in bytes of a registered value: replacing
	// shorter ones would damage harmless words and hide nothing.
	minSecret = 6
	// maxSecrets bounds the registered values; the oldest are dropped. A process
	// uses a handful at a time, rotation adds some.
	maxSecrets = 512
	// maxTokens bounds the registered access tokens.
	maxTokens = 16
)

// shapes are the formats. A text that has none of the parts of one cannot match it: most texts are
// those of a log, and are not searched.
var shapes = []struct {
	parts   []string
	pattern func() *regexp.Regexp
	with    string
}{
	{[]string{"-----BEGIN "}, compiled(`(?s)-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|CERTIFICATE)[A-Z0-9 ]*-----.*?` +
		`(?:-----END [A-Z0-9 ]*-----|$)`), Redacted},
	{[]string{"eyJ"}, compiled(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), Redacted},
	{[]string{":", "="}, compiled(`(?i)\b((?:proxy-)?authorization|x-access-token|x-grafana-id|private-token)` +
		`(["']?\s*[:=]\s*\[?["']?)(?:(?:bearer|basic|token)\s+)?[^\s"',\]}]+`), "${1}${2}" + Redacted},
	{[]string{" ", "\t", "\n", "\f", "\r"},
		compiled(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{6,}`), "${1} " + Redacted},
	{[]string{"="}, compiled(`(?i)([?&](?:access_token|token|private_token|password|secret|client_secret|sig|key)=)` +
		`[^&#\s"']+`), "${1}" + Redacted},
	{[]string{"gh", "github_pat_", "gl", "sk-"},
		compiled(`\b(gh[pousr]_|github_pat_|glpat-|glsa_|glc_|sk-)[A-Za-z0-9_-]{10,}`), Redacted},
}

// compiled returns a function that compiles a pattern when it is first called: most commands need
// none, and all together are 130 kB of garbage at each start.
func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// schemeWord matches a scheme of authorization before a word of a sentence, as in "Bearer is
// missing" or "Bearer TOKEN". The words are a closed list, because a secret may be a word as well.
var schemeWord = compiled(`(?:^|[\s:])(?i:bearer|basic|token)\s+` +
	`(?:is|or|and|not|was|required|missing|authentication|token|TOKEN|\$TOKEN)[.;:!?)]*$`)

var (
	// urlUser matches the scheme and the user information of a URL. A password that was not escaped
	// may have a "/" in it, and is then told from a port by what is no digit.
	urlUser = compiled(`[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/?#\s"'@]*|[^/?#\s"'@:\[]*:[0-9]*[^0-9/?#\s"'@][^\s"'@]*)` +
		`(?:@[^/?#\s"'@]*)*@`)
	// sshUser matches a urlUser that is only a user name of ssh, which is no secret
	// and useful to know; over http it may be a token.
	sshUser = compiled(`(?i)^ssh://[a-z0-9_][a-z0-9_.-]{0,31}@$`)
)

// withoutUser redacts a match of urlUser.
func withoutUser(found string) string {
	if sshUser().MatchString(found) {
		return found
	}
	scheme, _, _ := strings.Cut(found, "://")
	return scheme + "://" + Redacted + "@"
}

// secretSet holds the registered values in the order of registration, and the replacer made of
// them.
type secretSet struct {
	values   []string
	tokens   []string
	replacer *strings.Replacer
}

var (
	secretsMu sync.Mutex // serialises writers of secrets
	secrets   atomic.Pointer[secretSet]
)

// RegisterSecret makes Redact replace the value wherever it appears, as it is and percent-encoded,
// for the life of the process. Values of fewer than 6 bytes are not registered. Safe for concurrent
// use.
func RegisterSecret(value []byte) {
	register(strings.TrimSpace(string(value)), func(s *secretSet, text string) {
		s.values = appendBounded(s.values, text, maxSecrets)
	})
}

// RegisterToken is RegisterSecret for access tokens, of which there may be many: only
// the newest are kept, and they displace no other secret.
func RegisterToken(value string) {
	register(value, func(s *secretSet, text string) {
		s.tokens = appendBounded(s.tokens, text, maxTokens)
	})
}

func register(text string, add func(*secretSet, string)) {
	if len(text) < minSecret || secrets.Load().holds(text) {
		return
	}
	secretsMu.Lock()
	defer secretsMu.Unlock()
	known := secrets.Load()
	if known.holds(text) {
		return
	}
	var next secretSet
	if known != nil {
		next = *known
	}
	add(&next, text)
	next.replacer = replacerFor(slices.Concat(next.values, next.tokens))
	secrets.Store(&next)
}

func (s *secretSet) holds(text string) bool {
	return s != nil && (slices.Contains(s.values, text) || slices.Contains(s.tokens, text))
}

// appendBounded appends to a copy, because readers hold the old slice.
func appendBounded(values []string, text string, most int) []string {
	values = append(slices.Clone(values), text)
	return values[max(0, len(values)-most):]
}

// replacerFor sorts longer values first, so that a secret that begins with another one is replaced
// whole.
func replacerFor(values []string) *strings.Replacer {
	var all []string
	for _, v := range values {
		all = append(all, v)
		for _, form := range []string{url.QueryEscape(v), url.PathEscape(v)} {
			if form != v {
				all = append(all, form)
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return len(all[j]) < len(all[i]) })
	pairs := make([]string, 0, 2*len(all))
	for _, v := range all {
		pairs = append(pairs, v, Redacted)
	}
	return strings.NewReplacer(pairs...)
}

// Redact returns the text without secrets: registered values, authorization headers, user
// information in URLs except user names of ssh, tokens in query strings, JSON web tokens,
// well-known token formats and PEM blocks.
func Redact(s string) string {
	if len(s) < minSecret {
		return s
	}
	if known := secrets.Load(); known != nil {
		s = known.replacer.Replace(s)
	}
	if strings.Contains(s, "://") {
		s = urlUser().ReplaceAllStringFunc(s, withoutUser)
	}
	for _, shape := range shapes {
		has := func(part string) bool { return strings.Contains(s, part) }
		if !slices.ContainsFunc(shape.parts, has) {
			continue
		}
		s = shape.pattern().ReplaceAllStringFunc(s, func(found string) string {
			if schemeWord().MatchString(found) {
				return found
			}
			return shape.pattern().ReplaceAllString(found, shape.with)
		})
	}
	return s
}

// RedactError returns err with a redacted message, or err itself when it holds no secret. The chain
// stays reachable for errors.Is and errors.As; print only the outermost error.
func RedactError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := Redact(text)
	if clean == text {
		return err
	}
	return &redactedError{text: clean, err: err}
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// secretKeys are attribute names whose values are never logged.
var secretKeys = map[string]bool{
	"token": true, "password": true, "secret": true, "authorization": true, "bearer": true,
	"privatekey": true, "private_key": true, "clientsecret": true, "client_secret": true, "passphrase": true,
}

// RedactAttr is for slog.HandlerOptions.ReplaceAttr. It redacts strings, byte slices, errors and
// all other values printed as text, and drops the values of attributes that are named like a
// secret. A duration becomes a text as 3s, which JSON would have in nanoseconds.
func RedactAttr(_ []string, a slog.Attr) slog.Attr {
	if secretKeys[strings.ToLower(a.Key)] && a.Value.Kind() != slog.KindBool {
		if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
			return a
		}
		return slog.String(a.Key, Redacted)
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Redact(a.Value.String()))
	case slog.KindAny:
		a.Value = redactAny(a.Value)
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	default: // numbers and times carry no secrets; groups are passed attribute by attribute
	}
	return a
}

func redactAny(v slog.Value) slog.Value {
	var text string
	switch x := v.Any().(type) {
	case nil, *slog.Source:
		return v
	case error:
		text = x.Error()
	case []byte:
		text = string(x)
	case fmt.Stringer:
		text = x.String()
	default:
		text = fmt.Sprintf("%+v", x)
		if clean := Redact(text); clean == text {
			return v // the handler formats it
		}
	}
	return slog.StringValue(Redact(text))
}
