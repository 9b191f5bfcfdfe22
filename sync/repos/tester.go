package repos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/forge"
	"limpet/sync/worker/checkout"
)

// Tester tests Repositories, Connections and GitRepositories of Flux with the credentials
// of an agent, and writes nothing. Hosts, Signers and Places may be empty.
type Tester struct {
	Git         Prober
	Hosts       Hosts
	Minter      *forge.Minter
	Signers     *checkout.Signers
	Places      auth.Places
	Credentials struct{ Repositories, Sources auth.Source }
	Insecure    bool             // http:// is taken
	Sinks       []string         // directories below which repositories may be written
	Now         func() time.Time // of the server
	// Stored returns the objects of a kind and a namespace on the API; nil = there is no API. Stored
	// secrets are sent only where these send them, whatever URL a file gives.
	Stored func(ctx context.Context, kind, namespace string) ([]unstructured.Unstructured, error)
	Look   Look // at sources that are no Git
}

// TestResults is what a test of a Repository, a Connection or a GitRepository has shown,
// in the form of Grafana's object of that name. Steps is ours: what was checked, in order.
type TestResults struct {
	Code    int              `json:"code"` // of HTTP; 200 = success
	Success bool             `json:"success"`
	Errors  []api.FieldError `json:"errors"`
	Steps   []Step           `json:"steps"`

	// Of a GitRepository alone, in the words of Flux.
	Revision string `json:"revision,omitempty"` // that it stands for
	Reason   string `json:"reason,omitempty"`   // of the failure
}

// Step is one thing that a test has checked.
type Step struct {
	Name   string `json:"name"`
	Result string `json:"result"` // StepOK, StepFailed, StepWarning or StepSkipped
	Detail string `json:"detail,omitempty"`
}

// Results of a Step.
const (
	StepOK      = "ok"
	StepFailed  = "failed"
	StepWarning = "warning" // of a mirror that does not serve: the test goes on
	StepSkipped = "skipped" // a step before it has failed
)

// Names of the steps that several tests have.
const (
	stepRules       = "spec"
	stepCredentials = "credentials"
	stepSigners     = "signers"
	stepRemote      = "remote"
	stepRevision    = "revision"
)

const specValid = "valid"

// Test checks one object as its controller does; it need not exist on the API. An error
// means that the test could not run.
func (t *Tester) Test(ctx context.Context, u *unstructured.Unstructured) (results TestResults, err error) {
	what := "repository"
	switch u.GetKind() {
	case Connection:
		what = "connection"
		results, err = t.testConnection(ctx, u)
	case Repository:
		results, err = t.testRepository(ctx, u.DeepCopy(), t.atStoredURL(t.Credentials.Repositories, u))
	case "GitRepository":
		what = "source"
		results, err = t.testSource(ctx, u, t.atStoredURL(t.Credentials.Sources, u))
	case "OCIRepository", "Bucket", "HelmRepository", "HelmChart":
		what = "source"
		results, err = t.testLook(ctx, u)
	default:
		return results, fmt.Errorf("a %s cannot be tested", u.GetKind())
	}
	if err != nil {
		return results, fmt.Errorf("test %s %s: %w", what, u.GetName(), err)
	}
	return results, nil
}

// errAnotherURL is returned instead of stored secrets for an object with a URL to which no stored
// one sends them.
var errAnotherURL = errors.New("given for another URL")

// atStoredURL returns the credentials of from for an object; for one that is elsewhere it returns
// those of rules alone, which are chosen by URL. The API is asked only where it matters.
func (t *Tester) atStoredURL(from auth.Source, u *unstructured.Unstructured) auth.Source {
	return func(ctx context.Context, l auth.Lookup) (c *auth.Credentials, err error) {
		named := len(l.Secure) > 0 || l.Connection != ""
		if !named {
			if c, err = from(ctx, l); err != nil || c.Empty() {
				return c, err
			}
		}
		switch elsewhere, err := t.elsewhere(ctx, u, l); {
		case err != nil:
			return nil, err
		case !elsewhere && named:
			return from(ctx, l)
		case !elsewhere:
			return c, nil
		}
		l.Repository = ""
		l.Connection = ""
		l.Secure = nil
		if c, err = from(ctx, l); err == nil && !c.Empty() {
			return c, nil
		}
		return nil, errAnotherURL
	}
}

// elsewhere reports whether the stored object of the same kind and name has another URL or, if
// there is none, whether u has a host to which no stored object sends what the look-up names.
func (t *Tester) elsewhere(ctx context.Context, u *unstructured.Unstructured, l auth.Lookup) (bool, error) {
	if t.Stored == nil {
		return false, nil
	}
	stored, err := t.Stored(ctx, u.GetKind(), u.GetNamespace())
	if err != nil {
		return false, err
	}
	given := urlsOfObject(u)
	for _, s := range stored {
		if s.GetName() == u.GetName() {
			return !slices.Equal(given, urlsOfObject(&s)), nil
		}
	}
	var names []dependency.Ref
	for field, name := range l.Secure {
		if auth.ForGit(field) {
			names = append(names, dependency.Ref{Kind: dependency.Secret, Namespace: u.GetNamespace(), Name: name})
		}
	}
	if l.Connection != "" && u.GetKind() != Connection {
		names = append(names, dependency.Ref{Kind: Connection, Namespace: u.GetNamespace(), Name: l.Connection})
		connections, err := t.Stored(ctx, Connection, u.GetNamespace())
		if err != nil {
			return false, err
		}
		stored = append(stored, connections...)
	}
	return slices.ContainsFunc(names, func(name dependency.Ref) bool {
		return len(given) == 0 || slices.ContainsFunc(given, func(url string) bool {
			return !slices.ContainsFunc(stored, func(s unstructured.Unstructured) bool { return sends(&s, name, url) })
		})
	}), nil
}

// sends reports whether a stored object uses a Secret or Connection, or is it, at the host of a
// URL.
func sends(stored *unstructured.Unstructured, what dependency.Ref, url string) bool {
	is := what == dependency.Ref{Kind: stored.GetKind(), Namespace: what.Namespace, Name: stored.GetName()}
	secret, _, _ := unstructured.NestedString(stored.Object, "spec", "secretRef", "name")
	inSource := what.Kind == dependency.Secret && what.Name == secret
	return (is || inSource || slices.Contains(dependency.Of(stored), what)) &&
		slices.ContainsFunc(urlsOfObject(stored), func(at string) bool { return auth.SameHost(at+"/x", url+"/x") }) // a server alone has no path
}

// urlsOfObject returns where secrets of an object are sent to.
func urlsOfObject(u *unstructured.Unstructured) []string {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	urls := urlsOf(spec)
	if endpoint, _ := spec["endpoint"].(string); u.GetKind() == "Bucket" && endpoint != "" {
		if scheme := map[bool]string{true: "http://", false: "https://"}[spec["insecure"] == true]; !strings.Contains(endpoint, "://") {
			endpoint = scheme + endpoint
		}
		urls = append(urls, endpoint)
	}
	if u.GetKind() == Connection && len(urls) == 0 {
		if view, err := api.ConnectionView(u); err == nil {
			urls = append(urls, view.Spec.Server())
		}
	}
	return urls
}

// urlsOf returns where secrets of an object with this spec are sent to.
func urlsOf(spec map[string]any) (urls []string) {
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		switch value := spec[name].(type) {
		case map[string]any:
			urls = append(urls, urlsOf(value)...)
		case string:
			if a, err := auth.ParseAddress(value); err == nil {
				value = a.String()
			}
			if name == "url" || name == "serverUrl" {
				urls = append(urls, value)
			}
		}
	}
	return urls
}

// check is a step to run: it returns what it has found, for people, or why it failed, as a
// healthResult. Any other error ends the test without a result.
type check struct {
	name     string
	optional bool // without a detail or when it is skipped, it is no step
	run      func() (detail string, err error)
}

// runChecks runs checks until one fails; the others are skipped.
func runChecks(ctx context.Context, checks ...check) (TestResults, error) {
	t := TestResults{Code: http.StatusOK, Success: true, Errors: []api.FieldError{}}
	for _, c := range checks {
		if !t.Success {
			if !c.optional {
				t.Steps = append(t.Steps, Step{c.name, StepSkipped, ""})
			}
			continue
		}
		detail, err := c.run()
		failed, is := errors.AsType[healthResult](err)
		switch {
		case ctx.Err() != nil:
			return TestResults{}, context.Cause(ctx)
		case err != nil && !is:
			return TestResults{}, err
		case is:
			t.Code = failed.code
			t.Success = false
			t.Errors = failed.errors
			t.Steps = append(t.Steps, Step{c.name, StepFailed, failed.ready().Message})
		case detail != "" || !c.optional:
			t.Steps = append(t.Steps, Step{c.name, StepOK, detail})
		}
	}
	return t, nil
}

func checkRules(obj, old *unstructured.Unstructured) check {
	return check{stepRules, false, func() (string, error) {
		return specValid, invalidResult(admission.Check(obj, old)).failed()
	}}
}

func (t *Tester) testConnection(ctx context.Context, obj *unstructured.Unstructured) (TestResults, error) {
	var result healthResult
	return runChecks(ctx, checkRules(obj, obj),
		check{"secret", false, func() (string, error) {
			connection, err := forge.ConnectionOf(obj)
			if err != nil {
				return "", err
			}
			switch elsewhere, err := t.elsewhere(ctx, obj, auth.Lookup{Secure: connection.Secure}); {
			case err != nil:
				return "", err
			case elsewhere:
				return "", fieldResult(http.StatusUnprocessableEntity, "secure", errAnotherURL.Error())
			}
			place, missing := t.Minter.Place(ctx, connection)
			if result, err = checkConnection(ctx, t.Minter, obj); err != nil || missing != nil {
				return "", cmp.Or(err, result.failed())
			}
			return place, nil
		}},
		check{"host", false, func() (string, error) { return "accepts the identity", result.failed() }})
}

// describeCredentials returns what a remote is asked with and where that was found.
func describeCredentials(c *auth.Credentials) string {
	if c.Empty() {
		return "none configured (anonymous)"
	}
	return c.Kind() + ", " + c.Source
}

// withNote adds a note to a text, if there is one.
func withNote(text, before, note string) string {
	if note == "" {
		return text
	}
	return text + before + note
}
