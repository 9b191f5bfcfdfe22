package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// Git is the part of git.Mirrors that jobs use. Package git documents the calls.
type Git interface {
	Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error)
	Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error)
	Commit(ctx context.Context, r git.Remote, hash string) (git.CommitInfo, error)
	Verify(ctx context.Context, r git.Remote, ref git.Ref, v git.Verification) ([]git.Verified, error)
	Tree(ctx context.Context, r git.Remote, commit, dir string) (git.Tree, error)
	Names(ctx context.Context, r git.Remote, commit, dir string) (git.Tree, error)
	Near(ctx context.Context, r git.Remote, commit, dir string, paths []string) (git.Tree, error)
	WholeTree(ctx context.Context, r git.Remote, commit, dir string) (git.Tree, error)
	Changes(ctx context.Context, r git.Remote, from, to, dir string) (git.Comparison, error)
	Blob(ctx context.Context, r git.Remote, hash string, max int64) ([]byte, error)
	Large(r git.Remote, ref git.Ref) *git.Large
	LargeWithin(l *git.Large, sub git.Submodule) *git.Large
	Contains(ctx context.Context, r git.Remote, tip git.Ref, commit string) (bool, error)
	Compose(ctx context.Context, r git.Remote, base string, edits []git.Edit) (*git.Composition, error)
	Push(ctx context.Context, r git.Remote, branch, old string, w *git.NewCommit) error
}

var _ Git = (*git.Mirrors)(nil)

// source is the Git side of a Repository object.
type source struct {
	url, dir string
	mirrors  []string
	last     string // commit of the last pull
	sel      gitref.Selector
	requests git.RequestLimits
	wrong    error // of sel or mirrors
	lookup   auth.Lookup
}

// sourceOf returns the Git side of a Repository. The error names the field to change.
func sourceOf(namespace, name string, repo api.Repository) (source, error) {
	spec := repo.Spec
	block := spec.Block()
	if block == nil {
		return source{}, fmt.Errorf("repository %q: spec.%s is missing", name, cmp.Or(spec.Type, "type"))
	}
	if spec.Type == "local" {
		if !filepath.IsAbs(block.Path) {
			return source{}, fmt.Errorf("repository %q: spec.local.path is not an absolute path", name)
		}
		return source{url: auth.Address{Scheme: auth.DirScheme, Path: path.Clean(block.Path)}.String(), last: repo.Status.Sync.LastRef,
			lookup: auth.Lookup{Namespace: namespace, Repository: name}}, nil
	}
	if block.URL == "" {
		return source{}, fmt.Errorf("repository %q: spec.%s.url is missing", name, spec.Type)
	}
	s := source{url: cloneURL(spec.Type, block.URL), dir: spec.Dir(), last: repo.Status.Sync.LastRef}
	field := "spec." + spec.Type + ".branch"
	if repo.GitRef != "" {
		field = "annotation " + api.AnnoGitRef
	}
	if l := block.RequestLimits; spec.Type == "git" {
		s.requests = git.RequestLimits{MaxConcurrent: l.MaxConcurrent, PerSecond: l.RequestsPerSecond, Burst: l.Burst}
	}
	var err error
	if s.sel, err = gitref.Of(repo.GitRef, block.Branch); err != nil {
		s.wrong = fmt.Errorf("%s: %w", field, err)
	}
	if s.mirrors, err = auth.Mirrors(repo.GitMirrors, s.url); err != nil {
		s.wrong = cmp.Or(s.wrong, fmt.Errorf("annotation %s: %w", api.AnnoGitMirrors, err))
	}
	s.lookup = auth.Lookup{
		Namespace:   namespace,
		Repository:  name,
		URL:         s.url,
		TokenUser:   tokenUser(spec.Type, block.TokenUser),
		Secure:      map[string]string{},
		Provider:    repo.GitProvider,
		ProxySecret: repo.GitProxySecret,
	}
	for field, value := range repo.Secure {
		if value.Name != "" {
			s.lookup.Secure[field] = value.Name
		}
	}
	if spec.Connection != nil {
		s.lookup.Connection = spec.Connection.Name
	}
	return s, nil
}

// URLs returns all URLs that a pull of a Repository may fetch from: the one that it clones, then
// the mirrors. A Repository without a Git side has none; its health says why.
func URLs(repo api.Repository) []string {
	s, err := sourceOf("", "", repo)
	if err != nil {
		return nil
	}
	return append([]string{s.url}, s.mirrors...)
}

// Remote returns the Git remote of a Repository. A wrong spec is a *git.Error of kind Refused,
// missing credentials are one of kind Auth or of the kind of the error that the host of a
// Connection returns for a token; an unavailable API is a *kube.UnavailableError.
func (s Source) Remote(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
	src, err := sourceOf(namespace, name, repo)
	if err = cmp.Or(err, src.wrong); err != nil {
		return git.Remote{}, &git.Error{Kind: git.Refused, Op: "resolve", Err: err}
	}
	remote, err := src.remote(ctx, s.Credentials, s.AllowInsecure)
	if _, away := errors.AsType[*kube.UnavailableError](err); away || ctx.Err() != nil {
		return git.Remote{}, err
	}
	if err != nil {
		return git.Remote{}, credentialsError(err)
	}
	return remote, nil
}

// remote returns the Git remote of the source. If the source has mirrors, an unavailable host of a
// Connection counts as an unavailable Git host.
func (s source) remote(ctx context.Context, from auth.Source, allowInsecure bool) (git.Remote, error) {
	r := git.Remote{URL: s.url, AllowInsecure: allowInsecure, Requests: s.requests}
	r.LastSynced = s.last
	for _, url := range s.mirrors {
		r.Fallbacks = append(r.Fallbacks, git.Fallback{URL: url, Credentials: s.of(url, from)})
	}
	var err error
	if r.Creds, err = s.credentials(ctx, from); err == nil || len(s.mirrors) == 0 || ctx.Err() != nil {
		return r, err
	}
	if _, away := errors.AsType[*kube.UnavailableError](err); away {
		return r, err
	}
	if down := credentialsError(err); down.Kind == git.Unreachable {
		down.URL = text.Redact(s.url)
		r.Down = down
		return r, nil
	}
	return r, err
}

// of returns the look-up of the credentials of a mirror. The credentials of the Repository go to
// its own host only: the rules of the configuration determine the credentials and the proxy of any
// other host.
func (s source) of(url string, from auth.Source) func(context.Context) (*auth.Credentials, error) {
	l := auth.Lookup{Namespace: s.lookup.Namespace, URL: url}
	if auth.SameHost(s.url, url) {
		l = s.lookup
		l.URL = url
	}
	return func(ctx context.Context) (*auth.Credentials, error) {
		if from == nil {
			return nil, nil
		}
		creds, err := from(ctx, l)
		if err != nil {
			return nil, credentialsError(fmt.Errorf("look up credentials: %w", err))
		}
		return creds, nil
	}
}

// credentialsError converts an error of the credentials to the error of the remote.
func credentialsError(err error) *git.Error {
	e := &git.Error{Kind: git.Auth, Op: "resolve", Err: err}
	f, ok := errors.AsType[*netx.Error](err)
	if !ok {
		return e
	}
	switch e.RetryAfter = f.RetryAfter; f.Kind {
	case netx.Unavailable, netx.Protocol:
		e.Kind = git.Unreachable
	case netx.RateLimited:
		e.Kind = git.Throttled
	case netx.NotFound:
		e.Kind = git.NotFound
	case netx.Invalid, netx.Refused:
		e.Kind = git.Refused
	}
	return e
}

// cloneURL returns the URL to clone. It adds the suffix .git for hosting services, except for Azure
// DevOps, and returns the URL of a plain repository unchanged.
func cloneURL(kind, url string) string {
	url = strings.TrimSuffix(url, "/")
	if kind == "git" || strings.HasSuffix(url, ".git") || strings.Contains(url, "/_git/") {
		return url
	}
	return url + ".git"
}

// tokenUser returns the user name that a service requires with a bare token.
func tokenUser(kind, configured string) string {
	switch {
	case configured != "":
		return configured
	case kind == "gitlab":
		return "oauth2"
	case kind == "bitbucket":
		return "x-token-auth"
	}
	return ""
}

// credentials looks up the credentials of the remote; nil means none. Where the object names some,
// a request without them would only be rejected.
func (s source) credentials(ctx context.Context, from auth.Source) (*auth.Credentials, error) {
	if from == nil {
		from = auth.Chain()
	}
	l := s.lookup
	if l.URL == "" { // a directory
		return nil, nil
	}
	creds, err := from(ctx, l)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look up credentials of %s: %w", l.Repository, err)
	case !creds.Empty():
	case l.Connection != "":
		return nil, fmt.Errorf("no credentials for repository %s: it uses connection %q, of which this agent has neither the key nor a token; "+
			"put it into the file %s.%s/privateKey or token below --credentials-dir", l.Repository, l.Connection, l.Namespace, l.Connection)
	case l.Secure["token"] != "":
		return nil, fmt.Errorf("no credentials for repository %s: secure.token is the secret %q, which this agent cannot read; "+
			"put the token into the file %s.%s/token below --credentials-dir", l.Repository, l.Secure["token"], l.Namespace, l.Repository)
	}
	return creds, nil
}
