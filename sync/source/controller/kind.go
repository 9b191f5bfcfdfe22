package controller

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/reconcile"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// Kind is what one kind of sources brings. It is safe for concurrent use.
type Kind interface {
	// Kind returns the row of the kind in the table of package api.
	Kind() api.Kind
	// Read reads the spec of an object, once for each of its generations, and sends no request. A
	// *Failure that it returns is stalled; another error says that Flux's definition refuses the spec.
	Read(obj *unstructured.Unstructured) (Spec, error)
	// Stored returns the message of a stored revision, in the words of Flux.
	Stored(revision string) string
}

// Spec is the spec of one source, as its kind has read it. It does not change.
type Spec interface {
	// Uses returns all that the source is made of besides its upstream: Secrets, files, other sources.
	// A change of one of them has the source reconciled.
	Uses() []dependency.Ref
	// Host returns host and port of the upstream, "" where Look and Fetch ask none. A host that does
	// not answer must not hold all workers.
	Host() string
	// Open begins one reconcile.
	Open(v Visit) Upstream
}

// Visit is what a kind may know of the reconcile of a source.
type Visit struct {
	Key          reconcile.Key
	Object       *unstructured.Unstructured
	Timeout      time.Duration     // of a request: spec.timeout, or what Flux takes for it
	KeepSymlinks bool              // of api.AnnoKeepSymlinks
	Stored       artifact.Artifact // the newest whose bytes are right; zero = none
}

// Upstream is the upstream of a source in one reconcile. Its methods are called one after the
// other, in the order in which they stand here. An error that is no *Failure, such as one of an
// unreachable API, is tried again and not written to the status.
type Upstream interface {
	// Require finds what the artifact is made of besides the upstream, as far as this host can say:
	// keys that have to have signed, artifacts of other sources.
	Require(ctx context.Context) error
	// Look asks for the newest revision, at the least cost that there is. ctx ends with the timeout of
	// the spec.
	Look(ctx context.Context) (Found, error)
	// Fetch brings the revision of Look to this host and verifies its signatures. A cut connection
	// loses as little as possible; what has come is bounded. received is in bytes.
	Fetch(ctx context.Context) (received int64, err error)
	// Pack returns the content of the artifact, which is on this host.
	Pack(ctx context.Context) (Content, error)
	// Signatures returns whether any are demanded, and what has been verified, "" for nothing.
	Signatures() (demanded bool, verified string)
	// Event returns the message of the event of an artifact that is new, or with which a failure has
	// ended.
	Event(a artifact.Artifact, recovered bool) string
	// Outdated returns the reason and the message where the stored artifact is of the same revision as
	// the upstream, and made of something else; "" = nothing is to be said.
	Outdated() (reason, message string)
	// Fields returns the fields of the status that are those of the kind alone, after a success; nil
	// removes one. shown returns an artifact in the form of Flux.
	Fields(shown func(artifact.Artifact) map[string]any) map[string]any
}

// Static is a Kind of which some sources are ready as they are: they get no finalizer, no artifact
// and no status.
type Static interface {
	Static(obj *unstructured.Unstructured) bool
}

// Owner is a Kind of which others make sources too: those are left alone.
type Owner interface {
	Owns(obj *unstructured.Unstructured) bool
}

// Summarizer is a Kind whose sources are ready for reasons of their own.
type Summarizer interface {
	// Summary returns reason and message of a stored artifact, in the words of Flux.
	Summary(a artifact.Artifact) (reason, message string)
}

// Restorer is an Upstream that can make an artifact anew whose bytes are lost, without any request.
type Restorer interface {
	// Restore finds the revision of lost on this host, for Pack.
	Restore(ctx context.Context, lost artifact.Artifact) (Found, error)
}

// Settler is an Upstream whose Fetch may find that nothing is new.
type Settler interface {
	// Settled returns what Look returns from now on, and whether the stored artifact is of that.
	Settled() (found Found, is bool)
}

// Found is the newest revision of an upstream.
type Found struct {
	Revision string // in the form of Flux
	Checksum string // of all that the artifact is made of besides the revision
	Note     string // behind the message of a source that is ready; "" = none
	Cache    string // event of the cache of what was looked at, cache_hit or cache_miss; "" = there is none
	Newer    bool   // the fields of the status are others, though the artifact is the same
}

// Content is the content of an artifact.
type Content struct {
	Subject  string            // for people
	Path     string            // on the server of artifacts; "" = KIND/NAMESPACE/NAME/REVISION.tar.gz
	Metadata map[string]string // for the status
	Spent    string            // a file or directory that is of no use once the artifact is stored; "" = none
	Write    func(io.Writer) (archive.Digests, error)

	File    string // that has the bytes as they are, and is removed when they are stored; "" = Write makes them
	Digests archive.Digests
}
