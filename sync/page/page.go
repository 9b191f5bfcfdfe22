// Package page shows an agent to a browser: one page without scripts, and the same as JSON. Both
// are made of one document of which the secrets have been taken out, so that neither can show more
// than the other.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

const (
	// firstTimeout is how long a request waits for the first snapshot of an agent that starts.
	firstTimeout = 5 * time.Second
	// recentJobs is the number of finished jobs that are listed.
	recentJobs = 20
)

// Snapshots are those of the agent, Hours count what ended in each of its last hours, the oldest
// first, and History has its finished jobs.
type (
	Snapshots interface {
		Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error)
	}
	Hours interface {
		Hours(now time.Time) []snapshot.Hour
	}
	History interface {
		History(ctx context.Context, q state.Query) ([]state.Record, error)
	}
)

// Status is what /status.json has. The members that 'limpet status -o json' has too mean the same.
type Status struct {
	Live     *snapshot.Snapshot `json:"live"`
	OK       bool               `json:"ok"`
	Why      []string           `json:"why"` // reasons why OK is false
	Warnings []string           `json:"warnings"`
	Hours    []snapshot.Hour    `json:"hours"`  // the last 24, oldest first
	Recent   []state.Record     `json:"recent"` // jobs that ended last, newest first
}

// Page is a handler of GET requests. It is safe for concurrent use.
type Page struct {
	Snapshots Snapshots
	Hours     Hours
	History   History
	Address   string // of the listener

	mu sync.Mutex // held while an answer is made: however many ask, they cost one processor
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case !p.serves(r.Host):
		http.Error(w, "the page is served by an address, as localhost or by the name of its host, not as "+text.Line(r.Host, 100),
			http.StatusMisdirectedRequest)
		return
	case r.URL.Path != "/" && r.URL.Path != "/status.json":
		http.NotFound(w, r)
		return
	}
	body, err := p.answer(r.Context(), r.URL.Path == "/")
	switch {
	case err != nil:
		http.Error(w, "the agent has nothing to show yet: "+text.Redact(err.Error()), http.StatusServiceUnavailable)
		return
	case r.URL.Path == "/":
		w.Header().Set("Content-Security-Policy", policy(body))
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	default:
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = w.Write(body) // the peer is gone
}

// serves reports whether a browser may ask for this host. A page of another site can have its own
// name resolved to this address, and would then read the answer as its own (DNS rebinding); it
// cannot do so with an address or with the names below.
func (p *Page) serves(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if net.ParseIP(host) != nil {
		return true
	}
	own, _ := os.Hostname() // without one the name is none of this host
	listens, _, _ := net.SplitHostPort(p.Address)
	return host != "" && slices.Contains([]string{"localhost", strings.ToLower(own), strings.ToLower(listens)}, host)
}

// answer returns the page or the JSON.
func (p *Page) answer(ctx context.Context, asPage bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	status, err := p.look(ctx, now)
	if err != nil {
		return nil, err
	}
	document, shown, err := redacted(status)
	if err != nil || !asPage {
		return document, err
	}
	var out bytes.Buffer
	err = shownPage().Execute(&out, view{shown, now})
	return out.Bytes(), err
}

// look returns the status as the agent has it, with its secrets.
func (p *Page) look(ctx context.Context, now time.Time) (status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	live, err := p.Snapshots.Next(ctx, 0)
	if err != nil {
		return status, err
	}
	recent, err := p.History.History(ctx, state.Query{Limit: recentJobs, Brief: true})
	if err != nil {
		return status, fmt.Errorf("read history: %w", err)
	}
	status = Status{Live: live, Why: []string{}, Warnings: append([]string{}, live.Agent.Warnings...), Hours: p.Hours.Hours(now),
		Recent: append([]state.Record{}, recent...)}
	for _, i := range live.Issues() {
		line := i.Text
		if i.Next != "" {
			line += ": limpet " + i.Next
			if i.Namespace != "" {
				line += " -n " + i.Namespace
			}
		}
		if i.Failing {
			status.Why = append(status.Why, line)
		} else {
			status.Warnings = append(status.Warnings, line)
		}
	}
	status.OK = len(status.Why) == 0
	return status, nil
}

// redacted returns the status as JSON without secrets, and what that holds.
func redacted(s Status) (document []byte, shown Status, err error) {
	var all any
	whole, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(whole, &all)
	}
	if err == nil {
		document, err = json.Marshal(redactAll(all, map[string]string{}))
	}
	if err == nil {
		err = json.Unmarshal(document, &shown)
	}
	return document, shown, err
}

// redactAll redacts each text of a JSON value in place. Most occur many times: known has those that
// were met before.
func redactAll(v any, known map[string]string) any {
	switch v := v.(type) {
	case string:
		if _, met := known[v]; !met {
			known[v] = text.Redact(v)
		}
		return known[v]
	case []any:
		for i := range v {
			v[i] = redactAll(v[i], known)
		}
	case map[string]any:
		for key := range v {
			v[key] = redactAll(v[key], known)
		}
	}
	return v
}

//go:embed page.html
var pageText string

// shownPage is parsed when it is asked for: most processes serve no page.
var shownPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// policy returns the Content-Security-Policy of a page: nothing but its own style.
func policy(html []byte) string {
	_, rest, _ := bytes.Cut(html, []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	hash := sha256.Sum256(style)
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
