package admission

import (
	"errors"
	"net/url"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/auth"
)

// checkPath returns why a directory or file of a repository may not be used.
// Slashes at either end mean nothing; the empty path is the root.
func checkPath(path string) error {
	var refused *repopath.PathError
	if errors.As(repopath.CheckPath(strings.TrimPrefix(path, "/")), &refused) {
		return errors.New(refused.Reason)
	}
	return nil
}

// checkBranch returns why a repository cannot be pulled from a branch.
func checkBranch(branch string) error {
	if branch == "HEAD" {
		return errors.New("leave it out to follow the default branch")
	}
	return auth.CheckRefName(branch)
}

// checkGitURL returns why a URL cannot be the remote of a repository. ssh allows ssh://, the scp form user@host:path
// and file:// beside http and https. The error never repeats the URL, which may carry a password.
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
	case a.Scheme == auth.DirScheme:
		return errors.New("a directory of plain files is a repository of type local")
	case a.Scheme == "file":
		// Whether the agent may read the directory is its own decision.
		if a.String() != raw {
			return errors.New("use " + a.String() + " for a local repository")
		}
	case a.Password:
		return errors.New("must not contain a password; put the key in the credentials of the repository")
	case a.User == "" && !strings.Contains(raw, "://"):
		return errors.New("without a scheme it must have the form user@host:path")
	}
	return nil
}

// checkWebURL returns why text cannot be the address of a server.
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
