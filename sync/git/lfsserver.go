package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"limpet/sync/text"
)

// Where the Git LFS server of a remote is. Source: git-lfs docs/api/server-discovery.md.

// server finds the batch API, once for all requests as long as it is good.
func (l *Large) server(c *call) (*lfsStore, error) {
	l.mu.Lock()
	known := l.store
	l.mu.Unlock()
	if known != nil && known.of == c.addr.Key() && !stale(known.until) {
		return known, nil
	}
	found := &lfsStore{}
	var err error
	switch c.addr.Scheme {
	case "http", "https":
		found.url, err = l.serverOverHTTP(c)
	case "ssh":
		found, err = c.lfsAuthenticate()
	default:
		err = &Error{Kind: Refused, Err: errors.New("a local repository has no Git LFS server"), Hint: "use https or ssh"}
	}
	if err != nil {
		return nil, err
	}
	found.of = c.addr.Key()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store = found
	return found, nil
}

func (l *Large) serverOverHTTP(c *call) (*url.URL, error) {
	named, err := l.lfsConfig(c.ctx)
	if err != nil {
		return nil, err
	}
	if named == "" || c.fallback { // it names the one of the repository's own host
		return &url.URL{Scheme: c.addr.Scheme, Host: c.addr.HostPort(), Path: strings.TrimSuffix(c.addr.Path, ".git") + ".git/info/lfs"}, nil
	}
	u, err := url.Parse(named)
	if err != nil || !c.isOwn(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, &Error{Kind: Refused, Err: fmt.Errorf("the .lfsconfig of the repository names the Git LFS server %q, which is not at %s://%s", text.Line(withoutUserInfo(named), 200), c.addr.Scheme, c.addr.HostPort()),
			Hint: "credentials go to the host of the repository only"}
	}
	return u, nil
}

// lfsAuthenticate asks over ssh where the batch API is and what it is asked with.
func (c *call) lfsAuthenticate() (*lfsStore, error) {
	leave, err := c.visit()
	if err != nil {
		return nil, err
	}
	defer leave()
	c.allow("answer of git-lfs-authenticate", errorBody)
	c.command = "git-lfs-authenticate " + shellQuote(sshPath(c.addr.Path)) + " download"
	s, err := c.sshSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.asked = true
	s.stdin.Close()
	data, err := io.ReadAll(s.stdout)
	if err != nil {
		return nil, err
	}
	var a lfsAction
	if waited := s.session.Wait(); waited != nil || json.Unmarshal(data, &a) != nil || a.Href == "" {
		return nil, &Error{Kind: Protocol, Err: fmt.Errorf("git-lfs-authenticate over ssh gives no answer: %s", s.stderr.text()),
			Hint: "use https for a repository with Git LFS, or enable it on the server"}
	}
	c.redact = redactor(c.remote.Creds, valuesOf(a.Header)...)
	u, err := c.lfsURL(a.Href)
	if err != nil {
		return nil, err
	}
	return &lfsStore{url: u, header: a.Header, until: a.until(time.Now())}, nil
}

// isOwn says whether u is at the origin of the remote, which is where credentials go.
func (c *call) isOwn(u *url.URL) bool {
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		port = ""
	}
	return u.Scheme == c.addr.Scheme && strings.EqualFold(u.Hostname(), c.addr.Host) && port == c.addr.Port
}

// lfsURL reads a URL that a server has sent: https, or the origin of the remote.
func (c *call) lfsURL(href string) (*url.URL, error) {
	u, err := url.Parse(href)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, &Error{Kind: Protocol, Err: errors.New("the Git LFS server sends a url that cannot be read")}
	case u.User != nil:
		return nil, &Error{Kind: Refused, Err: errors.New("the Git LFS server sends a url that holds a password")}
	case u.Scheme != "https" && !c.isOwn(u):
		return nil, &Error{Kind: Refused, Err: fmt.Errorf("the Git LFS server sends to %s://%s, which is not https", text.Line(u.Scheme, 20), text.Line(u.Host, 100))}
	}
	if err := c.m.options.Guard.Host(u.Hostname()); err != nil {
		return nil, &Error{Kind: Refused, Err: fmt.Errorf("the Git LFS server sends to %s: %w", text.Line(u.Host, 100), err), Hint: guardHint}
	}
	return u, nil
}

// remoteCommand is what the host runs for a call over ssh.
func (c *call) remoteCommand() string {
	if c.command != "" {
		return c.command
	}
	return c.service() + " " + shellQuote(sshPath(c.addr.Path))
}
