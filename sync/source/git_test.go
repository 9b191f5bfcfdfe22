package source_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/source"
)

const pin = "5d41aa905d41aa905d41aa905d41aa905d41aa90"

func readGit(t *testing.T, spec string) (source.Git, error) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"site","namespace":"apps"},"spec":`+spec+`}`), u); err != nil {
		t.Fatalf("%v: %s", err, spec)
	}
	return source.ReadGit(u)
}

// TestReadGit: what is asked for, and how its revision is told.
func TestReadGit(t *testing.T) {
	t.Parallel()
	const at = `{"url":"https://git.example.com/x"`
	for _, c := range []struct {
		spec string
		want gitref.Selector
		ref  git.Ref // that it stands for
		told string
	}{
		{at + `}`, gitref.Selector{Branch: "master"}, git.Ref{Name: "refs/heads/master", Hash: pin}, "master@sha1:" + pin},
		{at + `,"ref":{}}`, gitref.Selector{Branch: "master"}, git.Ref{Name: "refs/heads/master", Hash: pin}, "master@sha1:" + pin},
		{at + `,"ref":{"branch":"feature/a"}}`, gitref.Selector{Branch: "feature/a"}, git.Ref{Name: "refs/heads/feature/a", Hash: pin},
			"feature/a@sha1:" + pin},
		{at + `,"ref":{"tag":"v1.2.3"}}`, gitref.Selector{Tag: "v1.2.3"},
			git.Ref{Name: "refs/tags/v1.2.3", Hash: pin, Tag: strings.Repeat("a", 40)}, "v1.2.3@sha1:" + pin},
		{at + `,"ref":{"semver":">=1.0.0 <2.0.0"}}`, gitref.Selector{SemVer: ">=1.0.0 <2.0.0"}, git.Ref{Name: "refs/tags/v1.9.0", Hash: pin},
			"v1.9.0@sha1:" + pin},
		{at + `,"ref":{"name":"refs/heads/main"}}`, gitref.Selector{Name: "refs/heads/main"}, git.Ref{Name: "refs/heads/main", Hash: pin},
			"refs/heads/main@sha1:" + pin},
		{at + `,"ref":{"name":"refs/pull/420/head"}}`, gitref.Selector{Name: "refs/pull/420/head"},
			git.Ref{Name: "refs/pull/420/head", Hash: pin}, "refs/pull/420/head@sha1:" + pin},
		{at + `,"ref":{"commit":"` + strings.ToUpper(pin) + `"}}`, gitref.Selector{Commit: pin}, git.Ref{Name: pin, Hash: pin, Pinned: true},
			"sha1:" + pin},
		{at + `,"ref":{"commit":"` + pin + `","branch":"main"}}`, gitref.Selector{Commit: pin, Branch: "main"},
			git.Ref{Name: "refs/heads/main", Hash: pin, Pinned: true}, "main@sha1:" + pin},
	} {
		g, err := readGit(t, c.spec)
		if err != nil || g.Selector != c.want || g.Timeout != 0 {
			t.Errorf("%s: %+v, %v", c.spec, g.Selector, err)
		}
		if told := g.Revision(c.ref); told != c.told {
			t.Errorf("%s is told as %s, want %s", c.spec, told, c.told)
		}
	}
	const keys = `,"verify":{"mode":"Tag","secretRef":{"name":"keys"}}`
	for _, spec := range []string{at + keys + `,"ref":{"tag":"v1"}}`, at + keys + `,"ref":{"semver":"*"},"timeout":"1m30s"}`,
		at + keys + `,"ref":{"name":"refs/tags/v1"}}`} {
		g, err := readGit(t, spec)
		if err != nil || strings.Contains(spec, "timeout") != (g.Timeout == 90*time.Second) {
			t.Errorf("%s: %+v, %v", spec, g, err)
		}
	}
	for spec, want := range map[string]string{
		`"x"`: " spec: it is missing", `{}`: "URLInvalid spec.url",
		at + `,"ref":"main"}`:                                         "GitOperationFailed spec.ref: its members are texts",
		at + `,"ref":{"branch":["main"]}}`:                            "GitOperationFailed spec.ref: its members are texts",
		at + `,"ref":{"branch":"main","tag":"v1"}}`:                   "GitOperationFailed spec.ref: branch and tag: only one of them",
		at + `,"ref":{"tag":"v1","semver":"1.x"}}`:                    "GitOperationFailed spec.ref: tag and semver: only one",
		at + `,"ref":{"name":"refs/heads/a","commit":"` + pin + `"}}`: "GitOperationFailed spec.ref: ref and commit: only one",
		at + `,"ref":{"commit":"5d41aa9"}}`:                           "GitOperationFailed spec.ref: \"5d41aa9\" is not a commit",
		at + `,"ref":{"semver":"newest"}}`:                            "GitOperationFailed spec.ref: \"newest\" is not a range",
		at + `,"ref":{"name":"main"}}`:                                "GitOperationFailed spec.ref: \"main\" is not the full name",
		at + `,"ref":{"branch":"/main"}}`:                             "GitOperationFailed spec.ref: \"/main\" is not the name of a branch",
		at + keys + `,"ref":{"branch":"main"}}`:                       "InvalidVerificationMode spec.verify.mode: a signed tag is required",
		at + keys + `,"ref":{"name":"refs/heads/main"}}`:              "InvalidVerificationMode spec.verify.mode: a signed tag",
		at + `,"timeout":"soon"}`:                                     " spec.timeout: it is no time span",
		at + `,"timeout":60}`:                                         " spec.timeout: it is no time span",
	} {
		_, err := readGit(t, spec)
		refused, ok := errors.AsType[*auth.SourceError](err)
		if !ok || !strings.HasPrefix(refused.Reason+" "+refused.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}
