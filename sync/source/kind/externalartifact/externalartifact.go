// Package externalartifact is the kind of sources ExternalArtifact: it publishes, in the form of
// Flux, what Flux has no kind for: the commit that a Repository has synced, and the artifact of a
// source whose URL Flux does not know.
//
//	publisher.go   keeps an object for each that asks for one by annotation
//	repository.go  the commit of a Repository
//
// What others publish is left alone. An artifact stays while its source fails or is suspended.
package externalartifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/worker/checkout"
)

// Options of a Kind and of its Publisher. All must be set.
type Options struct {
	Client       *kube.Client
	Sources      source.Watchers
	Repositories *kube.Informer
	Mirrors      *git.Mirrors
	Checkout     checkout.Source // of Repositories
	Artifacts    *artifact.Store
	MaxBytes     int64 // see archive.Options
	MaxFiles     int
	References   *dependency.Watcher
	Logger       *slog.Logger
}

// Kind is the kind ExternalArtifact.
type Kind struct{ o Options }

// New returns the kind.
func New(o Options) *Kind { return &Kind{o} }

const kindName = "ExternalArtifact"

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind(kindName)
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string {
	return fmt.Sprintf("stored artifact for revision '%s'", revision)
}

const (
	labelManager = "app.kubernetes.io/managed-by"
	manager      = "limpet"
)

// Owns reports whether an object is one of a Publisher. One that is deleted is so without its owner
// too, which a deletion that orphans takes away: else its finalizer would keep it forever.
func (*Kind) Owns(obj *unstructured.Unstructured) bool { return owns(obj) }

func owns(obj *unstructured.Unstructured) bool {
	return obj.GetLabels()[labelManager] == manager &&
		(metav1.GetControllerOf(obj) != nil || obj.GetDeletionTimestamp() != nil)
}

// Reasons of a failure. Source: Flux's RFC-0012.
const (
	reasonFetch   = "FetchFailed"
	reasonVerify  = "VerificationFailed"
	reasonStorage = "StorageOperationFailed"
)

func fetchFailed(err error) *controller.Failure {
	return &controller.Failure{Condition: controller.FetchFailed, Reason: reasonFetch, Err: err}
}

// waiting returns a failure that ends when another object changes.
func waiting(f *controller.Failure) error {
	f.Wait = controller.DependencyRetry
	return f
}

// spec is the spec of an ExternalArtifact.
type spec struct {
	kind *Kind
	of   dependency.Ref
}

// Read reads a spec. What the artifact is made of is in the reference to the owner, which only the
// one that made the object has written.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	of := metav1.GetControllerOf(obj)
	if of == nil {
		return nil, errors.New("it has no owner")
	}
	return &spec{k, dependency.Ref{Kind: of.Kind, Namespace: obj.GetNamespace(), Name: of.Name}}, nil
}

// Uses returns the source.
func (s *spec) Uses() []dependency.Ref { return []dependency.Ref{s.of} }

// Host returns "": a fetch is rare, since the commit was pulled.
func (*spec) Host() string { return "" }

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream {
	u := upstream{spec: s, visit: v}
	if s.of.Kind == dependency.Repository {
		return &repository{upstream: u}
	}
	return &u
}

// upstream is the artifact of a source in one reconcile.
type upstream struct {
	spec   *spec
	visit  controller.Visit
	obj    *unstructured.Unstructured // the source
	stored artifact.Artifact          // of it
}

// Require finds the source.
func (u *upstream) Require(ctx context.Context) error {
	of, o := u.spec.of, u.spec.kind.o
	obj, known := o.object(of)
	if obj == nil && !known {
		return fmt.Errorf("the list of each %s is not there yet", of.Kind)
	}
	owner := metav1.GetControllerOf(u.visit.Object)
	if obj == nil || owner == nil || obj.GetUID() != owner.UID {
		return waiting(fetchFailed(fmt.Errorf("there is no %s '%s'", of.Kind, of.Name)))
	}
	if u.obj = obj; of.Kind == dependency.Repository {
		return nil
	}
	stored, err := o.Artifacts.Latest(ctx, artifact.KeyOf(of.Kind, of.Namespace, of.Name))
	if err == nil && stored.UID != string(obj.GetUID()) { // of an object of that name before
		stored, err = artifact.Artifact{}, artifact.ErrNotFound
	}
	o.References.Observe(of, stored.Digest) // also that there is none
	if errors.Is(err, artifact.ErrNotFound) {
		return waiting(fetchFailed(fmt.Errorf("no artifact available for %s source '%s'", of.Kind, of.Name)))
	}
	if err != nil {
		return fmt.Errorf("read index of artifacts: %w", err)
	}
	u.stored = stored
	return nil
}

// Look returns the revision of the source.
func (u *upstream) Look(context.Context) (controller.Found, error) {
	revision := u.stored.Revision
	if !strings.Contains(revision, "@") { // of a digest or a commit alone
		revision = "latest@" + revision
	}
	return controller.Found{Revision: revision, Checksum: u.stored.Digest}, nil
}

// Fetch has nothing to do: the artifact is on this host.
func (*upstream) Fetch(context.Context) (received int64, err error) { return 0, nil }

// Pack returns the bytes of the artifact.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	made := u.stored
	return controller.Content{
		Subject:  made.Subject,
		Path:     path.Join(u.spec.kind.Kind().Singular, u.visit.Key.Namespace, u.visit.Key.Name, path.Base(made.Path)),
		Metadata: made.Metadata,
		Write: func(w io.Writer) (archive.Digests, error) {
			f, err := u.spec.kind.o.Artifacts.OpenFile(ctx, made)
			if err != nil {
				return archive.Digests{}, &controller.Failure{Condition: controller.StorageFailed, Reason: reasonStorage, Err: err}
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return archive.Digests{Digest: made.Digest, TarDigest: made.TarDigest, Size: made.Size, Files: made.Files}, err
		},
	}, nil
}

// Signatures returns none: the source verifies its own before it has an artifact.
func (*upstream) Signatures() (demanded bool, verified string) { return false, "" }

// Event returns the message of an event.
func (u *upstream) Event(a artifact.Artifact, _ bool) string {
	return fmt.Sprintf("stored artifact with revision '%s' of %s '%s'", a.Revision, u.spec.of.Kind, u.spec.of.Name)
}

// Outdated says nothing: what an artifact is made of is in its revision.
func (*upstream) Outdated() (reason, message string) { return "", "" }

// Fields returns none.
func (*upstream) Fields(func(artifact.Artifact) map[string]any) map[string]any { return nil }
