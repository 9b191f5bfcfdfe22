package forge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/netx"
)

// Bounds of waits for a host.
const (
	// maxRetryAfter is the window of the rate limits of all hosts.
	maxRetryAfter = time.Hour
	// defaultRetryAfter is the wait after a rate limit without a stated time.
	// Source: GitHub's rules for its secondary limits.
	defaultRetryAfter = time.Minute
)

// classify returns the answer, or the error that it means.
func (c *caller) classify(r request, res *http.Response, data []byte) (answer, error) {
	now := time.Now()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		date = now
	} else {
		c.h.setSkew(c.api, date.Sub(now))
	}
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	status := res.StatusCode
	if status >= 200 && status < 300 {
		if media == "text/html" {
			return answer{}, c.fail(r, Unavailable, status,
				errors.New("a web page answers in its place: log in to the network if it has a sign-on page, and check the URL"))
		}
		return answer{header: res.Header, body: data, at: date}, nil
	}
	text := errorText(data)
	what := fmt.Errorf("it answers %d %s%s", status, http.StatusText(status), c.quoted(text))
	if asked := c.certificateHint(); asked != "" && netx.MayWantCertificate(status) {
		what = fmt.Errorf("%w (%s)", what, asked)
	}
	wait, limited := rateLimit(status, res.Header, text, date)
	if limited {
		e := c.fail(r, RateLimited, status, what)
		e.RetryAfter = wait
		c.setRetryAfter(c.gate, e)
		return answer{}, e
	}
	kind := Refused
	switch {
	case status == http.StatusUnauthorized:
		kind = Unauthorized
		c.creds.Refused()
	case status == http.StatusForbidden:
		kind = Forbidden
	case status == http.StatusNotFound || status == http.StatusGone:
		kind = NotFound
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusProxyAuthRequired:
		kind = Unavailable
	}
	e := c.fail(r, kind, status, what)
	if e.RetryAfter = wait; wait > 0 {
		c.setRetryAfter(c.api, e) // the API is down for all identities
	}
	return answer{}, e
}

func (c *caller) quoted(text string) string {
	if text = c.clean(text); text == "" {
		return ""
	}
	return ": " + text
}

// rateLimit returns the wait that a host asks for, and whether the request hit a rate
// limit. GitHub reports that with 403 as well.
func rateLimit(status int, h http.Header, text string, date time.Time) (wait time.Duration, limited bool) {
	wait, stated := netx.RetryAfter(h, date)
	spent := ""
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		if h.Get(prefix+"Remaining") == "0" {
			spent = h.Get(prefix + "Reset")
		}
	}
	if seconds, err := strconv.ParseInt(spent, 10, 64); err == nil && !stated {
		// A time, or with some proxies a number of seconds.
		if wait = time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second; seconds > 1_000_000_000 {
			wait = time.Unix(min(seconds, 1<<40), 0).Sub(date)
		}
		wait, stated = min(max(wait, time.Second), maxRetryAfter), true
	}
	switch {
	case status == http.StatusTooManyRequests:
		limited = true
	case status == http.StatusForbidden:
		limited = stated || strings.Contains(strings.ToLower(text), "rate limit")
	case status < 500:
		return 0, false
	}
	if limited && !stated {
		wait = defaultRetryAfter
	}
	return wait, limited
}

// gate is a wait that a host has asked for.
type gate struct {
	until time.Time
	said  *Error
}

// retryLater returns the last error while its wait lasts, for this identity or for
// the whole API; nil means no wait. Its text is the same each time, and RetryAfter is
// the remaining wait.
func (c *caller) retryLater(r request) *Error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	for _, key := range []string{c.gate, c.api} {
		g, ok := c.h.gates.get(key)
		if !ok {
			continue
		}
		if wait := time.Until(g.until); wait > 0 {
			e := c.fail(r, g.said.Kind, g.said.Status, g.said.Err)
			e.RetryAfter = wait
			return e
		}
		c.h.gates.drop(key)
	}
	return nil
}

// setRetryAfter stores an error with a wait.
func (c *caller) setRetryAfter(key string, said *Error) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.gates.put(key, gate{time.Now().Add(said.RetryAfter), said})
}

// setSkew stores the offset of the clock of an API from the local one.
func (h *Hosts) setSkew(base string, skew time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skews.put(base, skew)
}

func (h *Hosts) skew(base string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	skew, _ := h.skews.get(base)
	return skew
}

// errorKeys are the members of error bodies in reading order: GitHub message and
// errors; GitLab message, error and error_description; Bitbucket error with message
// and detail; Gitea message.
var errorKeys = []string{"message", "error", "error_description", "detail", "errors", "code", "field"}

// maxParts bounds the joined texts of one answer.
const maxParts = 8

// errorText returns the texts of an error body, "" when it is not JSON.
func errorText(body []byte) string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return ""
	}
	var parts []string
	collect(v, &parts, 0)
	return strings.Join(parts, ": ")
}

func collect(v any, parts *[]string, depth int) {
	if depth > 4 || len(*parts) >= maxParts {
		return
	}
	switch x := v.(type) {
	case string:
		if x != "" && !slices.Contains(*parts, x) {
			*parts = append(*parts, x)
		}
	case []any:
		for _, each := range x {
			collect(each, parts, depth+1)
		}
	case map[string]any:
		known := false
		for _, key := range errorKeys {
			if inner, ok := x[key]; ok {
				known = true
				collect(inner, parts, depth+1)
			}
		}
		if known || depth == 0 {
			return
		}
		// GitLab names the members that are wrong: {"url":["is blocked"]}.
		for _, key := range sortedKeys(x) {
			*parts = append(*parts, key)
			collect(x[key], parts, depth+1)
		}
	}
}
