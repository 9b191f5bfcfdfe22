// Package forge is the client of the REST APIs of Git hosts: GitHub, GitHub Enterprise, GitLab,
// Bitbucket Cloud, and Gitea with Forgejo. It registers webhooks, reads the protection of branches,
// sets commit statuses, comments on pull requests, mints tokens of GitHub Apps and tests the
// identity of a Connection.
//
// Its rules: every call is bounded in time and in bytes; a secret travels in headers and bodies
// only, never in a URL, and only to its own host; no error and no log line holds one; no request is
// sent after the context has ended, nor before the time that a host has stated in Retry-After.
// Webhooks are listed for mostPages; maxGates waits are kept.
package forge

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Kind is the API of a host.
type Kind string

// The kinds of hosts. Forgejo speaks Gitea's API.
const (
	GitHub           Kind = "github"
	GitHubEnterprise Kind = "githubEnterprise"
	GitLab           Kind = "gitlab"
	Bitbucket        Kind = "bitbucket" // Cloud
	Gitea            Kind = "gitea"
)

// ErrNone is wrapped when the host of a repository has no known REST API. Such a repository is
// polled.
var ErrNone = errors.New("no forge")

// callTimeout bounds one call with its redirects: a third of the default expiry of a lease.
const callTimeout = 20 * time.Second

// Options of Hosts; the zero value is good.
type Options struct {
	// AllowInsecure lets credentials travel over plain http.
	AllowInsecure bool
	// Guard checks each address that is dialled.
	Guard netx.Guard
	// APIs are base URLs by host of the clone URL, for hosts whose API is not
	// where it is expected: a proxy in front of api.github.com.
	APIs map[string]string
	// UserAgent is sent with every request; "" is "limpet".
	UserAgent string
}

// Hosts holds the connections to all Git hosts of an agent and their state. Safe for concurrent
// use.
type Hosts struct {
	apis   map[string]string
	client *netx.Client

	mu     sync.Mutex       // guards what follows; never held over a call
	gates  map[string]gate  // those that are closed
	probes map[string]probe // by base URL
}

// New returns Hosts. Close releases their connections.
func New(o Options) *Hosts {
	return &Hosts{
		apis:   o.APIs,
		client: &netx.Client{Guard: o.Guard, AllowInsecure: o.AllowInsecure, UserAgent: o.UserAgent, Timeout: callTimeout},
		gates:  map[string]gate{},
		probes: map[string]probe{},
	}
}

// Close releases idle connections. It may be called twice.
func (h *Hosts) Close() { h.client.Close() }

// Remote is one repository at its host, with some credentials. Its methods block
// until the host has answered, at most 20 s for each call.
type Remote struct {
	caller *caller
	place  Place
	dialect
}

// Kind returns the API of the host.
func (r *Remote) Kind() Kind { return r.place.Kind }

// Name returns the full name of the repository: owner/name, or group/subgroup/name.
func (r *Remote) Name() string { return r.place.Path }

// Remote detects the host of a repository. The error wraps ErrNone when it is
// unknown; a plain Git URL may need one probe for each host. creds may be nil.
func (h *Hosts) Remote(ctx context.Context, t Target, creds *auth.Credentials) (*Remote, error) {
	place, err := h.locate(ctx, t, creds)
	if err != nil {
		return nil, err
	}
	r := &Remote{place: place, dialect: dialects[place.Kind]}
	r.caller = h.caller(place.API, r.scheme, creds)
	if place.Kind == Bitbucket && t.Email != "" { // the API token of a person, not of a repository
		if value := token(r.caller.creds); value != "" {
			r.caller.header["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(t.Email+":"+value))
		}
	}
	return r, nil
}

// request returns a call about the repository. do is what it does, such as "list webhooks of".
func (r *Remote) request(do, method, path string) request {
	return request{op: do + " " + r.place.Path, method: method, path: r.root(r.place) + path}
}

// Protection is the protection of a branch against writes.
type Protection string

// Protections of a branch.
const (
	Unprotected       Protection = "unprotected"
	ReviewsRequired   Protection = "reviews-required" // changes come by pull requests
	Locked            Protection = "locked"           // no writes, or none by this identity
	ProtectionUnknown Protection = "unknown"          // this identity may not read it
)

// Protection reads the protection. An unreadable one is unknown; an error means only that ctx has
// ended.
func (r *Remote) Protection(ctx context.Context, branch string) (Protection, error) {
	p, err := r.protection(ctx, r, branch)
	switch netx.KindOf(err) {
	case "":
		return p, nil
	case netx.Cancelled:
		return ProtectionUnknown, err
	}
	return ProtectionUnknown, nil
}

// probe is the answer whether a host is Gitea or Forgejo.
type probe struct {
	gitea bool
	at    time.Time
}

// negativeFor is the lifetime of a negative result: a proxy may have answered instead
// of the host, such as one that asks for a password first.
const negativeFor = time.Hour

// maxProbes bounds the known hosts.
const maxProbes = 64

// isGitea requests the version of the API of a host, without credentials. A positive result is
// kept, a negative one for an hour; a host that does not answer is probed again by the next caller.
func (h *Hosts) isGitea(ctx context.Context, base string, creds *auth.Credentials) (bool, error) {
	h.mu.Lock()
	known, ok := h.probes[base]
	h.mu.Unlock()
	if ok && (known.gitea || time.Since(known.at) < negativeFor) {
		return known.gitea, nil
	}
	v, err := ask[struct {
		Version string `json:"version"`
	}](ctx, h.caller(base, "", creds.ForOtherHost()), request{op: "find the forge", method: http.MethodGet, path: "/version"})
	switch netx.KindOf(err) {
	case netx.Unavailable, netx.RateLimited, netx.Cancelled, netx.Invalid:
		return false, err
	}
	gitea := err == nil && v.Version != ""
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.probes) >= maxProbes {
		clear(h.probes)
	}
	h.probes[base] = probe{gitea, time.Now()}
	return gitea, nil
}

// invalid returns an error of a request that was not sent.
func invalid(op, format string, args ...any) *netx.Error {
	return &netx.Error{Kind: netx.Invalid, Op: op, Err: fmt.Errorf(format, args...)}
}

// Page returns the web address of a directory of a branch, or of a commit by its 40 digits; without
// a branch that of the repository. It sends no request: for an unknown kind of host it returns the
// repository. The address is always http or https, without a user name, and the error wraps ErrNone
// when there is no page.
func Page(t Target, branch, dir string) (string, error) {
	a, err := auth.ParseAddress(t.URL)
	if err != nil {
		return "", invalid("find the page", "%w", err)
	}
	if a.Local() {
		return "", fmt.Errorf("%w: a local repository has no page", ErrNone)
	}
	if !plainHost(a.Host) {
		return "", invalid("find the page", "its host has a name that no browser takes")
	}
	kind, err := t.kind(a)
	if err != nil && !errors.Is(err, ErrNone) {
		return "", err
	}
	scheme, host, path := a.Scheme, a.HostPort(), strings.Trim(a.Path, "/")
	if scheme == "ssh" { // its port is no web server's
		scheme, host = "https", a.Host
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	if kind != "" || a.Scheme == "ssh" {
		path = strings.TrimSuffix(path, ".git")
	}
	page := scheme + "://" + host + "/" + segments(path)
	branch, dir = strings.TrimPrefix(branch, "refs/heads/"), strings.Trim(dir, "/")
	if branch == "" {
		return page, nil
	}
	switch kind {
	case GitHub, GitHubEnterprise:
		page += "/tree/" + segments(branch)
	case GitLab:
		page += "/-/tree/" + segments(branch)
	case Bitbucket: // a slash would end the name of the branch
		page += "/src/" + url.PathEscape(branch)
	case Gitea:
		what := "branch"
		if isCommit(branch) {
			what = "commit"
		}
		page += "/src/" + what + "/" + segments(branch)
	default:
		return page, nil
	}
	if dir != "" {
		page += "/" + segments(dir)
	}
	return page, nil
}

// plainHost reports whether a host, in small letters, can stand in a URL as it is.
func plainHost(host string) bool {
	return strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:") == ""
}

// isCommit reports whether a revision is a full commit hash, which hosts treat as no branch.
func isCommit(name string) bool {
	return len(name) == 40 && strings.Trim(name, "0123456789abcdef") == ""
}
