package controller_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/source"
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
		r.apply("branch", `,"ref":{"branch":"main"}`)
		r.apply("tag", `,"ref":{"tag":"v1"}`)
		r.ready("branch", "main@sha1:"+two)
		r.ready("tag", "v1@sha1:"+two)
		r.origin.Git("reset", "-q", "--hard", one)
		three := r.origin.Commit("three", map[string]string{"a": "3"})
		r.origin.Git("tag", "-f", "v1")
		r.origin.Git("push", "-q", "-f", "--tags")
		r.ask("branch")
		r.ready("branch", "main@sha1:"+three)
		r.ask("tag")
		r.ready("tag", "v1@sha1:"+three)
		r.told("branch")
		gittest.Git(t, r.origin.Bare, nil, "update-ref", "-d", "refs/heads/main")
		if s := r.ask("branch"); s.State != source.Failed || s.Reason != "GitOperationFailed" || s.Artifact.Revision != "main@sha1:"+three {
			t.Errorf("without the branch: %+v, %+v", s, s.Artifact)
		}
		r.ask("branch")
		gittest.Git(t, r.origin.Bare, nil, "update-ref", "refs/heads/main", three)
		if s := r.ask("branch"); s.State != source.Ready {
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
	r.apply("bad", `,"url":"https:///x"`)
	r.in("bad", source.Stalled, "URLInvalid")
	r.apply("mode", `,"ref":{"branch":"main"},"verify":{"mode":"Tag","secretRef":{"name":"keys"}}`)
	r.in("mode", source.Stalled, "InvalidVerificationMode")
	r.apply("sparse", `,"ref":{"branch":"main"},"sparseCheckout":["none"]`)
	if s := r.in("sparse", source.Failed, "GitOperationFailed"); !slices.ContainsFunc(s.Conditions, func(c source.Condition) bool {
		return c.Type == "FetchFailed" && c.Status == "True"
	}) {
		t.Errorf("%+v", s.Conditions)
	}
	requests := r.server.Requests.Load()
	r.ask("bad")
	if n := r.server.Requests.Load(); n != requests {
		t.Errorf("%d requests", n-requests)
	}
	r.server.During(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "ann" || password != "right" {
			http.Error(w, "", http.StatusUnauthorized)
		}
	})
	r.apply("site", `,"ref":{"branch":"main"},"secretRef":{"name":"login"}`)
	r.in("site", source.Failed, "AuthenticationFailed")
	r.secret("login", map[string]any{"username": "ann", "password": "wrong-wrong"})
	s := r.in("site", source.Failed, "GitOperationFailed")
	if strings.Contains(s.Message, "wrong-wrong") {
		t.Errorf("%q", s.Message)
	}
	r.secret("login", map[string]any{"username": "ann", "password": "right"}) // nobody asks
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
	r.t.Helper()
	for _, set := range [][]string{{"gpg.format", "ssh"}, {"user.signingkey", file}, {"commit.gpgsign", "true"}} {
		r.origin.Git("config", set[0], set[1])
	}
}

// TestRuled: a rule of the configuration demands signatures whatever the spec says.
func TestRuled(t *testing.T) {
	t.Parallel()
	file, public := sshKey(t)
	r := embedded(t, auth.VerificationPolicy{Mode: "HEAD", Values: map[string]string{"ann.sshpub": public}})
	r.origin.Commit("one", map[string]string{"a": "1"})
	r.apply("site", `,"ref":{"branch":"main"}`)
	r.in("site", source.Failed, "InvalidCommitSignature")
	r.sign(file)
	two := r.origin.Commit("two", map[string]string{"a": "2"})
	r.ask("site")
	r.ready("site", "main@sha1:"+two)
}

// TestVerified: signatures are verified, again when the keys or the tag object are others, without a fetch.
func TestVerified(t *testing.T) {
	t.Parallel()
	r := embedded(t) // the machinery has no Secrets
	annFile, ann := sshKey(t)
	bobFile, bob := sshKey(t)
	r.sign(annFile)
	r.secret("keys", map[string]any{"who.sshpub": ann})
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	r.origin.Git("tag", "-s", "-m", "x", "v1")
	r.origin.Git("push", "-q", "--tags")
	r.apply("site", `,"ref":{"branch":"main"},"verify":{"mode":"HEAD","secretRef":{"name":"keys"}}`)
	r.apply("tag", `,"ref":{"tag":"v1"},"verify":{"mode":"TagAndHEAD","secretRef":{"name":"keys"}}`)
	if s := r.ready("site", "main@sha1:"+one); s.Verified != "HEAD" {
		t.Errorf("%+v", s)
	}
	r.ready("tag", "v1@sha1:"+one)
	r.sign(bobFile)
	r.secret("keys", map[string]any{"who.sshpub": bob})
	r.in("site", source.Failed, "InvalidCommitSignature")
	r.in("tag", source.Failed, "InvalidTagSignature")
	r.secret("keys", map[string]any{"who.sshpub": ann})
	r.ready("site", "main@sha1:"+one)
	r.ready("tag", "v1@sha1:"+one)
	if told := r.told("site"); !slices.Equal(told, []string{"NewArtifact", "InvalidCommitSignature", "Succeeded"}) {
		t.Errorf("told %q", told)
	}
	r.origin.Git("tag", "-f", "-s", "-m", "x", "v1") // the same commit, signed by bob
	r.origin.Git("push", "-q", "-f", "--tags")
	if s := r.ask("tag"); s.Reason != "InvalidTagSignature" {
		t.Errorf("another tag object: %+v", s)
	}
	r.origin.Git("tag", "-f", "--no-sign", "-m", "x", "v1")
	r.origin.Git("push", "-q", "-f", "--tags")
	if s := r.ask("tag"); s.Reason != "InvalidGitObject" {
		t.Errorf("an unsigned tag object: %+v", s)
	}
}

// TestDamaged: an artifact whose bytes are wrong or gone is built again from the mirror, without the host.
func TestDamaged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		one := r.origin.Commit("one", map[string]string{"a": "1"})
		r.apply("site", `,"ref":{"branch":"main"}`)
		s := r.ready("site", "main@sha1:"+one)
		r.told("site")
		r.server.Fails(http.StatusServiceUnavailable)
		for _, damage := range []func(string) error{os.Remove, func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) }} {
			files, err := filepath.Glob(filepath.Join(r.dir, "gitrepository", r.namespace, "site", "*.tar.gz"))
			if err != nil || len(files) != 1 {
				t.Fatalf("%q %v", files, err)
			}
			if err := damage(files[0]); err != nil {
				t.Fatal(err)
			}
			if now := r.ask("site"); now.Artifact == nil || now.Artifact.Digest != s.Artifact.Digest || now.State != source.Failed {
				t.Errorf("%+v", now)
			}
			a, err := r.artifacts.Latest(t.Context(), r.namespace, "site")
			if err != nil || r.artifacts.Verify(t.Context(), a) != nil || a.Digest != s.Artifact.Digest {
				t.Errorf("%+v, %v", a, err)
			}
		}
		r.server.Fails(0)
		r.ask("site")
		u := r.until("site", "as before", func(u *unstructured.Unstructured) bool { return source.FromObject(u).State == source.Ready })
		if got := source.FromObject(u); got.Artifact.Digest != s.Artifact.Digest {
			t.Errorf("%+v", got.Artifact)
		}
	})
}

// TestWithoutSpec: an object that no definition has checked stalls, and nothing else happens.
func TestWithoutSpec(t *testing.T) {
	t.Parallel()
	s := testenv.Start(t, testenv.Options{})
	r := newRig(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token}, nil, "default")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"name": "bare", "namespace": "default"}}}
	if _, err := r.client.Resource(api.GitRepositories).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.in("bare", source.Stalled, "URLInvalid")
}
