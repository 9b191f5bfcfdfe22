package externalartifact_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
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
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/externalartifact"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/sourcetest"
	"limpet/sync/worker/checkout"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is a publisher and its controller at work on an API.
type rig struct {
	*sourcetest.Rig
	origin *gittest.Origin
	url    string
	repos  *kube.Informer
}

const name = "site"

// onEach runs a test on the embedded API and on the API machinery.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, newRig(t, sourcetest.Embedded(t), "default")) })
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		s := testenv.Real(t)
		test(t, newRig(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token},
			"ext-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))))
	})
}

func newRig(t *testing.T, cfg kube.Config, namespace string) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := gittest.NewServer(t)
	r := &rig{Rig: sourcetest.New(t, cfg, namespace, "ExternalArtifact", "GitRepository", "OCIRepository"),
		origin: gittest.NewOrigin(t, server.Root, "site.git"), url: server.URL + "/site.git"}
	mirrors, err := git.Open(filepath.Join(t.TempDir(), "mirrors"), git.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	r.repos = r.Client.Informer(api.Repositories, namespace, kube.InformerOptions{})
	o := externalartifact.Options{Client: r.Client, Sources: r.Sources, Repositories: r.repos, Mirrors: mirrors,
		Checkout: checkout.Source{Git: mirrors, AllowInsecure: true}, Artifacts: r.Artifacts, References: r.References, Logger: log}
	publisher := externalartifact.NewPublisher(o)
	r.Start(controller.Options{}, externalartifact.New(o))
	r.Run(r.repos.Run, publisher.Run)
	return r
}

// patch changes a part of an object.
func (r *rig) patch(kind api.Kind, body string, sub ...string) {
	r.T.Helper()
	_, err := r.Client.Resource(kind.Resource()).Namespace(r.Namespace).Patch(r.T.Context(), name, types.MergePatchType, []byte(body),
		metav1.PatchOptions{}, sub...)
	if err != nil {
		r.T.Fatal(err)
	}
}

// repository creates the Repository that asks for an ExternalArtifact.
func (r *rig) repository() {
	r.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kindOf("Repository").APIVersion(), "kind": "Repository",
		"metadata": map[string]any{"name": name, "namespace": r.Namespace, "annotations": map[string]any{api.AnnoExternalArtifact: "true"}},
		"spec": map[string]any{"title": "Site", "type": "git", "workflows": []any{}, "sync": map[string]any{"enabled": false, "target": "folder", "intervalSeconds": int64(60)},
			"git": map[string]any{"url": r.url, "branch": "main"}},
	}}
	if _, err := r.Client.Resource(api.Repositories).Namespace(r.Namespace).Create(r.T.Context(), u, metav1.CreateOptions{}); err != nil {
		r.T.Fatal(err)
	}
}

// pulled says that the last pull was of a commit.
func (r *rig) pulled(commit string) {
	r.T.Helper()
	r.patch(kindOf("Repository"), `{"status":{"sync":{"lastRef":"`+commit+`","state":"success"}}}`, "status")
}

func kindOf(name string) api.Kind {
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Kind == name })
	return api.Kinds[i]
}

// gone waits until there is no ExternalArtifact, and none of its artifacts.
func (r *rig) gone() {
	r.T.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		_, err := r.Client.Resource(api.ExternalArtifacts).Namespace(r.Namespace).Get(r.T.Context(), name, metav1.GetOptions{})
		list, _ := r.Artifacts.List(r.T.Context(), r.Key(name))
		if apierrors.IsNotFound(err) && len(list) == 0 {
			return
		}
	}
	r.T.Fatal("the ExternalArtifact stays")
}

// refused waits until an object says why it has no ExternalArtifact.
func (r *rig) refused(kind, reason string) {
	r.T.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		u, err := r.Client.Resource(kindOf(kind).Resource()).Namespace(r.Namespace).Get(r.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			r.T.Fatal(err)
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		if _, c := api.FindCondition(list, api.ConditionExternalArtifact); c["reason"] == reason || reason == "" && c == nil {
			return
		}
	}
	r.T.Fatalf("%s has no condition of reason %q", kind, reason)
}

// TestRepository: the commit of each pull becomes the artifact, which stays while the Repository
// may not be trusted, and goes with the annotation.
func TestRepository(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.repository()
		r.In(name, source.Failed, "FetchFailed")
		first := r.origin.Commit("one", map[string]string{"a.json": "1", ".github/x": "2"})
		r.pulled(first)
		u := r.Ready(name, "main@sha1:"+first)
		owner, status := metav1.GetControllerOf(u), u.Object["status"].(map[string]any)
		made, files := r.Files(name)
		if owner == nil || owner.Kind != "Repository" || owner.Name != name || len(status) != 2 || files["a.json"] != "1" || files[".github/x"] != "" {
			t.Errorf("%v %v %v", owner, status, files)
		}
		if of, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "kind"); of != "Repository" {
			t.Error(of)
		}
		if want := "externalartifact/" + r.Namespace + "/site/" + first + ".tar.gz"; made.Path != want {
			t.Errorf("%s, want %s", made.Path, want)
		}
		second := r.origin.Commit("two", map[string]string{"a.json": "2"})
		r.pulled(second)
		r.Ready(name, "main@sha1:"+second)

		r.patch(kindOf("Repository"), `{"metadata":{"annotations":{"limpet/git-verify":"HEAD"}}}`)
		r.pulled(first)
		if s := r.In(name, source.Failed, "VerificationFailed"); s.Artifact == nil || s.Artifact.Revision != "main@sha1:"+second {
			t.Errorf("the last good artifact is gone: %+v", s)
		}
		r.patch(kindOf("Repository"), `{"metadata":{"annotations":{"limpet/external-artifact":null}}}`)
		r.gone()
	})
}

// TestLayout: the artifact of a source whose URL Flux does not know is published with its bytes.
func TestLayout(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		u := r.Apply("OCIRepository/site", `"url":"oci-layout:///srv/site"`, api.AnnoExternalArtifact, "true")
		stored, err := r.Artifacts.Put(t.Context(), artifact.Artifact{Kind: "ocirepository", Namespace: r.Namespace, Name: name, UID: string(u.GetUID()),
			Revision: "v1@sha256:" + strings.Repeat("ab", 32)}, func(w io.Writer) (archive.Digests, error) {
			return archive.Pack(t.Context(), w, func(add func(string, int64, io.Reader) error) error { return add("a", 1, strings.NewReader("1")) })
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Controllers["ExternalArtifact"].Wake(r.Namespace, name)
		r.Ready(name, stored.Revision)
		if made, files := r.Files(name); made.Digest != stored.Digest || files["a"] != "1" {
			t.Errorf("%+v %v", made, files)
		}
		r.Apply("OCIRepository/site", `"url":"oci://registry.example.com/site"`, api.AnnoExternalArtifact, "true")
		r.refused("OCIRepository", "NotNeeded")
		r.gone()
	})
}

// TestForeign: what others publish under the name is left alone.
func TestForeign(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		foreign := r.Apply(name, `"interval":null,"sourceRef":{"kind":"ArtifactGenerator","name":"site"}`)
		r.repository()
		r.pulled(r.origin.Commit("one", map[string]string{"a.json": "1"}))
		r.refused("Repository", "NameTaken")
		u := r.Until(name, "there", func(*unstructured.Unstructured) bool { return true })
		if u.GetUID() != foreign.GetUID() || u.GetResourceVersion() != foreign.GetResourceVersion() {
			t.Errorf("it was changed: %v", u.Object)
		}
		r.patch(kindOf("Repository"), `{"metadata":{"annotations":{"limpet/external-artifact":null}}}`)
		r.refused("Repository", "")
	})
}

// TestOrphan: one that has lost its owner can still be deleted, and takes along what was stored.
func TestOrphan(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.repository()
		commit := r.origin.Commit("one", map[string]string{"a.json": "1"})
		r.pulled(commit)
		r.Ready(name, "main@sha1:"+commit)
		r.patch(kindOf("ExternalArtifact"), `{"metadata":{"ownerReferences":null}}`)
		r.patch(kindOf("Repository"), `{"metadata":{"annotations":{"limpet/external-artifact":null}}}`)
		err := r.Client.Resource(api.ExternalArtifacts).Namespace(r.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		r.gone()
	})
}

// undefined is an API without the definition of ExternalArtifacts.
type undefined struct{ http.RoundTripper }

func (u undefined) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.RoundTripper.RoundTrip(req)
	if err != nil || !strings.HasSuffix(req.URL.Path, api.ExternalArtifacts.GroupVersion().String()) {
		return resp, err
	}
	defer resp.Body.Close()
	var list metav1.APIResourceList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
		return strings.HasPrefix(r.Name, api.ExternalArtifacts.Resource)
	})
	body, err := json.Marshal(list)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, err
}

// TestDefinitionMissing: where the API has no ExternalArtifacts, the object that asks for one says so,
// and all others are judged on.
func TestDefinitionMissing(t *testing.T) {
	t.Parallel()
	cfg := sourcetest.Embedded(t)
	cfg.Transport = undefined{cfg.Transport}
	r := newRig(t, cfg, "default")
	r.repository()
	r.pulled(r.origin.Commit("one", map[string]string{"a.json": "1"}))
	r.refused("Repository", "DefinitionMissing")
	r.Apply("OCIRepository/site", `"url":"oci://registry.example.com/site"`, api.AnnoExternalArtifact, "true")
	r.refused("OCIRepository", "NotNeeded")
	r.patch(kindOf("Repository"), `{"metadata":{"annotations":{"limpet/external-artifact":null}}}`)
	r.refused("Repository", "")
	list, err := r.Client.Resource(api.ExternalArtifacts).Namespace(r.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%v %v", list, err)
	}
}
