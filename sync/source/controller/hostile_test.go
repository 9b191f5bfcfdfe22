package controller_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
)

// TestRewritten: a branch is force-pushed, a tag moved, a branch deleted and made again.
func TestRewritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		two := r.origin.Commit("two", map[string]string{"a": "2"})
		r.origin.Git("tag", "v1")
		r.origin.Git("push", "-q", "--tags")
		r.Apply("branch", `"ref":{"branch":"main"}`)
		r.Apply("tag", `"ref":{"tag":"v1"}`)
		r.ready("branch", "main@sha1:"+two)
		r.ready("tag", "v1@sha1:"+two)
		r.origin.Git("reset", "-q", "--hard", one)
		three := r.origin.Commit("three", map[string]string{"a": "3"})
		r.origin.Git("tag", "-f", "v1")
		r.origin.Git("push", "-q", "-f", "--tags")
		r.Ask("branch")
		r.ready("branch", "main@sha1:"+three)
		r.Ask("tag")
		r.ready("tag", "v1@sha1:"+three)
		r.told("branch")
		gittest.Git(t, r.origin.Bare, nil, "update-ref", "-d", "refs/heads/main")
		if s := r.Ask("branch"); s.State != source.Failed || s.Reason != "GitOperationFailed" || s.Artifact.Revision != "main@sha1:"+three {
			t.Errorf("without the branch: %+v, %+v", s, s.Artifact)
		}
		r.Ask("branch")
		gittest.Git(t, r.origin.Bare, nil, "update-ref", "refs/heads/main", three)
		if s := r.Ask("branch"); s.State != source.Ready {
			t.Errorf("with the branch again: %+v", s)
		}
		if told := r.told("branch"); !slices.Equal(told, []string{"GitOperationFailed", "Succeeded"}) {
			t.Errorf("told %q", told)
		}
	})
}

// TestRefused: what cannot work stalls, and the host that refuses is asked again.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := embedded(t) // the machinery has no Secrets
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("bad", `"url":"https:///x"`)
	r.In("bad", source.Stalled, "URLInvalid")
	r.Apply("mode", `"ref":{"branch":"main"},"verify":{"mode":"Tag","secretRef":{"name":"keys"}}`)
	r.In("mode", source.Stalled, "InvalidVerificationMode")
	r.Ask("bad")
	if n := r.server.Requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
	r.Apply("sparse", `"ref":{"branch":"main"},"sparseCheckout":["none"]`)
	if s := r.In("sparse", source.Failed, "GitOperationFailed"); !slices.ContainsFunc(s.Conditions, func(c source.Condition) bool {
		return c.Type == "FetchFailed" && c.Status == "True"
	}) {
		t.Errorf("%+v", s.Conditions)
	}
	r.server.During(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "ann" || password != "right" {
			http.Error(w, "", http.StatusUnauthorized)
		}
	})
	r.Apply("site", `"ref":{"branch":"main"},"secretRef":{"name":"login"}`)
	r.In("site", source.Failed, "AuthenticationFailed")
	r.Secret("login", map[string]any{"username": "ann", "password": "wrong-wrong"})
	s := r.In("site", source.Failed, "GitOperationFailed")
	if strings.Contains(s.Message, "wrong-wrong") {
		t.Errorf("%q", s.Message)
	}
	r.Secret("login", map[string]any{"username": "ann", "password": "right"}) // without a request
	r.ready("site", "main@sha1:"+one)
	if told := r.told("site"); !slices.Equal(told, []string{"AuthenticationFailed", "GitOperationFailed", "NewArtifact"}) {
		t.Errorf("told %q", told)
	}
}

// sshKey makes a key and returns its file and the public one.
func sshKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, string(data)
}

// sign has commits signed with a key from now on.
func (r *rig) sign(file string) {
	r.T.Helper()
	for _, set := range [][]string{{"gpg.format", "ssh"}, {"user.signingkey", file}, {"commit.gpgsign", "true"}} {
		r.origin.Git("config", set[0], set[1])
	}
}

// TestRuled: a rule of the configuration demands signatures whatever the spec says.
func TestRuled(t *testing.T) {
	t.Parallel()
	file, _ := sshKey(t)
	keys := file + ".pub"
	r := embedded(t, auth.VerificationPolicy{Mode: "HEAD", Files: map[string]string{"ann.sshpub": keys}})
	r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"}`)
	r.In("site", source.Failed, "InvalidCommitSignature")
	r.sign(file)
	two := r.origin.Commit("two", map[string]string{"a": "2"})
	r.Ask("site")
	r.ready("site", "main@sha1:"+two)
	_, other := sshKey(t)
	if err := os.WriteFile(keys, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	r.In("site", source.Failed, "InvalidCommitSignature") // revoked, without a request
}

// TestRuledSubmodule: what a rule demands at the URL of a submodule holds in a repository that has
// no rule itself.
func TestRuledSubmodule(t *testing.T) {
	t.Parallel()
	file, _ := sshKey(t)
	r := embedded(t, auth.VerificationPolicy{URL: "127.0.0.1/lib.git", Mode: "HEAD", Files: map[string]string{"ann.sshpub": file + ".pub"}})
	lib := gittest.NewOrigin(t, r.server.Root, "lib.git")
	modules := "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n"
	link := func(commit string) string {
		return "main@sha1:" + r.origin.Link(modules, map[string]string{"lib": commit})
	}
	r.origin.Commit("one", map[string]string{"a": "1"})
	link(lib.Commit("unsigned", map[string]string{"l": "1"}))
	r.Apply("site", `"ref":{"branch":"main"},"recurseSubmodules":true`)
	r.In("site", source.Failed, "InvalidCommitSignature")
	for _, setting := range [][]string{{"gpg.format", "ssh"}, {"user.signingkey", file}, {"commit.gpgsign", "true"}} {
		lib.Git("config", setting[0], setting[1])
	}
	now := link(lib.Commit("signed", map[string]string{"l": "2"}))
	r.Ask("site")
	r.ready("site", now)
}

// TestVerified: signatures are verified, again when the keys or the tag object are others, without
// a fetch.
func TestVerified(t *testing.T) {
	t.Parallel()
	r := embedded(t) // the machinery has no Secrets
	annFile, ann := sshKey(t)
	bobFile, bob := sshKey(t)
	r.sign(annFile)
	r.Secret("keys", map[string]any{"who.sshpub": ann})
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.origin.Git("tag", "-s", "-m", "x", "v1")
	r.origin.Git("push", "-q", "--tags")
	r.Apply("site", `"ref":{"branch":"main"},"verify":{"mode":"HEAD","secretRef":{"name":"keys"}}`)
	r.Apply("tag", `"ref":{"tag":"v1"},"verify":{"mode":"TagAndHEAD","secretRef":{"name":"keys"}}`)
	if s := r.ready("site", "main@sha1:"+one); s.Verified != "HEAD" {
		t.Errorf("%+v", s)
	}
	r.ready("tag", "v1@sha1:"+one)
	r.sign(bobFile)
	r.Secret("keys", map[string]any{"who.sshpub": bob})
	r.In("site", source.Failed, "InvalidCommitSignature")
	r.In("tag", source.Failed, "InvalidTagSignature")
	r.Secret("keys", map[string]any{"who.sshpub": ann})
	r.ready("site", "main@sha1:"+one)
	r.ready("tag", "v1@sha1:"+one)
	if told := r.told("site"); !slices.Equal(told, []string{"NewArtifact", "InvalidCommitSignature", "Succeeded"}) {
		t.Errorf("told %q", told)
	}
	r.origin.Git("tag", "-f", "-s", "-m", "x", "v1") // the same commit, signed by bob
	r.origin.Git("push", "-q", "-f", "--tags")
	if s := r.Ask("tag"); s.Reason != "InvalidTagSignature" {
		t.Errorf("another tag object: %+v", s)
	}
	r.origin.Git("tag", "-f", "--no-sign", "-m", "x", "v1")
	r.origin.Git("push", "-q", "-f", "--tags")
	if s := r.Ask("tag"); s.Reason != "InvalidGitObject" {
		t.Errorf("an unsigned tag object: %+v", s)
	}
}

// TestVerifiedAgain: a commit that is not signed comes and goes again.
func TestVerifiedAgain(t *testing.T) {
	t.Parallel()
	file, public := sshKey(t)
	r := embedded(t, auth.VerificationPolicy{Mode: "HEAD", Values: map[string]string{"ann.sshpub": public}})
	r.sign(file)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"}`)
	r.ready("site", "main@sha1:"+one)
	r.origin.Git("config", "commit.gpgsign", "false")
	r.origin.Commit("two", map[string]string{"a": "2"})
	r.Ask("site")
	r.In("site", source.Failed, "InvalidCommitSignature")
	r.origin.Git("push", "-q", "-f", "origin", one+":main")
	r.Ask("site")
	r.ready("site", "main@sha1:"+one)
	if u, _ := r.get("site"); condition(u, "SourceVerified") != "True" {
		t.Errorf("ready: %v", u.Object["status"])
	}
}

// condition returns the status of a condition.
func condition(u *unstructured.Unstructured, kind string) any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	_, c := api.FindCondition(list, kind)
	return c["status"]
}

// TestOutbox: a failure is offered to the outbox as long as it lasts, ends with its source, and is
// in the status when it cannot be kept.
func TestOutbox(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	for _, name := range []string{"site", "other"} {
		r.Apply(name, `"ref":{"branch":"main"}`)
		r.ready(name, "main@sha1:"+one)
	}
	kept := func(want int, what string) {
		t.Helper()
		if queue, err := r.notices.Facts(t.Context(), state.QueuePrefix); err != nil || len(queue) != want {
			t.Errorf("%s: %d notifications, %v, want %d", what, len(queue), err, want)
		}
	}
	kept(2, "ready")
	r.server.Fails(http.StatusServiceUnavailable)
	for range 2 {
		r.Ask("site")
		kept(3, "a failure")
	}
	r.later.Store(int64(25 * time.Hour))
	r.Ask("site")
	kept(4, "a day later")
	r.server.Fails(http.StatusForbidden)
	r.Ask("site")
	kept(5, "another cause")
	if err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); time.Now().Before(late); <-time.After(20 * time.Millisecond) {
		if failing, err := r.outbox.Failing(t.Context()); err != nil || len(failing) == 0 {
			break
		}
	}
	kept(6, "deleted")
	r.notices.Close() // stands for one that takes no writes
	r.Ask("other")
	r.In("other", source.Failed, "GitOperationFailed")
}

// TestDamaged: an artifact whose bytes are wrong or gone is built again from the mirror, without
// the host.
func TestDamaged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		r.Apply("site", `"ref":{"branch":"main"}`)
		s := r.ready("site", "main@sha1:"+one)
		r.told("site")
		r.server.Fails(http.StatusServiceUnavailable)
		for _, damage := range []func(string) error{os.Remove, func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) }} {
			files, err := filepath.Glob(filepath.Join(r.Dir, "gitrepository", r.Namespace, "site", "*.tar.gz"))
			if err != nil || len(files) != 1 {
				t.Fatalf("%q %v", files, err)
			}
			if err := damage(files[0]); err != nil {
				t.Fatal(err)
			}
			if now := r.Ask("site"); now.Artifact == nil || now.Artifact.Digest != s.Artifact.Digest || now.State != source.Failed {
				t.Errorf("%+v", now)
			}
			a, err := r.Artifacts.Latest(t.Context(), r.Key("site"))
			if err != nil || r.Artifacts.Verify(t.Context(), a) != nil || a.Digest != s.Artifact.Digest {
				t.Errorf("%+v, %v", a, err)
			}
		}
		r.server.Fails(0)
		r.Ask("site")
		u := r.Until("site", "as before", func(u *unstructured.Unstructured) bool { return source.FromObject(u).State == source.Ready })
		if got := source.FromObject(u); got.Artifact.Digest != s.Artifact.Digest {
			t.Errorf("%+v", got.Artifact)
		}
	})
}

// TestRestoredWithOtherRules: the rules change while the bytes are lost and the host is down, and
// then are those of before.
func TestRestoredWithOtherRules(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	const rules = `"ref":{"branch":"main"},"ignore":"/none\n"`
	one := r.origin.Commit("one", map[string]string{"a": "1", "b": "2"})
	r.Apply("site", rules)
	want := r.ready("site", "main@sha1:"+one).Artifact.Digest
	r.server.Fails(http.StatusServiceUnavailable)
	if err := os.Remove(filepath.Join(r.Dir, "gitrepository", r.Namespace, "site", want[len("sha256:"):]+".tar.gz")); err != nil {
		t.Fatal(err)
	}
	r.Apply("site", `"ref":{"branch":"main"},"ignore":"/b\n"`)
	if s := r.Ask("site"); s.Artifact == nil || s.Artifact.Digest == want {
		t.Errorf("with other rules: %+v", s.Artifact)
	}
	r.Apply("site", rules)
	r.server.Fails(0)
	r.Ask("site")
	if got := r.ready("site", "main@sha1:"+one).Artifact.Digest; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGhost: what is stored of a source that was deleted unseen, or is not on a wrong API, is not
// included in the name of a new one, and removed a day later.
func TestGhost(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.Apply("site", `"ref":{"branch":"main"}`)
	r.ready("site", "main@sha1:"+one)
	r.halt() // another agent has the Lease
	for _, name := range []string{"gone", "again"} {
		if _, err := r.Artifacts.Put(t.Context(), artifact.Artifact{Kind: "gitrepository", Namespace: r.Namespace, Name: name, UID: "old", Revision: "sha1:1"},
			func(io.Writer) (archive.Digests, error) {
				return archive.Digests{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(nil))}, nil
			}); err != nil {
			t.Fatal(err)
		}
	}
	r.server.Fails(http.StatusServiceUnavailable)
	r.Apply("again", `"ref":{"branch":"main"}`)
	r.Apply("user", `"ref":{"branch":"main"},"include":[{"repository":{"name":"again"}}]`)
	r.Run(r.control.Run)
	r.In("user", source.Failed, "NoArtifact")
	for until := time.Now().Add(10 * time.Second); r.control.Next(r.Namespace, "gone").IsZero() && time.Now().Before(until); {
		<-time.After(10 * time.Millisecond)
	}
	if list, err := r.Artifacts.List(t.Context(), r.Key("gone")); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	r.later.Store(int64(25 * time.Hour))
	r.control.Wake(r.Namespace, "gone")
	late := time.After(10 * time.Second)
	for list := make([]artifact.Artifact, 1); len(list) > 0; {
		select {
		case <-time.Tick(10 * time.Millisecond):
			list, _ = r.Artifacts.List(t.Context(), r.Key("gone"))
		case <-late:
			t.Fatalf("%+v", list)
		}
	}
	if _, err := r.Artifacts.Latest(t.Context(), r.Key("site")); err != nil {
		t.Error(err)
	}
}

// TestUnpackable: what cannot become an archive is told in the condition that Flux has for it.
func TestUnpackable(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	tree := gittest.Git(t, r.origin.Bare, nil, "rev-parse", one+":a")
	for _, kind := range []string{"100644 blob", "040000 tree"} { // 400 directories of 400 files, in three objects
		var list strings.Builder
		for n := range 400 {
			fmt.Fprintf(&list, "%s %s\tf%03d\n", kind, tree, n)
		}
		tree = gittest.Git(t, r.origin.Bare, []byte(list.String()), "mktree")
	}
	commit := gittest.Git(t, r.origin.Bare, nil, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "many", tree)
	gittest.Git(t, r.origin.Bare, nil, "update-ref", "refs/heads/many", commit)
	r.Apply("base", `"ref":{"branch":"main"}`)
	r.ready("base", "main@sha1:"+one)
	for name, c := range map[string][4]string{
		"many":    {`"branch":"many"}`, "StorageOperationFailed", "ArchiveOperationFailed", "100000 files"},
		"sparse":  {`"branch":"main"},"sparseCheckout":["none"]`, "FetchFailed", "GitOperationFailed", "sparse checkout"},
		"include": {`"branch":"main"},"include":[{"repository":{"name":"base"},"toPath":"a"}]`, "IncludeUnavailable", "CopyFailure", "a"},
	} {
		r.Apply(name, `"ref":{`+c[0])
		u := r.Until(name, c[2], func(u *unstructured.Unstructured) bool { return source.FromObject(u).State == source.Failed })
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		_, failed := api.FindCondition(list, c[1])
		message, _ := failed["message"].(string)
		if failed["status"] != "True" || failed["reason"] != c[2] || !strings.Contains(message, c[3]) {
			t.Errorf("%s: %v", name, list)
		}
	}
	file := filepath.Join(r.Dir, "gitrepository", r.Namespace, "many") // which lets nothing be packed
	if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if s := r.Ask("many"); !strings.Contains(s.Message, "100000 files") {
		t.Errorf("packed again: %q", s.Message)
	}
	gittest.Git(t, r.origin.Bare, nil, "update-ref", "refs/heads/many", one)
	if s := r.Ask("many"); !strings.Contains(s.Message, "not a directory") {
		t.Errorf("not packed: %q", s.Message)
	}
}

// TestWithoutSpec: an object that no definition has checked stalls, and nothing else happens.
func TestWithoutSpec(t *testing.T) {
	t.Parallel()
	s := testenv.Start(t, testenv.Options{})
	r := newRig(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token}, nil, "default")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"name": "bare", "namespace": "default"}}}
	if _, err := r.Client.Resource(api.GitRepositories).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.In("bare", source.Stalled, "URLInvalid")
}

// TestSinkRefused: a directory that may not be written is in the status, whether or not the outbox
// can be written, and keeps its source only while it has the finalizer and the annotation.
func TestSinkRefused(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.notices.Close() // stands for one that takes no writes
	at := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace)
	change := func(metadata string) {
		t.Helper()
		if _, err := at.Patch(t.Context(), "site", types.MergePatchType, []byte(`{"metadata":`+metadata+`}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	message := func(u *unstructured.Unstructured) string {
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		_, c := api.FindCondition(list, api.ConditionSinkReady)
		return fmt.Sprint(c["status"], c["message"])
	}
	r.Apply("site", `"ref":{"branch":"main"}`)
	change(`{"annotations":{"limpet/sink-dir":"/srv/site"},"finalizers":["remove-orphan-resources","finalizers.fluxcd.io"]}`)
	r.ready("site", "main@sha1:"+one)
	r.Until("site", "refused", func(u *unstructured.Unstructured) bool { return strings.Contains(message(u), "--sink-prefix") })
	if err := at.Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if from := source.FromObject(r.Until("site", "kept", func(u *unstructured.Unstructured) bool {
		return strings.Contains(message(u), "cannot be deleted")
	})); from.State != source.Ready || from.Deleting.IsZero() {
		t.Errorf("%+v", from)
	}
	change(`{"annotations":{"limpet/sink-dir":null}}`)
	for late := time.Now().Add(time.Minute); time.Now().Before(late); <-time.After(20 * time.Millisecond) {
		if _, err := at.Get(t.Context(), "site", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return
		}
	}
	t.Error("it is not deleted")
}
