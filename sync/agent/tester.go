package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/control"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/source"
	"limpet/sync/worker"
)

// Test implements control.Tester. A successful test of an unhealthy Repository or
// Connection starts its health check at once, so that a fix takes effect without
// delay.
func (a *Agent) Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	got, err := a.test(ctx, u)
	if err == nil && got.Success && u.GetUID() != "" && a.repoController != nil {
		switch u.GetKind() {
		case "Connection":
			a.connectionController.Recheck(u.GetNamespace(), u.GetName())
		case "Repository":
			a.repoController.Recheck(u.GetNamespace(), u.GetName())
		}
	}
	return got, err
}

func (a *access) test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	switch u.GetKind() {
	case "Connection":
		return repos.TestConnection(ctx, a.minter, u)
	case "Repository":
		return a.testRepository(ctx, u.DeepCopy())
	case "GitRepository":
		t, err := a.testSource(ctx, u)
		if err != nil {
			return t, fmt.Errorf("test source %s: %w", u.GetName(), err)
		}
		return t, nil
	}
	return repos.TestResults{}, fmt.Errorf("a %s cannot be tested", u.GetKind())
}

func (a *access) testRepository(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	from, signing := a.credentials(), auth.SigningSource(a.places().Signing)
	if given := inline(u); len(given) > 0 {
		from, signing = auth.Chain(auth.Places{Values: given}, from), given.signing(signing)
	}
	return repos.TestRepository(ctx, repos.CheckOptions{
		Remotes: worker.Remotes{Credentials: from, AllowInsecure: a.cfg.AllowInsecureGit},
		Git:     a.mirrors,
		Hosts:   repos.Forges{Hosts: a.hosts},
		Signers: func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
			look, err := a.signers.Look(ctx, namespace, name, repo, a.serverTime())
			return withNote(look.Text, "; to be replaced: ", look.Soon), err
		},
		Signing: func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
			look, err := worker.NewSigningKeys(signing).Look(ctx, namespace, name, repo, a.signers, a.serverTime())
			return withNote(look.Text, "; but ", look.Soon), err
		},
	}, u)
}

func (a *access) testSource(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	from, err := source.ReadGit(u)
	credentials := a.sourceCredentials()
	return repos.TestSource(ctx, repos.SourceOptions{
		Spec:     from.GitRepository,
		Invalid:  err,
		Selector: from.Selector,
		Timeout:  from.Timeout,
		Revision: from.Revision,
		Git:      a.mirrors,
		Remote: func(ctx context.Context) (git.Remote, error) {
			return from.Remote(ctx, credentials, a.cfg.AllowInsecureGit)
		},
		Signers: func(ctx context.Context) (string, error) {
			found, err := from.NamedSigners(ctx, a.places())
			if err != nil {
				return "", err
			}
			look, err := a.signers.LookAtKeys(from.Verify, "spec.verify", found, a.serverTime())
			return withNote(look.Text, "; to be replaced: ", look.Soon), err
		},
	})
}

// withNote adds a note to a text, if there is one.
func withNote(text, before, note string) string {
	if note == "" {
		return text
	}
	return text + before + note
}

// givenValues are secure values by field, of an object that is not stored yet.
type givenValues map[string][]byte

// Value implements auth.Values.
func (v givenValues) Value(_ context.Context, _ auth.Lookup, field string) ([]byte, error) {
	return v[field], nil
}

// signing searches for a signing key in the values, and then in next, which does not
// know the given fields.
func (v givenValues) signing(next auth.SigningSource) auth.SigningSource {
	return func(ctx context.Context, l auth.Lookup) (*auth.Signing, error) {
		if found, err := (auth.Places{Values: v}).Signing(ctx, l); err != nil || found != nil {
			return found, err
		}
		l.Secure = maps.Clone(l.Secure)
		for field := range v {
			delete(l.Secure, field)
		}
		return next(ctx, l)
	}
}

// inline moves the secret values out of an object that is not stored yet, and
// replaces each by a name, as an API does.
func inline(u *unstructured.Unstructured) givenValues {
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	given := givenValues{}
	for field, member := range secure {
		value, _, _ := unstructured.NestedString(map[string]any{"": member}, "", "create")
		if value == "" {
			continue
		}
		given[field] = []byte(value)
		secure[field] = map[string]any{"name": "given"}
	}
	if len(given) > 0 {
		u.Object["secure"] = secure
	}
	return given
}

// Tester tests objects without a running Agent, with the same credentials and API.
type Tester struct {
	access
	dir string
}

var _ control.Tester = (*Tester)(nil)

// OpenTester returns a Tester. It requires of cfg what an Agent does, except Store,
// which only the embedded API needs. Close removes all its files.
func OpenTester(ctx context.Context, cfg Config) (_ *Tester, err error) {
	b := &Tester{access: access{cfg: cfg}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.connect(ctx, cfg); err != nil {
		return nil, err
	}
	// The mirrors beside the state file may be those of another process.
	if b.dir, err = os.MkdirTemp("", "limpet-test-"); err != nil {
		return nil, fmt.Errorf("make a directory for the test: %w", err)
	}
	return b, b.open(b.dir)
}

// Test implements control.Tester.
func (b *Tester) Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	return b.test(ctx, u)
}

// Client returns the client of the API. It is valid until Close.
func (b *Tester) Client() *kube.Client { return b.client }

// Close closes the connections.
func (b *Tester) Close() error {
	b.access.close()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
