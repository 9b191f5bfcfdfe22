package admission

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
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
	case a.Local():
		// Whether the agent may read the directory is its own decision.
		if a.String() != raw {
			return errors.New("use " + a.String() + " for a local repository")
		}
	case a.Upstream() && (a.User != "" || a.Password):
		return errors.New("must not contain a user name or a password; put the token of the other limpet in secure.token")
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

// targetInstance is the target that only one repository of a namespace has.
const targetInstance = "instance"

// CheckSiblings checks obj, which replaces old (nil for a new object), against the other
// Repositories of its namespace, of which there may be most; 0 = no limit. read returns
// them, obj itself may be among them; it is called only if a rule depends on them.
func CheckSiblings(
	obj, old *unstructured.Unstructured, most int64, read func() ([]*unstructured.Unstructured, error),
) (errs field.ErrorList, err error) {
	takes := syncTarget(obj) == targetInstance && syncTarget(old) != targetInstance
	counts := most > 0 && old == nil
	if !isRepository(obj) || obj.GetDeletionTimestamp() != nil || !takes && !counts {
		return nil, nil
	}
	all, err := read()
	if err != nil {
		return nil, err
	}
	have := int64(0)
	for _, other := range all {
		if other.GetName() == obj.GetName() || other.GetDeletionTimestamp() != nil {
			continue
		}
		have++
		if takes && syncTarget(other) == targetInstance {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "sync", "target"),
				fmt.Sprintf("only one repository of a namespace has the target %s, and that is %q", targetInstance, other.GetName())))
			takes = false
		}
	}
	if counts && have >= most { // source: Grafana
		errs = append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf("Maximum number of %d repositories reached", most)))
	}
	return errs, nil
}

func isRepository(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetKind() == "Repository" && obj.GroupVersionKind().Group == api.ProvisioningGroup
}

func syncTarget(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "sync", "target")
	return target
}
