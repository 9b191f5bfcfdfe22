package controller_test

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/upstream"
	"limpet/sync/testenv"
)

// TestFollow: a branch is followed; what has not changed costs one ls-remote, and no write.
func TestFollow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.origin.Commit("one", map[string]string{"a.yaml": "a"})
		r.Apply("site", `"ref":{"branch":"main"}`)
		s := r.ready("site", "main@sha1:"+first)
		if told := r.told("site"); !slices.Equal(told, []string{"NewArtifact"}) {
			t.Errorf("told %q", told)
		}
		u, _ := r.get("site")
		if s.Artifact.URL != "http://artifacts.example.com/gitrepository/"+r.Namespace+"/site/"+first+".tar.gz" || s.Artifact.Size == 0 ||
			!slices.Contains(u.GetFinalizers(), "finalizers.fluxcd.io") {
			t.Errorf("%+v %q", s.Artifact, u.GetFinalizers())
		}
		var managers []string
		for _, m := range u.GetManagedFields() {
			managers = append(managers, m.Manager+" "+string(m.Operation)+" "+m.Subresource)
		}
		if want := "limpet-source-controller Apply status"; len(managers) > 0 && !slices.Contains(managers, want) {
			t.Errorf("fields are managed by %q", managers)
		}
		if r.writes != nil {
			if w := r.writes.take(); len(w) < 2 || len(w) > 3 {
				t.Errorf("to the first artifact: %q", w)
			}
		}
		requests := r.server.Requests.Load()
		r.Ask("site")
		if n := r.server.Requests.Load() - requests; n != 1 {
			t.Errorf("%d requests for nothing new", n)
		}
		if r.writes != nil {
			if w := r.writes.take(); len(w) != 1 {
				t.Errorf("the handled-at alone is written: %q", w)
			}
		}
		second := r.origin.Commit("two", map[string]string{"a.yaml": "b"})
		r.Ask("site")
		r.ready("site", "main@sha1:"+second)
		if r.writes != nil {
			if w := r.writes.take(); len(w) > 2 {
				t.Errorf("for a new commit: %q", w)
			}
		}
		list, err := r.Artifacts.List(t.Context(), r.Key("site"))
		if err != nil || len(list) != 2 || list[0].Subject != "two" {
			t.Errorf("%+v, %v", list, err)
		}
		if err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for {
			if u, known := r.get("site"); u == nil && known {
				break
			}
			<-r.Changed
		}
		if list, err := r.Artifacts.List(t.Context(), r.Key("site")); err != nil || len(list) != 0 {
			t.Errorf("of a deleted source: %+v, %v", list, err)
		}
	})
}

// TestRefs: each kind of ref, and what it becomes.
func TestRefs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		r.origin.Git("tag", "v1.0.0")
		r.origin.Git("tag", "v1.2.0-rc.1")
		two := r.origin.Commit("two", map[string]string{"a": "2"})
		r.origin.Git("tag", "-a", "-m", "x", "v1.1.0")
		r.origin.Git("push", "-q", "--tags", "origin", "HEAD:refs/heads/feature/x", "HEAD:refs/pull/4/head")
		for name, c := range map[string]struct{ ref, revision string }{
			"branch":     {`"branch":"feature/x"`, "feature/x@sha1:" + two},
			"tag":        {`"tag":"v1.1.0"`, "v1.1.0@sha1:" + two},
			"semver":     {`"semver":"1.x"`, "v1.1.0@sha1:" + two},
			"prerelease": {`"semver":">=1.0.0-0"`, "v1.2.0-rc.1@sha1:" + one},
			"name":       {`"name":"refs/heads/main"`, "refs/heads/main@sha1:" + two},
			"pull":       {`"name":"refs/pull/4/head"`, "refs/pull/4/head@sha1:" + two},
			"commit":     {`"commit":"` + one + `"`, "sha1:" + one},
			"both":       {`"commit":"` + one + `","branch":"main"`, "main@sha1:" + one},
		} {
			r.Apply(name, `"ref":{`+c.ref+`}`)
			r.ready(name, c.revision)
		}
		requests := r.server.Requests.Load()
		r.Ask("commit")
		if n := r.server.Requests.Load() - requests; n != 0 {
			t.Errorf("%d requests for a stored commit", n)
		}
		r.Apply("several", `"ref":{"tag":"v1.0.0","semver":"1.x"}`)
		if s := r.In("several", source.Stalled, "GitOperationFailed"); !strings.Contains(s.Message, "tag and semver") {
			t.Errorf("%q", s.Message)
		}
		r.Apply("none", `"ref":{"branch":"nope"}`)
		r.In("none", source.Failed, "GitOperationFailed")
		r.Apply("none", `"ref":{"branch":"main"}`) // and recovers
		r.ready("none", "main@sha1:"+two)
		if told := r.told("none"); !slices.Equal(told, []string{"GitOperationFailed", "NewArtifact"}) {
			t.Errorf("told %q", told)
		}
	})
}

// TestSuspend: a suspended source is left alone.
func TestSuspend(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		r.Apply("site", `"ref":{"branch":"main"}`)
		r.ready("site", "main@sha1:"+one)
		r.Apply("site", `"ref":{"branch":"main"},"suspend":true`)
		r.Apply("other", `"ref":{"branch":"main"}`) // after it in the queue
		r.ready("other", "main@sha1:"+one)
		two := r.origin.Commit("two", map[string]string{"a": "2"})
		r.Apply("site", `"ref":{"branch":"main"}`)
		r.ready("site", "main@sha1:"+two)
	})
}

// TestInclude: an include becomes a directory; its change makes a new artifact, a cycle is named.
func TestInclude(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		const with = `"ref":{"branch":"main"},"include":[{"repository":{"name":"base"}}]`
		r.Apply("site", with)
		r.In("site", source.Failed, "NotFound")
		r.Apply("base", `"ref":{"branch":"main"}`)
		s := r.ready("site", "main@sha1:"+one)
		r.Apply("base", `"ref":{"branch":"main"},"ignore":"a"`)
		u := r.Until("site", "new for its include", func(u *unstructured.Unstructured) bool {
			b, _ := r.get("base")
			list, _, _ := unstructured.NestedSlice(u.Object, "status", "includedArtifacts")
			base := source.FromObject(b)
			return base.State == source.Ready && base.Artifact != nil && len(list) == 1 && s.Artifact.Digest != "" &&
				list[0].(map[string]any)["digest"] == base.Artifact.Digest && b.GetGeneration() == 2
		})
		if in, _, _ := unstructured.NestedSlice(u.Object, "status", "observedInclude"); len(in) != 1 {
			t.Errorf("observed: %v", in)
		}
		r.Apply("base", `"ref":{"branch":"main"},"include":[{"repository":{"name":"site"}}]`)
		if s := r.In("base", source.Stalled, "IncludeCycle"); !strings.Contains(s.Message, "base -> site -> base") {
			t.Errorf("%q", s.Message)
		}
		r.Ask("site")
		r.In("site", source.Stalled, "IncludeCycle")
		next := func() time.Duration { return time.Until(r.control.Next(r.Namespace, "site")) } // whether the cycle is over
		for late := time.Now().Add(time.Minute); next() <= 0 || next() > time.Minute; <-time.After(20 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("looks again in %s", next())
			}
		}
	})
}

// TestRequestedMeanwhile: a request that comes while a write of the status is tried again is handled.
func TestRequestedMeanwhile(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"},"interval":"10h"`)
	r.ready("site", "main@sha1:"+one)
	ask := func() *unstructured.Unstructured {
		k, _ := api.SourceKind("GitRepository")
		u, err := source.Reconcile(t.Context(), r.Client, k, r.Namespace, "site", "")
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	second := make(chan *unstructured.Unstructured, 1)
	again := func() { second <- ask() }
	r.writes.lost.Store(&again)
	ask()
	asked := source.Asked(<-second)
	r.Until("site", "handled", func(o *unstructured.Unstructured) bool { return source.Handled(o, asked) })
}

// TestTakenOver: what Flux's controller has written to a status is removed when it does not hold.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		r.Apply("site", `"ref":{"branch":"main"},"suspend":true`)
		_, err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Patch(t.Context(), "site", types.MergePatchType,
			[]byte(`{"status":{"observedGeneration":1,"observedIgnore":"/x","observedRecurseSubmodules":true,"observedSparseCheckout":["a"],
				"sourceVerificationMode":"HEAD"}}`), metav1.PatchOptions{FieldManager: "gotk-source-controller"}, "status")
		if err != nil {
			t.Fatal(err)
		}
		r.Apply("site", `"ref":{"branch":"main"},"suspend":false`)
		r.ready("site", "main@sha1:"+one)
		r.Ask("site")
		u, _ := r.get("site")
		status, _, _ := unstructured.NestedMap(u.Object, "status")
		for _, key := range []string{"observedIgnore", "observedRecurseSubmodules", "observedSparseCheckout", "sourceVerificationMode"} {
			if status[key] != nil {
				t.Errorf("%s: %v", key, status[key])
			}
		}
	})
}

// TestFluxDefinition: under Flux's own definition, which has no checksum, the status is the same
// without it.
func TestFluxDefinition(t *testing.T) {
	t.Parallel()
	s := testenv.Start(t, testenv.Options{FluxDefinitions: true})
	cfg := kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token, Logger: slog.New(slog.DiscardHandler)}
	r := newRig(t, cfg, nil, "default")
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"},"ignore":""`)
	r.ready("site", "main@sha1:"+one)
	u, _ := r.get("site")
	ignore, has, _ := unstructured.NestedString(u.Object, "status", "observedIgnore")
	if _, checksum, _ := unstructured.NestedString(u.Object, "status", "contentConfigChecksum"); checksum || !has || ignore != "" {
		t.Errorf("%v", u.Object["status"])
	}
	version := u.GetResourceVersion()
	r.control.Wake("default", "site")
	r.Apply("later", `"ref":{"branch":"main"}`)
	r.ready("later", "main@sha1:"+one)
	if u, _ = r.get("site"); u.GetResourceVersion() != version {
		t.Errorf("written for nothing new: %v", u.Object["status"])
	}
}

// TestKeepSymlinks: an annotation decides whether links are in the artifact.
func TestKeepSymlinks(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	r.origin.Commit("one", map[string]string{"a": "1"})
	if err := os.Symlink("a", filepath.Join(r.origin.Work, "link")); err != nil {
		t.Fatal(err)
	}
	two := r.origin.Commit("two", map[string]string{"b": "2"})
	r.Apply("site", `"ref":{"branch":"main"}`)
	r.ready("site", "main@sha1:"+two)
	for i, value := range []string{`"true"`, "null"} {
		patch := `{"metadata":{"annotations":{"limpet/keep-symlinks":` + value + `}}}`
		if _, err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Patch(t.Context(), "site", types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
		r.Until("site", "packed again", func(u *unstructured.Unstructured) bool {
			a, err := r.Artifacts.Latest(t.Context(), r.Key("site"))
			return err == nil && a.Files == 3-i && source.FromObject(u).Artifact.Digest == a.Digest
		})
	}
}

// TestParent: what another limpet says of its commit is in the condition of a source that has it
// from there, over TLS with a private CA.
func TestParent(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	parent := httptest.NewTLSServer(upstream.Handler(r.Client, r.mirrors, func() (string, error) { return "secret", nil }))
	t.Cleanup(parent.Close)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"}`)
	r.ready("site", "main@sha1:"+one)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: parent.Certificate().Raw}))
	r.Secret("parent", map[string]any{"bearerToken": "secret"})
	r.Apply("child", `"url":"limpet+`+parent.URL+`/`+r.Namespace+`/site","ref":{"branch":"main"},"secretRef":{"name":"parent"}`)
	r.In("child", source.Failed, "GitOperationFailed")
	r.Secret("parent", map[string]any{"bearerToken": "secret", "ca.crt": ca})
	if s := r.ready("child", "main@sha1:"+one); !strings.Contains(s.Message, "verifies no signature") {
		t.Errorf("%q", s.Message)
	}
	r.server.Fails(http.StatusServiceUnavailable)
	r.Ask("site")
	since := r.In("site", source.Failed, "GitOperationFailed").Since
	if s := r.Ask("child"); s.State != source.Ready || !strings.Contains(s.Message, "since "+since.UTC().Format(time.RFC3339)) {
		t.Errorf("the parent is behind: %+v", s)
	}
	r.Apply("grandchild", `"url":"limpet+`+parent.URL+`/`+r.Namespace+`/child","ref":{"branch":"main"},"secretRef":{"name":"parent"}`)
	if s := r.ready("grandchild", "main@sha1:"+one); !strings.Contains(s.Message, "since "+since.UTC().Format(time.RFC3339)) {
		t.Errorf("the parent of the parent is behind: %q", s.Message)
	}
	r.server.Fails(0)
	r.Ask("site")
	r.ready("site", "main@sha1:"+one)
	if s := r.Ask("child"); strings.Contains(s.Message, "since") {
		t.Errorf("%q", s.Message)
	}
}
