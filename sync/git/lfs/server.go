package lfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"limpet/sync/git/giterr"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// Where the Git LFS server of a remote is. Source: git-lfs docs/api/server-discovery.md.

// server finds the batch API, once for all requests as long as it is good.
func (l *Pull) server(c *transport.Call, home bool) (found endpoint, err error) {
	l.mu.Lock()
	found = l.api
	l.mu.Unlock()
	if found.of == c.Addr.Key() && !expired(found.until) {
		return found, nil
	}
	found = endpoint{of: c.Addr.Key()}
	switch c.Addr.Scheme {
	case "http", "https":
		found.url, err = l.serverOverHTTP(c, home)
	case "ssh":
		found.place, err = authenticate(c)
	default:
		err = giterr.New(giterr.Refused, "a local repository has no Git LFS server", "use https or ssh")
	}
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.api = found
	}
	return found, err
}

func (l *Pull) serverOverHTTP(c *transport.Call, home bool) (*url.URL, error) {
	named, err := l.source.ServerURL(c.Ctx)
	if err != nil {
		return nil, err
	}
	if named == "" || !home { // it names the one of the repository's own host
		return &url.URL{Scheme: c.Addr.Scheme, Host: c.Addr.HostPort(), Path: strings.TrimSuffix(c.Addr.Path, ".git") + ".git/info/lfs"}, nil
	}
	u, err := url.Parse(named)
	if err != nil || !isOwn(c, u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, giterr.Wrap(giterr.Refused,
			fmt.Errorf("the .lfsconfig of the repository names the Git LFS server %q, which is not at %s://%s",
				text.Line(transport.WithoutUserInfo(named), 200), c.Addr.Scheme, c.Addr.HostPort()),
			"credentials go to the host of the repository only")
	}
	return u, nil
}

// authenticate asks over ssh where the batch API is and what it is asked with.
func authenticate(c *transport.Call) (at place, err error) {
	leave, err := c.Visit()
	if err != nil {
		return at, err
	}
	defer leave()
	data, said, err := c.Run("git-lfs-authenticate", "download")
	if err != nil {
		return at, err
	}
	var a action
	if json.Unmarshal(data, &a) != nil || a.Href == "" {
		return at, giterr.Wrap(giterr.Protocol, fmt.Errorf("git-lfs-authenticate over ssh gives no answer: %s", said),
			"use https for a repository with Git LFS, or enable it on the server")
	}
	c.RedactValues(a.Header)
	u, err := parseHref(c, a.Href)
	return place{url: u, header: a.Header, until: a.until(time.Now())}, err
}

// isOwn reports whether u is at the origin of the remote, which is where credentials go.
func isOwn(c *transport.Call, u *url.URL) bool {
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		port = ""
	}
	return u.Scheme == c.Addr.Scheme && strings.EqualFold(u.Hostname(), c.Addr.Host) && port == c.Addr.Port
}

// parseHref reads a URL that a server has sent: https, or the origin of the remote.
func parseHref(c *transport.Call, href string) (*url.URL, error) {
	u, err := url.Parse(href)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, giterr.New(giterr.Protocol, "the Git LFS server sends a url that cannot be read", "")
	case u.User != nil:
		return nil, giterr.New(giterr.Refused, "the Git LFS server sends a url that holds a password", "")
	case u.Scheme != "https" && !isOwn(c, u):
		return nil, giterr.Wrap(giterr.Refused, fmt.Errorf("the Git LFS server sends to %s://%s, which is not https",
			text.Line(u.Scheme, 20), text.Line(u.Host, 100)), "")
	}
	if err := c.CheckHost(u.Hostname()); err != nil {
		e, _ := errors.AsType[*giterr.Error](err)
		e.Err = fmt.Errorf("the Git LFS server sends to %s: %w", text.Line(u.Host, 100), e.Err)
		return nil, e
	}
	return u, nil
}
