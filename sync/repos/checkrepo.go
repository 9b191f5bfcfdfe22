package repos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/reconcile"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// testRepository checks a Repository. One that is on no API is checked as a new one. It changes
// obj.
func (t *Tester) testRepository(ctx context.Context, obj *unstructured.Unstructured, from auth.Source) (TestResults, error) {
	signing := auth.Source(t.Places.Signing)
	if given := inline(obj); len(given) > 0 {
		from, signing = auth.Chain(auth.Places{Values: given}.Credentials, from), given.signing(signing)
	}
	repo, err := api.RepositoryView(obj)
	if err != nil {
		return TestResults{}, err
	}
	old := obj
	if obj.GetUID() == "" {
		old = nil
	}
	checks := []check{checkRules(obj, old)}
	p, ref, namespace, name := &probe{}, "branch", obj.GetNamespace(), obj.GetName()
	if repo.GitRef != "" {
		ref = stepRevision
	}
	checks = append(checks,
		check{stepCredentials, false, func() (string, error) {
			remotes := checkout.Source{Credentials: from, AllowInsecure: t.Insecure}
			if p, err = (probes{remotes.Remote, t.Git, t.Hosts}).open(ctx, reconcile.Key{Namespace: namespace, Name: name}, repo); err != nil {
				return "", err
			}
			return describeCredentials(p.remote.Creds), remoteResult(repo, p.err).failed()
		}},
		checkKeys(stepSigners, "metadata.annotations", "; to be replaced: ", func() (checkout.KeysLook, error) {
			return t.Signers.Look(ctx, namespace, name, repo, t.Now())
		}),
		checkKeys("signing", "secure.commitSigningKey", "; but ", func() (checkout.KeysLook, error) {
			return checkout.LookAtSigningKey(ctx, signing, namespace, name, repo, t.Now())
		}),
		check{"sink", true, func() (string, error) { return t.checkSink(obj) }},
		check{stepRemote, false, func() (string, error) {
			if err := p.ask(ctx); err != nil {
				return "", err
			}
			if !answered(p.err) {
				return "", p.health()
			}
			return p.describeAnswer(), nil
		}},
		check{ref, false, func() (string, error) { return p.describeRef(), p.health().failed() }},
		check{"path", true, func() (string, error) { return p.checkPath(ctx) }})
	if writes(repo) {
		checks = append(checks, check{"write access", false, func() (string, error) {
			result, err := p.checkWritable(ctx, obj)
			return p.access.describe(), cmp.Or(err, result.failed())
		}})
	}
	results, err := runChecks(ctx, checks...)
	if err == nil {
		results.addMirrors(ctx, p)
	}
	return results, err
}

// checkSink checks whether the directory of a Repository may and can be written.
func (t *Tester) checkSink(obj *unstructured.Unstructured) (string, error) {
	dir, named := obj.GetAnnotations()[api.AnnoSinkDir]
	if !named {
		return "", nil
	}
	target, err := sink.Permit(dir, t.Sinks)
	if err == nil {
		err = sink.Probe(target, obj.GetNamespace()+"/"+obj.GetName())
	}
	if err != nil {
		return "", fieldResult(http.StatusUnprocessableEntity, "metadata.annotations["+api.AnnoSinkDir+"]", err.Error())
	}
	return dir + " can be written", nil
}

// pathTimeout bounds the fetch of a test: a dashboard waits 10 s. A pull has more time.
const pathTimeout = 5 * time.Second

// checkPath looks for the directory of the spec in the commit, which is fetched into the mirror as
// a pull does.
func (p *probe) checkPath(ctx context.Context) (string, error) {
	dir := p.repo.Spec.Dir()
	if dir == "" || p.ref.Hash == "" {
		return "", nil
	}
	limited, cancel := context.WithTimeout(ctx, pathTimeout)
	defer cancel()
	_, err := p.probes.git.Fetch(limited, p.remote, p.ref)
	var tree git.Tree
	if err == nil {
		tree, err = p.probes.git.Names(limited, p.remote, p.ref.Hash, dir)
	}
	switch {
	case git.KindOf(err) == git.PathNotFound:
		return "", fieldResult(http.StatusBadRequest, "spec."+p.repo.Spec.Type+".path", gitText(err))
	case err != nil:
		return "not known: " + gitText(err), nil
	}
	return p.repo.Spec.Block().Path + ", " + text.Plural(len(tree.Files), "file"), nil
}

// answered reports whether a remote has answered, if only that there is no such ref.
func answered(err error) bool {
	kind := git.KindOf(err)
	return err == nil || kind == git.BranchNotFound || kind == git.Empty
}

// checkKeys checks keys. An error of look says that nothing can be pulled or committed.
func checkKeys(name, field, before string, look func() (checkout.KeysLook, error)) check {
	return check{name, true, func() (string, error) {
		keys, err := look()
		if err != nil {
			failed := fieldResult(http.StatusUnprocessableEntity, field, err.Error())
			failed.errors[0].Detail = err.Error()
			return "", failed
		}
		return withNote(keys.Text, before, keys.Soon), nil
	}}
}

// describe returns what is known where nothing is in the way, for people.
func (a *access) describe() string {
	if a.unknown != nil {
		return "not known: " + gitText(a.unknown)
	}
	return "the remote accepts a push"
}

// addMirrors adds a step for each mirror after that of the remote. One that does not
// serve makes no Repository unhealthy.
func (t *TestResults) addMirrors(ctx context.Context, p *probe) {
	at := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == stepRemote && s.Result != StepSkipped }) + 1
	if at == 0 || len(p.remote.Fallbacks) == 0 {
		return
	}
	sel, err := p.selector()
	if err != nil {
		return
	}
	for i, a := range p.probes.git.CheckFallbacks(ctx, p.remote, sel) {
		step := Step{"mirror " + a.URL, StepOK, answeredIn(a.Took) + ", " + describeRef(a.Ref)}
		switch {
		case a.Err != nil:
			step.Result, step.Detail = StepWarning, gitText(a.Err)
		case p.err == nil && a.Ref.Hash != p.ref.Hash:
			step.Result, step.Detail = StepWarning, fmt.Sprintf("it has %s, expected %s", describeRef(a.Ref), describeRef(p.ref))
		}
		t.Steps = slices.Insert(t.Steps, at+i, step)
	}
}

// givenValues are secure values by field, of an object that is not stored yet.
type givenValues map[string][]byte

func (v givenValues) Value(_ context.Context, _ auth.Lookup, field string) ([]byte, error) {
	return v[field], nil
}

// signing searches for a signing key in the values, and then in next, which does not know the given
// fields.
func (v givenValues) signing(next auth.Source) auth.Source {
	return func(ctx context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if found, err := (auth.Places{Values: v}).Signing(ctx, l); err != nil || found != nil {
			return found, err
		}
		l.Secure = maps.Clone(l.Secure)
		maps.DeleteFunc(l.Secure, func(field, _ string) bool { return v[field] != nil })
		return next(ctx, l)
	}
}

// inline moves the secret values out of an object that is not stored yet, and replaces each by a
// name, as an API does.
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
