package source_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/source"
	"limpet/sync/testenv"
)

// seen is a source as an API shows it.
func seen(t testing.TB, s testenv.Source) *unstructured.Unstructured {
	u := s.Seen(t, s.Object(t, "flux-system"))
	u.SetGeneration(1)
	u.SetUID("u-1")
	return u
}

func named(t testing.TB, name string) testenv.Source {
	t.Helper()
	for _, s := range append(testenv.Sources(), testenv.OddSource()) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no source %s", name)
	return testenv.Source{}
}

// TestRowOfEveryState: each state that the controller of Flux writes is told by
// one word, with its reason, and no two words that contradict each other.
func TestRowOfEveryState(t *testing.T) {
	t.Parallel()
	for _, s := range append(testenv.Sources(), testenv.OddSource()) {
		from := source.FromObject(seen(t, s))
		if from.State != s.Want {
			t.Errorf("%s is %s, want %s", s.Name, from.State, s.Want)
		}
		if from.Bad() && (from.Reason == "" || from.Message == "") {
			t.Errorf("%s: no word of why: %+v", s.Name, from)
		}
		for _, c := range from.Conditions {
			if from.State == source.Ready && c.Unmet() {
				t.Errorf("%s is ready and has %+v", s.Name, c)
			}
		}
		bad := false
		for _, c := range from.Conditions {
			bad = bad || c.Unmet()
		}
		if from.Bad() && !bad {
			t.Errorf("%s: nothing shows that it is %s: %+v", s.Name, from.State, from.Conditions)
		}
	}
}

func TestRowOfAWholeSource(t *testing.T) {
	t.Parallel()
	got := source.FromObject(seen(t, named(t, "whole")))
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 20, hour, minute, 0, 0, time.UTC) }
	if strings.Contains(got.URL, "s3cret") || got.URL == "" {
		t.Errorf("the URL is %q", got.URL)
	}
	got.URL, got.Conditions = "", nil
	revision := "main@sha1:" + testenv.SourceCommit
	want := source.Source{
		Kind: "GitRepository", UID: "u-1", Namespace: "flux-system", Name: "whole", Ref: "semver >=1.0.0 <2.0.0",
		Provider: "azure", Verify: "TagAndHEAD",
		Verified: "TagAndHEAD", Interval: 90 * time.Minute,
		State: "ready", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", Since: at(12, 0),
		Artifact: &source.Artifact{Revision: revision, Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			Size: 4711, Updated: at(11, 0),
			URL: "http://source-controller.flux-system.svc.cluster.local./gitrepository/flux-system/apps/" + testenv.SourceCommit + ".tar.gz"},
		Includes: []source.Include{{Name: "base", From: "deploy", To: "base/deploy", Revision: revision}, {Name: "late"}},
		Looked:   at(12, 30), Handled: at(12, 30),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got.Commit() != testenv.SourceCommit || source.ShortRevision(revision) != "main@5d41aa9" {
		t.Errorf("commit %q, short %q", got.Commit(), source.ShortRevision(revision))
	}
	if asked := source.FromObject(seen(t, named(t, "asked"))); !asked.Waiting || asked.Asked.IsZero() || asked.Handled != at(11, 30) {
		t.Errorf("asked: %+v", asked)
	}
}

// TestBehind: a change of the spec that the controller has not seen makes an old
// "ready" no news. One that it has seen and failed with is known by its conditions,
// because the generation of the status stays behind then.
func TestBehind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"ready": source.Pending, "auth": source.Failed, "new": source.Pending} {
		u := seen(t, named(t, name))
		u.SetGeneration(2)
		if from := source.FromObject(u); from.State != want || !from.Behind {
			t.Errorf("%s: %s, behind: %v, want %s", name, from.State, from.Behind, want)
		}
	}
	for _, gone := range []bool{false, true} { // its controller does not look at it
		u, now := seen(t, named(t, "ready")), metav1.Now()
		if u.SetGeneration(2); gone {
			u.SetDeletionTimestamp(&now)
		} else if err := unstructured.SetNestedField(u.Object, true, "spec", "suspend"); err != nil {
			t.Fatal(err)
		}
		if from := source.FromObject(u); from.State != source.Ready || from.Behind {
			t.Errorf("%+v", from)
		}
	}
	u := seen(t, named(t, "auth"))
	u.SetGeneration(2)
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	list[0].(map[string]any)["observedGeneration"] = int64(2)
	if err := unstructured.SetNestedSlice(u.Object, list, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if from := source.FromObject(u); from.Behind {
		t.Errorf("what has failed was seen: %+v", from)
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{}`:                                             "branch master",
		`{"ref":{}}`:                                     "branch master",
		`{"ref":{"branch":"main"}}`:                      "branch main",
		`{"ref":{"branch":"main","tag":"v1"}}`:           "tag v1",
		`{"ref":{"semver":"1.x","tag":"v1"}}`:            "tag v1",
		`{"ref":{"branch":"main","semver":"1.x"}}`:       "semver 1.x",
		`{"ref":{"name":"refs/pull/4/head","tag":"v1"}}`: "ref refs/pull/4/head",
		`{"ref":{"commit":"abc","branch":"main"}}`:       "commit abc of branch main",
		`{"ref":{"commit":"abc","name":"refs/x/y"}}`:     "commit abc",
	} {
		if got := source.FromObject(seen(t, testenv.Source{Name: "x", Spec: spec})).Ref; got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	now := testenv.SourceNoon
	base := source.Source{State: source.Ready, Interval: 10 * time.Minute}
	for _, c := range []struct {
		change func(*source.Source)
		want   string
	}{
		{func(*source.Source) {}, "<10m"},
		{func(s *source.Source) { s.Looked = now.Add(-4 * time.Minute) }, "in 6m"},
		{func(s *source.Source) { s.Looked = now.Add(-10 * time.Minute) }, "<10m"},
		{func(s *source.Source) { s.Suspended = true }, "paused"},
		{func(s *source.Source) { s.Waiting = true }, "asked"},
		{func(s *source.Source) { s.State = source.Stalled }, "never"},
		{func(s *source.Source) { s.State = source.Failed }, "retried"},
		{func(s *source.Source) { s.State = source.Pending }, "-"},
		{func(s *source.Source) { s.Interval = 0 }, "-"},
	} {
		s := base
		c.change(&s)
		if got := s.Due(now); got != c.want {
			t.Errorf("%+v: %s, want %s", s, got, c.want)
		}
	}
}

// Over ssh the user is a part of the address; what may be a secret is not shown.
func TestCleanURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ssh://git@host:22/a.git": "ssh://git@host:22/a.git", "SSH://ann@host/a": "ssh://ann@host/a", "ssh://host/a": "ssh://host/a",
		"ssh://git:pw@host/a": "ssh://host/a", "ssh://git:@host/a": "ssh://host/a", "ssh://a%3Apw@host/a": "ssh://[redacted]@host/a",
		"ann:pw@host:9000/a": "host:9000/a", "./charts/web": "./charts/web",
		"https://git@host/a": "https://host/a", "https://u:pw@host/a?token=x": "https://host/a?token=[redacted]",
		"https://u:p/w@host/a": "https://[redacted]@host/a", "ann:p/w@host:9000/a": "[redacted]@host:9000/a",
	} {
		if got := source.CleanURL(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzPicture: whatever a server sends is a picture, without secrets and of bounded
// size.
func FuzzPicture(f *testing.F) {
	for _, s := range append(testenv.Sources(), testenv.OddSource()) {
		f.Add(s.Spec, s.Status)
	}
	f.Add(`{"url":"https://u:s3cretpw@h/%zz"}`, `{"conditions":[{"type":"Ready","status":"False","message":"https://u:s3cretpw@h"}]}`)
	f.Fuzz(func(t *testing.T, spec, status string) {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		for name, text := range map[string]string{"spec": spec, "status": status} {
			one := &unstructured.Unstructured{}
			if one.UnmarshalJSON([]byte(`{"kind":"x","apiVersion":"v1","`+name+`":`+text+`}`)) != nil {
				return
			}
			u.Object[name] = one.Object[name]
		}
		from := source.FromObject(u)
		if from.State == "" || len(from.Message) > 4000 || len(from.URL) > 4000 || len(from.Conditions) > 32 || len(from.Includes) > 32 {
			t.Errorf("%+v", from)
		}
		for _, text := range []string{from.URL, from.Message} {
			// Over ssh a name without a password is the user's.
			if strings.Contains(strings.ReplaceAll(strings.ToLower(text), "ssh://s3cretpw@", ""), "s3cretpw@") {
				t.Errorf("a password is shown: %q", text)
			}
		}
	})
}
