package manifests

import (
	"slices"
	"strings"
	"testing"
)

const provisioning = "\napiVersion: provisioning.grafana.app/v0alpha1"

func TestUnknownFieldsHaveLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc  string
		want []string // line, path, field that was meant
	}{
		"known":       {doc: "kind: Repository\nspec: {type: git, git: {url: x, branch: y}, sync: {enabled: true, intervalSeconds: 60}}" + provisioning},
		"a provider":  {doc: "kind: Repository\nsecure: {gcpServiceAccount: {create: x}}" + provisioning},
		"open":        {doc: "kind: Dashboard\napiVersion: dashboard.grafana.app/v1\nspec: {x: 1}"},
		"wrong types": {doc: "kind: Repository\nspec: {git: 3, sync: []}" + provisioning},
		"a repository": {doc: "kind: Repository\nmetadata:\n  anotations: {}\nsecure:\n  tokn: {create: x}\nsepc: {}\nspec:\n  git:\n    url: x\n    brach: y" +
			provisioning, want: []string{`f:12: metadata.anotations: "annotations"`, `f:14: secure.tokn: "token"`, `f:15: sepc: "spec"`,
			`f:19: spec.git.brach: "branch"`}},
		"a source": {doc: "kind: GitRepository\napiVersion: source.toolkit.fluxcd.io/v1\nspec:\n  include:\n  - repository: {nam: x}\n  - fromPth: y",
			want: []string{`f:14: spec.include.0.repository.nam: "name"`, `f:15: spec.include.1.fromPth: "fromPath"`}},
		"a job, an alias": {doc: "kind: Job\nx: &o\n  incremntal: true\nspec: {action: pull, pull: *o}" + provisioning,
			want: []string{`f:12: spec.pull.incremntal: "incremental"`, `f:11: x: `}},
		"a secret": {doc: `{"kind": "Secret", "apiVersion": "v1", "stringdata": {}}`, want: []string{`f:10: stringdata: "stringData"`}},
		"JSON": {doc: "{\"kind\": \"Secret\", \"apiVersion\": \"v1\", \"type\": \"\\ud83d\\udd25\\/\",\n\"stringdata\": {}}",
			want: []string{`f:11: stringdata: "stringData"`}},
		"of a list": {doc: "kind: List\napiVersion: v1\nitems:\n- {kind: A}\n- kind: Connection\n  spec: {urrl: x}\n  apiVersion: provisioning.grafana.app/v0alpha1",
			want: []string{`f:15: spec.urrl: "url"`}},
	} {
		documents, err := ReadDocuments("f", []byte(strings.Repeat("#\n", 8)+"---\n"+c.doc))
		if err != nil || len(documents) == 0 {
			t.Fatal(name, err)
		}
		got := documents[len(documents)-1].Unknown
		meant := strings.NewReplacer("unknown field (did you mean ", "", "?)", "")
		if !slices.EqualFunc(got, c.want, func(got, want string) bool { return strings.HasPrefix(meant.Replace(got), want) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
