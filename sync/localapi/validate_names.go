package localapi

import (
	"errors"
	"net/url"
	"strings"
	"unicode"

	"limpet/sync/auth"
	"limpet/sync/resources"
)

// checkPath tells why a directory or file of a repository may not be used.
// Slashes at either end mean nothing; the empty path is the root.
func checkPath(path string) error {
	var refused *resources.PathError
	if errors.As(resources.CheckPath(strings.TrimPrefix(path, "/")), &refused) {
		return errors.New(refused.Reason)
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

// checkGitURL tells why a URL cannot be the remote of a repository. ssh allows
// ssh://, the scp form user@host:path and file:// beside http and https. The
// error never repeats the URL, which may carry a password.
func checkGitURL(raw string, ssh bool) error {
	a, err := auth.ParseAddress(raw)
	switch {
	case err != nil:
		return err
	case a.Scheme == "https", a.Scheme == "http":
		// A user name in an http URL is as often as not a token.
		if a.User != "" || a.Password {
			return errors.New("must not contain a user name or a password; put the user in tokenUser and the secret in secure.token")
		}
	case !ssh:
		return errors.New("must begin with https:// or http://; ssh and file are for repositories of type git")
	case a.Scheme == "file":
		// Whether the agent may read the directory is its own decision.
		if a.String() != raw {
			return errors.New("a local repository is given as file:// and a plain absolute path")
		}
	case a.Password:
		return errors.New("must not contain a password; put the key in the credentials of the repository")
	case a.User == "" && !strings.Contains(raw, "://"):
		return errors.New("without a scheme it must have the form user@host:path")
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
