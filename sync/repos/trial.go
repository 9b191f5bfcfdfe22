package repos

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
)

// TestResults is what a test of a Repository, a Connection or a GitRepository has shown,
// in the form of Grafana's object of that name. Steps is ours: what was looked at, in
// order.
type TestResults struct {
	Code    int              `json:"code"` // of HTTP; 200 = all is well
	Success bool             `json:"success"`
	Errors  []api.FieldError `json:"errors"`
	Steps   []Step           `json:"steps"`

	// Of a GitRepository alone, in the words of Flux.
	Revision string `json:"revision,omitempty"` // that it stands for
	Reason   string `json:"reason,omitempty"`   // why it does not
}

// Step is one thing that a test has looked at.
type Step struct {
	Name   string `json:"name"`
	Result string `json:"result"` // of StepOK and its kin
	Detail string `json:"detail,omitempty"`
}

// Results of a Step.
const (
	StepOK      = "ok"
	StepFailed  = "failed"
	StepWarning = "warning" // of a mirror that does not serve: the test goes on
	StepSkipped = "skipped" // it rests on one that has failed
)

// took adds a step that went well.
func (t *TestResults) took(name, detail string) {
	t.Steps = append(t.Steps, Step{name, StepOK, detail})
}

// end adds the step that found something, or the last one that went well, and the
// steps that were not come to.
func (t *TestResults) end(found finding, name, detail string, missed ...string) TestResults {
	t.Code, t.Success, t.Errors = http.StatusOK, found.ok(), found.errors
	if t.Errors == nil {
		t.Errors = []api.FieldError{}
	}
	if found.ok() {
		t.took(name, detail)
		return *t
	}
	t.Code = found.code
	t.Steps = append(t.Steps, Step{name, StepFailed, found.ready().Message})
	for _, name := range missed {
		t.Steps = append(t.Steps, Step{name, StepSkipped, ""})
	}
	return *t
}

// Names of the steps of a test of a Repository.
const (
	stepRules       = "rules"
	stepCredentials = "credentials"
	stepSigners     = "signers" // of a Repository in which something has to be signed
	stepSigning     = "signing" // of a Repository whose commits are signed
	stepRemote      = "remote"
	stepBranch      = "branch"
	stepRevision    = "revision"     // of a Repository that names another thing than a branch
	stepWrite       = "write access" // of a Repository that has workflows
	stepDirectory   = "directory"    // of a Repository that is one
)

const noneBroken = "the spec breaks none"

// TryRepository looks into a Repository as its controller does, of whose Options it
// needs Remote, Git and LocalPrefixes and takes Signers and Signing, and writes nothing. One that is on no API is
// checked as a new one. An error says that nothing can be told.
func TryRepository(ctx context.Context, o Options, obj *unstructured.Unstructured) (answer TestResults, err error) {
	repo, err := api.RepositoryView(obj)
	if err != nil {
		return TestResults{}, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	old := obj
	if obj.GetUID() == "" {
		old = nil
	}
	c := &Controller{o: o}
	p, err := c.prepare(ctx, Key{obj.GetNamespace(), obj.GetName()}, repo)
	if err != nil {
		return TestResults{}, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	refused := p.asked && repo.Spec.Type != typeLocal // before the remote was asked
	found, broken, err := p.examine(ctx, obj, old)
	if err != nil {
		return TestResults{}, fmt.Errorf("test repository %s: %w", obj.GetName(), err)
	}
	var t TestResults
	later := []string{stepCredentials, stepRemote, p.stepRef()}
	if p.writes() {
		later = append(later, stepWrite)
	}
	if repo.Spec.Type == typeLocal {
		later = []string{stepDirectory}
	}
	if broken {
		return t.end(found, stepRules, "", later...), nil
	}
	t.took(stepRules, noneBroken)
	if repo.Spec.Type == typeLocal {
		return t.end(found, stepDirectory, "it is there"), nil
	}
	if refused {
		return t.end(found, stepCredentials, "", later[1:]...), nil
	}
	t.took(stepCredentials, credentialsText(p.remote.Creds))
	for _, keys := range []struct {
		step string
		look func(ctx context.Context, namespace, name string, repo api.Repository) (string, error)
	}{{stepSigners, o.Signers}, {stepSigning, o.Signing}} {
		if keys.look == nil {
			continue
		}
		switch text, err := keys.look(ctx, obj.GetNamespace(), obj.GetName(), repo); {
		case err != nil:
			return t.end(unsignable(keys.step, err), keys.step, "", later[1:]...), nil
		case text != "":
			t.took(keys.step, text)
		}
	}
	defer func() { answer.mirrors(ctx, p) }()
	if kind := git.KindOf(p.err); p.err != nil && kind != git.BranchNotFound && kind != git.Empty {
		return t.end(found, stepRemote, "", later[2:]...), nil
	}
	t.took(stepRemote, p.answered())
	if p.err != nil || !p.writes() {
		return t.end(found, p.stepRef(), p.at(), later[3:]...), nil
	}
	t.took(p.stepRef(), p.at())
	return t.end(found, stepWrite, p.access.text()), nil
}

// unsignable is the finding for keys that nobody can sign with.
func unsignable(step string, err error) finding {
	where := "metadata.annotations"
	if step == stepSigning {
		where = "secure.commitSigningKey"
	}
	return finding{code: http.StatusUnprocessableEntity, errors: []api.FieldError{{Type: string(field.ErrorTypeInvalid), Field: where, Detail: err.Error()}}}
}

// credentialsText says what a remote is asked with and where that was found.
func credentialsText(c *auth.Credentials) string {
	if c.Empty() {
		return "none: everybody may read, or nobody was given any"
	}
	return c.Kind() + ", " + c.Source
}

// Identities is who knows the hosts of Connections and where their secrets are.
// *forge.Minter is one.
type Identities interface {
	Tester
	// Place says where the secret of a Connection was found, for people.
	Place(ctx context.Context, c forge.Connection) (string, error)
}

var _ Identities = (*forge.Minter)(nil)

// TryConnection looks into a Connection as its controller does, and writes
// nothing. An error says that nothing can be told.
func TryConnection(ctx context.Context, who Identities, obj *unstructured.Unstructured) (TestResults, error) {
	var t TestResults
	if errs := admission.Check(obj, obj); len(errs) > 0 {
		return t.end(structural(errs), stepRules, "", "secret", "host"), nil
	}
	t.took(stepRules, noneBroken)
	connection, err := forge.ConnectionOf(obj)
	if err != nil {
		return TestResults{}, fmt.Errorf("test connection %s: %w", obj.GetName(), err)
	}
	place, missing := who.Place(ctx, connection)
	c := &Connections{o: ConnectionOptions{Tester: who}}
	found, err := c.examine(ctx, obj)
	switch {
	case err != nil:
		return TestResults{}, fmt.Errorf("test connection %s: %w", obj.GetName(), err)
	case missing != nil:
		return t.end(found, "secret", "", "host"), nil
	}
	t.took("secret", place)
	return t.end(found, "host", "it takes the identity"), nil
}
