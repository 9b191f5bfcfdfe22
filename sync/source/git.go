package source

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/netx"
)

// Git is the Git side of a GitRepository: URL, credentials, revision.
type Git struct {
	auth.GitRepository
	Selector gitref.Selector
	Timeout  time.Duration // of one request; 0 = not in the spec
}

// ReadGit reads the Git side of a GitRepository. It sends no requests. An error is an
// *auth.SourceError: an invalid spec.
func ReadGit(u *unstructured.Unstructured) (Git, error) {
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		return Git{}, &auth.SourceError{Field: "spec", Err: errors.New("it is missing, or no object with members")}
	}
	from, err := auth.ReadGitRepository(u.GetNamespace(), u.GetName(), spec)
	if err != nil {
		return Git{}, err
	}
	g := Git{GitRepository: from}
	if g.Selector, err = readSelector(spec["ref"]); err != nil {
		return Git{}, &auth.SourceError{Reason: auth.ReasonOperation, Field: "spec.ref", Err: err}
	}
	if g.Verify.Tag() && g.Selector.Tag == "" && g.Selector.SemVer == "" && !strings.HasPrefix(g.Selector.Name, "refs/tags/") {
		return Git{}, &auth.SourceError{Reason: auth.ReasonVerifyMode, Field: auth.FieldMode, Err: errors.New(
			"a signed tag is required, and ref names none; give ref a tag or a semver, or verify the mode HEAD")}
	}
	if spec["timeout"] != nil {
		if g.Timeout = duration(member(spec, "timeout")); g.Timeout == 0 {
			return Git{}, &auth.SourceError{Field: "spec.timeout", Err: errors.New("it is no time span such as 60s")}
		}
	}
	return g, nil
}

var errNoTexts = errors.New("its members are texts: branch, tag, semver, name or commit")

// readSelector reads a ref of Flux. Documentation and code of Flux disagree about the precedence of
// its fields, so several are refused; only a commit may have the branch beside it that contains it.
func readSelector(ref any) (gitref.Selector, error) {
	s := gitref.Selector{}
	members, ok := ref.(map[string]any)
	if ref != nil && !ok {
		return s, errNoTexts
	}
	for name, to := range map[string]*string{"branch": &s.Branch, "tag": &s.Tag, "semver": &s.SemVer, "name": &s.Name, "commit": &s.Commit} {
		if *to, ok = members[name].(string); !ok && members[name] != nil {
			return s, errNoTexts
		}
	}
	if s == (gitref.Selector{}) {
		s.Branch = "master" // Source: Flux
	}
	s.Commit = strings.ToLower(s.Commit)
	return s, s.Check()
}

// Remote returns the remote with its credentials. from is a chain that ends with
// auth.NamedSecret. The errors are those of auth.GitRepository.Asked.
func (g Git) Remote(ctx context.Context, from auth.Source, allowInsecure bool) (git.Remote, error) {
	creds, err := g.Asked(ctx, from)
	return git.Remote{URL: g.URL, Creds: creds, AllowInsecure: allowInsecure}, err
}

// Revision formats a ref as Flux does, as in main@sha1:HASH: short for a branch or a tag, in full
// where the spec names it in full, and without a name for a commit alone. Source: RFC-0005 of Flux.
func (g Git) Revision(ref git.Ref) string {
	name := ref.Short() + "@"
	switch {
	case g.Selector.Name != "":
		name = ref.Name + "@"
	case g.Selector.Commit != "" && g.Selector.Branch == "":
		name = ""
	}
	return name + "sha1:" + ref.Hash
}

// Reason returns Flux's reason for an error of reading a GitRepository, of a host that makes
// tokens, or of package git.
func Reason(err error) string {
	invalid, isInvalid := errors.AsType[*auth.SourceError](err)
	refused, isForge := errors.AsType[*netx.Error](err)
	_, isGit := errors.AsType[*git.Error](err)
	switch {
	case isInvalid:
		return invalid.Reason
	case isForge && refused.Kind == netx.Invalid:
		return auth.ReasonProvider
	case isForge, !isGit:
		return auth.ReasonAuthentication
	case git.KindOf(err) == git.Empty:
		return auth.ReasonEmpty
	}
	return auth.ReasonOperation
}
