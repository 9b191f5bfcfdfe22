package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Source is a GitRepository as the controller of Flux leaves it in one of its states.
// Source: fluxcd/source-controller v1.9, docs/spec/v1/gitrepositories.md.
type Source struct {
	Name string
	Want string // the state of view.Source
	Spec string // JSON
	// Status is JSON; GENERATION stands for the generation of the object, "" for no
	// status at all.
	Status string
	Meta   string // JSON of annotations; "" = none
}

// condition is one in the form of Flux.
func condition(kind, status, reason, message string) string {
	return fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":%q,"observedGeneration":1,"lastTransitionTime":"2026-11-20T12:00:00Z"}`,
		kind, status, reason, message)
}

const (
	// SourceCommit is the commit of the artifacts.
	SourceCommit = "5d41aa905d41aa905d41aa905d41aa905d41aa90"
	sourceSpec   = `{"url":"https://git.example.com/ops/apps.git","interval":"5m0s","ref":{"branch":"main"}}`
	stored       = `"artifact":{"digest":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","lastUpdateTime":"2026-11-20T11:00:00Z","path":"gitrepository/flux-system/apps/` + SourceCommit + `.tar.gz","revision":"main@sha1:` + SourceCommit + `","size":4711,"url":"http://source-controller.flux-system.svc.cluster.local./gitrepository/flux-system/apps/` + SourceCommit + `.tar.gz"}`
)

func sourceStatus(seen int, artifact string, conditions ...string) string {
	list := ""
	for i, c := range conditions {
		if i > 0 {
			list += ","
		}
		list += c
	}
	if artifact != "" {
		artifact = "," + artifact
	}
	return fmt.Sprintf(`{"observedGeneration":%d,"conditions":[%s]%s}`, seen, list, artifact)
}

// Sources are GitRepositories in all states that Flux writes.
func Sources() []Source {
	inStorage := condition("ArtifactInStorage", "True", "Succeeded", "stored artifact for revision 'main@sha1:"+SourceCommit+"'")
	ready := condition("Ready", "True", "Succeeded", "stored artifact for revision 'main@sha1:"+SourceCommit+"'")
	failed := func(reason, message string) []string {
		return []string{condition("Ready", "False", reason, message), condition("FetchFailed", "True", reason, message), inStorage}
	}
	with := func(name, want string, seen int, artifact string, conditions ...string) Source {
		return Source{Name: name, Want: want, Spec: sourceSpec, Status: sourceStatus(seen, artifact, conditions...)}
	}
	stalled := func(name, reason, message string) Source {
		return with(name, "stalled", 1, "", condition("Ready", "False", reason, message), condition("Stalled", "True", reason, message),
			condition("FetchFailed", "True", reason, message))
	}
	all := []Source{
		{Name: "new", Want: "pending", Spec: sourceSpec},
		{Name: "minus-one", Want: "pending", Spec: sourceSpec, Status: `{"observedGeneration":-1}`},
		with("ready", "ready", 1, stored, ready, inStorage),
		with("reconciling", "working", 1, "",
			condition("Reconciling", "True", "Progressing", "building artifact: new upstream revision 'main@sha1:4e55f01a'"),
			condition("Ready", "Unknown", "Progressing", "building artifact")),
		with("outdated", "working", 1, stored, condition("Reconciling", "True", "Progressing", "new upstream revision"),
			condition("Ready", "Unknown", "Progressing", "new"), condition("ArtifactOutdated", "True", "NewRevision", "new upstream revision"),
			inStorage),
		with("include-change", "working", 1, stored, condition("Reconciling", "True", "Progressing", "included artifacts differ"),
			condition("Ready", "Unknown", "Progressing", "new"), condition("ArtifactOutdated", "True", "IncludeChange",
				"included artifacts differ from last observed includes")),
		with("retrying", "failed", 1, stored,
			append(failed("GitOperationFailed", "failed to checkout and determine revision: unable to clone: context deadline exceeded"),
				condition("Reconciling", "True", "ProgressingWithRetry", "retrying"))...),
		with("auth", "failed", 1, stored, failed("AuthenticationFailed", "failed to get secret 'flux-system/apps': not found")...),
		with("empty", "failed", 1, "", failed("EmptyGitRepository", "git repository is empty")...),
		with("include-missing", "failed", 1, "", condition("Ready", "False", "NotFound", "could not get resource for include 'x'"),
			condition("IncludeUnavailable", "True", "NotFound", "could not get resource for include 'x'")),
		with("include-empty", "failed", 1, "", condition("Ready", "False", "NoArtifact", "no artifact available for include 'x'"),
			condition("IncludeUnavailable", "True", "NoArtifact", "no artifact")),
		with("storage", "failed", 1, "", condition("Ready", "False", "ArchiveOperationFailed",
			"unable to archive artifact to storage: no space left on device"), condition("StorageOperationFailed", "True", "ArchiveOperationFailed",
			"no space left on device")),
		with("unsigned", "failed", 1, stored, condition("Ready", "False", "InvalidCommitSignature", "signature verification of commit failed"),
			condition("SourceVerified", "False", "InvalidCommitSignature", "signature verification of commit '"+SourceCommit+"' failed"), inStorage),
		stalled("bad-url", "URLInvalid", "parse \"x\": invalid"),
		stalled("bad-verify", "InvalidVerificationMode", "cannot verify tag object's signature if a tag reference is not specified"),
		stalled("bad-provider", "InvalidProviderConfiguration",
			"secretRef with github app data must be specified when provider is set to github"),
		stalled("gate", "FeatureGateDisabled", "to use spec.serviceAccountName the ObjectLevelWorkloadIdentity feature gate must be enabled"),
	}
	all = append(all,
		Source{Name: "suspended", Want: "ready",
			Spec:   `{"url":"https://git.example.com/a.git","interval":"10m","suspend":true,"ref":{"tag":"v1.2.3"}}`,
			Status: sourceStatus(1, stored, ready, inStorage)},
		Source{Name: "asked", Want: "ready", Spec: sourceSpec, Status: sourceStatus(1, stored, ready, inStorage)[:1] +
			`"lastHandledReconcileAt":"2026-11-20T11:30:00Z",` + sourceStatus(1, stored, ready, inStorage)[1:],
			Meta: `{"reconcile.fluxcd.io/requestedAt":"2026-11-20T12:30:00.5Z"}`},
		Source{Name: "whole", Want: "ready", Meta: `{"reconcile.fluxcd.io/requestedAt":"2026-11-20T12:30:00Z"}`,
			Spec:   `{"url":"https://bot:s3cretpw@git.example.com/ops/whole.git?access_token=s3cretquery","interval":"1h30m","timeout":"60s","provider":"azure","ref":{"branch":"main","semver":">=1.0.0 <2.0.0"},"verify":{"mode":"TagAndHEAD","secretRef":{"name":"keys"}},"include":[{"repository":{"name":"base"},"fromPath":"deploy","toPath":"base/deploy"},{"repository":{"name":"late"}}]}`,
			Status: `{"observedGeneration":1,"lastHandledReconcileAt":"2026-11-20T12:30:00Z","sourceVerificationMode":"TagAndHEAD","includedArtifacts":[{"revision":"main@sha1:` + SourceCommit + `","digest":"sha256:1","url":"http://x/y","path":"y","lastUpdateTime":"2026-11-20T10:00:00Z"}],"conditions":[` + ready + `,` + inStorage + `,` + condition("SourceVerified", "True", "Succeeded", "verified signature of tag with key 'ABCD'") + `],` + stored + `}`},
	)
	return all
}

// OddSource is one whose members have other types than the definition of Flux lets in.
func OddSource() Source {
	return Source{Name: "odd", Want: "unknown", Spec: `{"url":5,"interval":{"a":1},"ref":[1],"verify":"x","include":{"a":"b"},"suspend":"yes"}`,
		Status: `{"observedGeneration":1,"conditions":[{"type":7},"x",null,{"type":"Ready","status":"Perhaps","message":["m"],"lastTransitionTime":3}],"artifact":"none","includedArtifacts":3,"lastHandledReconcileAt":{}}`}
}

// Object is the source as an object without its status.
func (s Source) Object(t testing.TB, namespace string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": decoded(t, s.Spec)}}
	u.SetAPIVersion("source.toolkit.fluxcd.io/v1")
	u.SetKind("GitRepository")
	u.SetName(s.Name)
	u.SetNamespace(namespace)
	if s.Meta != "" {
		u.Object["metadata"].(map[string]any)["annotations"] = decoded(t, s.Meta)
	}
	return u
}

// Seen is the object with the status that its controller has given it.
func (s Source) Seen(t testing.TB, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u = u.DeepCopy()
	if s.Status != "" {
		u.Object["status"] = decoded(t, s.Status)
	}
	return u
}

// Resource is the part of a dynamic client that Put needs.
type Resource interface {
	Create(ctx context.Context, obj *unstructured.Unstructured, options metav1.CreateOptions,
		subresources ...string) (*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, obj *unstructured.Unstructured, options metav1.UpdateOptions) (*unstructured.Unstructured, error)
}

// Put makes the source on an API and gives it its status, as its controller does.
func (s Source) Put(t testing.TB, to Resource, namespace string) *unstructured.Unstructured {
	t.Helper()
	u, err := to.Create(t.Context(), s.Object(t, namespace), metav1.CreateOptions{})
	if s.Name == "odd" && apierrors.IsInvalid(err) { // on an API with the rules of Flux its status alone is odd
		s.Spec = sourceSpec
		u, err = to.Create(t.Context(), s.Object(t, namespace), metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		t.Fatalf("source %s is there already", s.Name)
	}
	if err == nil && s.Status != "" {
		u, err = to.UpdateStatus(t.Context(), s.Seen(t, u), metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatalf("source %s: %v", s.Name, err)
	}
	return u
}

// SourceNoon is some time after the times of the statuses.
var SourceNoon = time.Date(2026, 11, 20, 12, 34, 0, 0, time.UTC)

func decoded(t testing.TB, text string) map[string]any {
	t.Helper()
	u := map[string]any{}
	if err := json.Unmarshal([]byte(text), &u); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return whole(u).(map[string]any)
}

// whole turns numbers into those that objects of the API have.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}
