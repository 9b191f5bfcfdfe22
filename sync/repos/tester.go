package repos

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/source"
	"limpet/sync/worker"
)

// Tester tests Repositories, Connections and GitRepositories of Flux with the credentials
// of an agent, and writes nothing. All fields must be set.
type Tester struct {
	Git         Prober
	Hosts       Hosts
	Identities  Identities
	Signers     *worker.Signers
	Places      auth.Places
	Credentials struct{ Repositories, Sources auth.Source }
	Insecure    bool             // http:// is taken
	Now         func() time.Time // of the server
}

// Test checks one object, which need not exist on the API. An error means that the test
// could not run.
func (t *Tester) Test(ctx context.Context, u *unstructured.Unstructured) (TestResults, error) {
	switch u.GetKind() {
	case Connection:
		return TestConnection(ctx, t.Identities, u)
	case Repository:
		return t.testRepository(ctx, u.DeepCopy())
	case "GitRepository":
		results, err := t.testSource(ctx, u)
		if err != nil {
			return results, fmt.Errorf("test source %s: %w", u.GetName(), err)
		}
		return results, nil
	}
	return TestResults{}, fmt.Errorf("a %s cannot be tested", u.GetKind())
}

func (t *Tester) testRepository(ctx context.Context, u *unstructured.Unstructured) (TestResults, error) {
	from, signing := t.Credentials.Repositories, auth.SourceFunc(t.Places.Signing)
	if given := inline(u); len(given) > 0 {
		from, signing = auth.Chain(auth.Places{Values: given}, from), given.signing(signing)
	}
	return TestRepository(ctx, CheckOptions{
		Remotes: worker.Remotes{Credentials: from, AllowInsecure: t.Insecure},
		Git:     t.Git,
		Hosts:   t.Hosts,
		Signers: func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
			look, err := t.Signers.Look(ctx, namespace, name, repo, t.Now())
			return withNote(look.Text, "; to be replaced: ", look.Soon), err
		},
		Signing: func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
			look, err := worker.LookAtSigningKey(ctx, signing, namespace, name, repo, t.Now())
			return withNote(look.Text, "; but ", look.Soon), err
		},
	}, u)
}

func (t *Tester) testSource(ctx context.Context, u *unstructured.Unstructured) (TestResults, error) {
	from, err := source.ReadGit(u)
	return TestSource(ctx, SourceOptions{
		Source:  from,
		Invalid: err,
		Git:     t.Git,
		Remote: func(ctx context.Context) (git.Remote, error) {
			return from.Remote(ctx, t.Credentials.Sources, t.Insecure)
		},
		Signers: func(ctx context.Context) (string, error) {
			found, err := from.NamedSigners(ctx, t.Places)
			if err != nil {
				return "", err
			}
			look, err := t.Signers.LookAtKeys(from.Verify, "spec.verify", found, t.Now())
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
func (v givenValues) signing(next auth.SourceFunc) auth.SourceFunc {
	return func(ctx context.Context, l auth.Lookup) (*auth.Credentials, error) {
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
