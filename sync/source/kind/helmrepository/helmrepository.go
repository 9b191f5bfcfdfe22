// Package helmrepository is the kind of sources HelmRepository: it follows the index of a Helm
// repository and serves its bytes. One of type oci is static, as in Flux: it says where charts are
// and is ready as it is.
//
//	client.go  files of a repository, with its login
//	look.go    the index, by conditional request
package helmrepository

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/helm"
	"limpet/sync/text"
)

// Options of a Kind. All but Sealed must be set.
type Options struct {
	Client   *Client
	Dir      string                   // of indexes that are read
	MaxBytes int64                    // of an index
	Sealed   func(secret string) bool // see dependency.Reader
}

// Kind is the kind HelmRepository.
type Kind struct{ o Options }

// New returns the kind.
func New(o Options) *Kind { return &Kind{o} }

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind("HelmRepository")
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string {
	return fmt.Sprintf("stored artifact: revision '%s'", revision)
}

// Static reports whether a repository is not reconciled.
func (*Kind) Static(obj *unstructured.Unstructured) bool {
	r, err := Parse(obj)
	return err == nil && r.OCI()
}

// Reasons of FetchFailed. Source: Flux.
const (
	reasonFailed = "Failed"
	reasonIndex  = "IndexationFailed"
)

// spec is the spec of a HelmRepository.
type spec struct {
	kind *Kind
	Repository
	index *url.URL
	last  validators // of the last answer; it belongs to the worker of the source
}

// Read reads a spec.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	r, err := Parse(obj)
	if err != nil {
		return nil, err
	}
	index, err := r.At("index.yaml")
	return &spec{kind: k, Repository: r, index: index}, err
}

// Uses returns the Secrets of the login.
func (s *spec) Uses() []dependency.Ref { return s.Repository.Uses(s.kind.o.Sealed) }

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream {
	return &upstream{spec: s, visit: v}
}

// upstream is a HelmRepository in one reconcile.
type upstream struct {
	controller.Plain
	spec   *spec
	visit  controller.Visit
	file   string          // with the index; "" = it was not read
	made   archive.Digests // of the file
	answer validators
}

// checksum hashes the address of the index: what a server says of a revision is about that one.
func (u *upstream) checksum() string { return controller.Checksum(u.spec.URL) }

// Fetch checks the index that Look has brought.
func (u *upstream) Fetch(context.Context) (received int64, err error) {
	f, err := os.Open(u.file)
	if err != nil {
		return u.made.Size, err
	}
	defer f.Close()
	if _, err := helm.Versions(f, ""); err != nil {
		return u.made.Size, controller.Failed(reasonIndex, "failed to load Helm repository from index YAML: %w", err)
	}
	return u.made.Size, nil
}

// Pack returns the index, as its host has sent it.
func (u *upstream) Pack(context.Context) (controller.Content, error) {
	u.spec.last = u.answer
	_, sum, _ := strings.Cut(u.answer.revision, ":")
	return controller.Content{
		Path:     strings.Join([]string{"helmrepository", u.visit.Key.Namespace, u.visit.Key.Name, "index-" + sum + ".yaml"}, "/"),
		Metadata: u.answer.metadata(),
		File:     u.file,
		Digests:  u.made,
	}, nil
}

// Event returns the message of an event.
func (u *upstream) Event(a artifact.Artifact, _ bool) string {
	return fmt.Sprintf("stored fetched index of size %s from '%s'", text.Size(a.Size), text.Redact(u.spec.URL))
}
