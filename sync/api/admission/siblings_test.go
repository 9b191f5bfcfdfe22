package admission

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// repo is a Repository of the form name, target, URL, branch, path.
func repo(t testing.TB, name, target, url, branch, path string) *unstructured.Unstructured {
	return object(t, "{kind: Repository, metadata: {name: "+name+"}, spec: {type: git, git: {url: '"+url+"', branch: '"+branch+"', path: '"+
		path+"'}, sync: {enabled: true, target: "+target+"}}}")
}

func TestCheckSiblings(t *testing.T) {
	t.Parallel()
	const url = "https://h/a"
	a, b := repo(t, "a", "instance", url, "", ""), repo(t, "b", "folder", "https://h/b", "", "")
	gone := repo(t, "gone", "instance", url, "", "")
	unstructured.SetNestedField(gone.Object, "2026-11-20T10:00:00Z", "metadata", "deletionTimestamp")
	for _, c := range []struct {
		name          string
		obj, old      *unstructured.Unstructured
		siblings      []*unstructured.Unstructured
		looks, faulty bool
	}{
		{"the first", a, nil, []*unstructured.Unstructured{b}, true, false},
		{"itself", a, b, []*unstructured.Unstructured{a}, true, false},
		{"a second", repo(t, "c", "instance", "https://h/c", "", ""), nil, []*unstructured.Unstructured{a, b}, true, true},
		{"a second by update", repo(t, "b", "instance", "https://h/b", "", ""), b, []*unstructured.Unstructured{a, b}, true, true},
		{"that was one before", a, a, []*unstructured.Unstructured{repo(t, "c", "instance", url, "", "")}, false, false},
		{"after one that is going", a, nil, []*unstructured.Unstructured{gone}, true, false},
		{"another target", b, nil, []*unstructured.Unstructured{a}, true, false},
		{"another kind", object(t, `{kind: Job, spec: {sync: {target: instance}}}`), nil, []*unstructured.Unstructured{a}, false, false},
	} {
		looked := false
		errs, err := CheckSiblings(c.obj, c.old, 0, func() ([]*unstructured.Unstructured, error) { looked = true; return c.siblings, nil })
		if err != nil || looked != c.looks || (len(errs) > 0) != c.faulty {
			t.Errorf("%s: looks around %t, %v %v", c.name, looked, errs, err)
		}
		if c.faulty && (errs[0].Field != "spec.sync.target" || !strings.Contains(errs[0].Detail, `"a"`)) {
			t.Errorf("%s: %v", c.name, errs)
		}
	}
}

// TestTreesOfSiblings: two Repositories do not pull the same files into the API.
func TestTreesOfSiblings(t *testing.T) {
	t.Parallel()
	const url, same, nested = "https://h/a", "duplicate repository path: a", "repository path conflicts with existing repository: a"
	with := func(u *unstructured.Unstructured, annotation, value string) *unstructured.Unstructured {
		api.SetAnnotation(u, annotation, value)
		return u
	}
	off := repo(t, "a", "folder", url, "main", "x")
	unstructured.SetNestedField(off.Object, false, "spec", "sync", "enabled")
	there := repo(t, "a", "folder", url, "main", "x")
	for _, c := range []struct {
		name            string
		obj, old, other *unstructured.Unstructured
		want            string // "" = none
	}{
		{"equal", repo(t, "b", "folder", url, "main", "x"), nil, there, same},
		{"another spelling", repo(t, "b", "folder", url+".git", "main", "/x/"), nil, there, same},
		{"below", repo(t, "b", "folder", url, "main", "x/y"), nil, there, nested},
		{"above", repo(t, "b", "folder", url, "main", ""), nil, there, nested},
		{"a longer name", repo(t, "b", "folder", url, "main", "xy"), nil, there, ""},
		{"another branch", repo(t, "b", "folder", url, "dev", "x"), nil, there, ""},
		{"another URL", repo(t, "b", "folder", "https://h/b", "main", "x"), nil, there, ""},
		{"another revision", with(repo(t, "b", "folder", url, "main", "x"), api.AnnoGitRef, "tag:v1"), nil, there, ""},
		{"a directory", with(repo(t, "b", "folder", url, "main", "x"), api.AnnoSinkDir, "/srv/x"), nil, there, ""},
		{"one without sync", repo(t, "b", "folder", url, "main", "x"), nil, off, ""},
		{"itself", there, nil, there, ""},
		{"by update", repo(t, "b", "folder", url, "main", "x"), repo(t, "b", "folder", url, "main", "y"), there, same},
		{"sync by update", there, off, repo(t, "c", "folder", url, "main", "x"), "duplicate repository path: c"},
		{"stored before", repo(t, "b", "instance", url, "main", "x"), repo(t, "b", "folder", url, "main", "x"), there, ""},
		{"the default branch", repo(t, "b", "folder", url, "main", "x"), repo(t, "b", "folder", url, "", "x"), there, ""},
	} {
		errs, err := CheckSiblings(c.obj, c.old, 0, func() ([]*unstructured.Unstructured, error) { return []*unstructured.Unstructured{c.other}, nil })
		got := ""
		if len(errs) > 0 {
			got = errs[0].Field + " " + errs[0].Detail
		}
		if want := strings.TrimSpace("spec.git.path " + c.want); err != nil || c.want == "" && got != "" || c.want != "" && got != want {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	a, b, c := repo(t, "a", "folder", "", "", ""), repo(t, "b", "folder", "", "", ""), repo(t, "c", "folder", "", "", "")
	gone := repo(t, "gone", "folder", "", "", "")
	unstructured.SetNestedField(gone.Object, "2026-11-20T10:00:00Z", "metadata", "deletionTimestamp")
	for _, tt := range []struct {
		name     string
		obj, old *unstructured.Unstructured
		siblings []*unstructured.Unstructured
		most     int64
		faulty   bool
	}{
		{"no limit", c, nil, []*unstructured.Unstructured{a, b}, 0, false},
		{"the last one", c, nil, []*unstructured.Unstructured{a}, 2, false},
		{"one too many", c, nil, []*unstructured.Unstructured{a, b}, 2, true},
		{"after one that is going", c, nil, []*unstructured.Unstructured{a, gone}, 2, false},
		{"one that is there", c, c, []*unstructured.Unstructured{a, b, c}, 2, false},
		{"another kind", object(t, `{kind: Job}`), nil, []*unstructured.Unstructured{a, b}, 2, false},
	} {
		errs, err := CheckSiblings(tt.obj, tt.old, tt.most, func() ([]*unstructured.Unstructured, error) { return tt.siblings, nil })
		if err != nil || (len(errs) > 0) != tt.faulty || tt.faulty &&
			errs[0].Error() != "spec: Forbidden: Maximum number of 2 repositories reached" {
			t.Errorf("%s: %v", tt.name, errs)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		obj  *unstructured.Unstructured
		want []string // beginnings
	}{
		{"nothing", repo(t, "mine", "folder", "https://h/a", "main", "team/a"), nil},
		{"everything that is known", object(t, goodRepository), nil},
		{"a connection", object(t, goodConnection), nil},
		{"another kind", object(t, `{kind: Job, spec: {wrong: 1}}`), nil},
		{"keys of a provider", object(t, `{kind: Repository, metadata: {annotations: {limpet/git-provider: gcp}}, spec: {type: git, git: {url: x}}, secure: {gcpServiceAccount: {create: x}}}`), nil},
		{"no such provider", object(t, `{kind: Repository, metadata: {annotations: {limpet/git-provider: gpc}}, spec: {type: git, git: {url: x}}}`),
			[]string{`annotation limpet/git-provider: unknown git provider "gpc", did you mean "gcp"?`}},
		{"a tag that is written to", object(t, `{kind: Repository, metadata: {annotations: {limpet/git-ref: "tag:v1"}}, spec: {type: git, git: {url: x}, workflows: [write]}}`),
			[]string{"annotation limpet/git-ref: it names no branch"}},
		{"of the wrong type", object(t, `{kind: Repository, spec: {type: git, git: 3}}`), nil},
	} {
		got := Warnings(c.obj)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGitRepository: the rules of Flux's CRD, with the words of the API server.
func TestGitRepository(t *testing.T) {
	t.Parallel()
	const kind = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, spec: {`
	for spec, want := range map[string][]string{
		`url: 'ssh://git@h/a', interval: 1m30s, timeout: 60s, provider: azure, serviceAccountName: x, secretRef: {name: a}, ` +
			`verify: {mode: Tag, secretRef: {name: k}}, include: [{repository: {name: b}, fromPath: c}]`: nil,
		`url: 'bundle:///media/carried', interval: 1m`: nil,
		`url: 'bundle://host/carried', interval: 1m`:   {`spec.url: Invalid value: spec.url in body should match '^(http|https|ssh)://.*$'`},
		``: {"spec.url: Required value", "spec.interval: Required value"},
		`url: 'git@h:a', interval: often, timeout: 1h, provider: azrue`: {
			`spec.url: Invalid value: spec.url in body should match '^(http|https|ssh)://.*$'`,
			`spec.interval: Invalid value: spec.interval in body should match '^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$'`,
			`spec.timeout: Invalid value: spec.timeout in body should match '^([0-9]+(\.[0-9]+)?(ms|s|m))+$'`,
			`spec.provider: Unsupported value: "azrue": supported values: `},
		`url: 'https://h/a', interval: 1m, secretRef: {}, verify: {mode: TAG}, include: [{fromPath: x}], sparseCheckout: [1]`: {
			"spec.secretRef.name: Required value", `spec.verify.mode: Unsupported value: "TAG": supported values: `,
			"spec.verify.secretRef: Required value", "spec.include[0].repository: Required value", "spec.sparseCheckout[0]: Invalid value: must be of type string"},
		`url: 'https://h/a', interval: 1m, serviceAccountName: x`: {
			"spec: Invalid value: serviceAccountName can only be set when provider is 'azure' or 'aws'"},
	} {
		obj := object(t, kind+spec+"}}")
		errs := Check(obj, nil)
		if !slices.EqualFunc(errs, want, func(got *field.Error, want string) bool { return strings.HasPrefix(got.Error(), want) }) {
			t.Errorf("%s: %v, want %q", spec, errs, want)
		}
		if errs := Check(obj, obj); len(errs) > 0 {
			t.Errorf("%s: stored before the rules: %v", spec, errs)
		}
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{kind: Repository, spec: {sync: {enabled: true}}}`,
			`{kind: Repository, spec: {title: dashboards, sync: {enabled: true, intervalSeconds: 60}}}`},
		{`{kind: Repository, spec: {title: x, sync: {enabled: true, intervalSeconds: 3}}}`,
			`{kind: Repository, spec: {title: x, sync: {enabled: true, intervalSeconds: 10}}}`},
		{`{kind: Repository, spec: {title: x, sync: {enabled: true, intervalSeconds: often}}}`,
			`{kind: Repository, spec: {title: x, sync: {enabled: true, intervalSeconds: often}}}`},
		{`{kind: Repository, spec: {title: x, sync: {intervalSeconds: 3}}}`, `{kind: Repository, spec: {title: x, sync: {intervalSeconds: 3}}}`},
		{`{kind: Repository, spec: 3}`, `{kind: Repository, spec: 3}`},
		{`{kind: Job}`, `{kind: Job}`},
		{`{apiVersion: v1, kind: Secret, stringData: {a: b}}`, `{apiVersion: v1, kind: Secret, type: Opaque, data: {a: Yg==}}`},
		{`{apiVersion: v1, kind: Secret, type: x, stringData: {a: 1}}`, `{apiVersion: v1, kind: Secret, type: x, stringData: {a: 1}}`},
	} {
		got := object(t, c.text)
		Default(got)
		if want := object(t, c.want); !equal(got, want) {
			t.Errorf("%s became %v", c.text, got.Object)
		}
	}
}

func equal(a, b *unstructured.Unstructured) bool {
	x, err := a.MarshalJSON()
	y, again := b.MarshalJSON()
	return err == nil && again == nil && string(x) == string(y)
}
