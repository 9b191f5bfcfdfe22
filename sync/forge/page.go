package forge

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"limpet/sync/auth"
)

// Page returns the web address of a directory of a branch, or of a commit by its 40 digits; without a branch that of
// the repository. It sends no request: for an unknown kind of host it returns the repository. The address is always
// http or https, without a user name, and the error wraps ErrNone when there is no page.
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
