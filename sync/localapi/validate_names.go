package localapi

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// Limits of a path inside a repository. Source: Grafana's safepath package.
const (
	maxPathLength = 1024
	maxPathDepth  = 8
)

var pathLetters = regexp.MustCompile(`^[A-Za-z0-9 _.\-/]*$`)

// checkPath tells why a directory or file of a repository may not be used.
// Slashes at either end mean nothing; the empty path is the root.
func checkPath(path string) error {
	if len(path) > maxPathLength {
		return fmt.Errorf("must be at most %d characters long", maxPathLength)
	}
	if strings.Contains(path, "//") {
		return errors.New("must not contain //")
	}
	if !pathLetters.MatchString(path) {
		return errors.New("may contain letters, digits, blanks and _ . - / only")
	}
	trimmed := strings.Trim(path, "/")
	if trimmed == "" {
		return nil
	}
	segments := strings.Split(trimmed, "/")
	if len(segments) > maxPathDepth {
		return fmt.Errorf("must be at most %d directories deep", maxPathDepth)
	}
	for _, segment := range segments {
		switch {
		case segment == "." || segment == "..":
			return errors.New(`must not contain the segments "." and ".."`)
		case strings.HasPrefix(segment, "."):
			return fmt.Errorf("must not contain hidden directories such as %q", segment)
		}
	}
	return nil
}

// checkBranch applies the rules of git check-ref-format(1) for a branch.
func checkBranch(branch string) error {
	switch {
	case len(branch) > 250:
		return errors.New("must be at most 250 characters long")
	case strings.HasPrefix(branch, "-"):
		return errors.New("must not begin with a dash")
	case strings.HasPrefix(branch, "/") || strings.HasSuffix(branch, "/"):
		return errors.New("must not begin or end with a slash")
	case strings.HasSuffix(branch, "."):
		return errors.New("must not end with a dot")
	case branch == "@" || strings.Contains(branch, "@{"):
		return errors.New(`must not be "@" or contain "@{"`)
	case strings.Contains(branch, ".."):
		return errors.New("must not contain two dots in a row")
	case strings.Contains(branch, "//"):
		return errors.New("must not contain two slashes in a row")
	case strings.ContainsAny(branch, " ~^:?*[\\"):
		return errors.New(`must not contain blanks or any of ~ ^ : ? * [ \`)
	case strings.ContainsFunc(branch, unicode.IsControl):
		return errors.New("must not contain control characters")
	case branch == "HEAD":
		return errors.New("must not be HEAD; leave it out to follow the default branch")
	}
	for part := range strings.SplitSeq(branch, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return errors.New(`no part may begin with a dot or end with ".lock"`)
		}
	}
	return nil
}

var scpLike = regexp.MustCompile(`^([A-Za-z0-9_.][A-Za-z0-9_.\-]*)@(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.][A-Za-z0-9.\-]*):([^:\s].*)$`)

// checkGitURL tells why a URL cannot be the remote of a repository. ssh allows
// ssh://, the scp form user@host:path and file:// beside http and https. The
// error never repeats the URL, which may carry a password.
func checkGitURL(raw string, ssh bool) error {
	if strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return errors.New("must not contain blanks or control characters")
	}
	if !strings.Contains(raw, "://") {
		if ssh && scpLike.MatchString(raw) {
			return nil
		}
		return errors.New("must be an absolute URL such as https://host/owner/name.git" + sshExample(ssh))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("is not a URL")
	}
	switch u.Scheme {
	case "http", "https":
		// A user name in an http URL is as often as not a token.
		if u.User != nil {
			return errors.New("must not contain a user name or a password; put the user in tokenUser and the secret in secure.token")
		}
	case "ssh":
		if !ssh {
			return errors.New("ssh is for repositories of type git; use https")
		}
		if _, set := u.User.Password(); set {
			return errors.New("must not contain a password; put the key in the credentials of the repository")
		}
	case "file":
		// Whether the agent may read the directory is its own decision.
		if !ssh || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) != u.Path {
			return errors.New("a local repository is for type git, as file:// and an absolute path")
		}
		return nil
	default:
		return errors.New("must begin with https:// or http://" + sshExample(ssh))
	}
	switch {
	case u.Hostname() == "":
		return errors.New("must name a host")
	case strings.Trim(u.Path, "/") == "":
		return errors.New("must name a repository below the host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("must not contain a query or a fragment")
	case strings.HasPrefix(u.Host, "-"):
		return errors.New("host must not begin with a dash")
	}
	return nil
}

// checkWebURL is the rule for the address of a server.
func checkWebURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with https:// or http://")
	case u.User != nil:
		return errors.New("must not contain a user name or a password")
	case u.Hostname() == "":
		return errors.New("must name a host")
	}
	return nil
}

func sshExample(ssh bool) string {
	if ssh {
		return ", ssh://git@host/owner/name.git or git@host:owner/name.git"
	}
	return ""
}
