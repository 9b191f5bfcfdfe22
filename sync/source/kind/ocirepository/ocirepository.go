// Package ocirepository is the kind of sources OCIRepository: it follows a tag, a range of versions
// or a digest of a container registry or of an OCI layout on this host, and serves a layer of what
// it finds.
//
//	look.go        what a reference stands for: one HEAD for a tag, none for a digest
//	registry.go    connections, shared by the sources of one repository and one login
//	remote.go      what is read of the distribution API
//	login.go       credentials of a registry
//	mirror.go      mirrors of registries
//	layout.go      OCI layouts of this host
//	fetch.go       manifest, signatures, and the layer into a partial file, which is resumed
//	cosign.go      signatures of cosign with keys
//	pack.go        the layer as the artifact
//
// All that is read is named by its digest, so that what was verified is what is packed.
package ocirepository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"oras.land/oras-go/v2/registry"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/identity"
	"limpet/sync/netx"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

// Options of a Kind. All but Sealed must be set.
type Options struct {
	Places        auth.Places
	Identities    *identity.Identities
	PullSecrets   func(ctx context.Context, namespace, account string) (secrets []string, err error) // of a service account
	Guard         netx.Guard
	AllowInsecure bool     // credentials may go over plain http
	AllowLocal    []string // directories below which OCI layouts may be
	Mirrors       Mirrors
	Dir           string // of downloads that have not ended
	MaxBytes      int64  // see archive.Options
	MaxFiles      int
	UserAgent     string
	Sealed        func(secret string) bool // see dependency.Reader
}

// Kind is the kind OCIRepository.
type Kind struct {
	o          Options
	registries *registries
}

// New returns the kind.
func New(o Options) *Kind { return &Kind{o: o, registries: newRegistries(o)} }

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind("OCIRepository")
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string {
	return fmt.Sprintf("stored artifact for digest '%s'", revision)
}

// Reasons of conditions. Source: Flux.
const (
	reasonPull      = "OCIArtifactPullFailed"
	reasonLayer     = "OCIArtifactLayerOperationFailed"
	reasonRead      = "ReadOperationFailed"
	reasonSucceeded = "Succeeded"
)

// spec is the spec of an OCIRepository.
type spec struct {
	kind      *Kind
	namespace string
	name      string
	at        registry.Reference // of a registry, without a tag
	layout    layout             // else
	versions  versions           // of the range; zero = the spec names none

	URL string
	Ref struct {
		Digest       digest.Digest
		SemVer       string
		SemVerFilter string
		Tag          string
	}
	LayerSelector      struct{ MediaType, Operation string }
	Provider           string
	ServiceAccountName string
	Insecure           bool
	Ignore             *string
	SecretRef          reference
	CertSecretRef      reference
	ProxySecretRef     reference
	Verify             *struct {
		Provider  string
		SecretRef reference
	}
}

type reference struct{ Name string }

// Read reads a spec.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	s := &spec{kind: k, namespace: obj.GetNamespace(), name: obj.GetName()}
	if err := controller.Decode(obj, s); err != nil {
		return nil, err
	}
	if err := s.address(); err != nil {
		return nil, controller.Stalled(auth.ReasonURL, "URL validation failed for '%s': %w", text.Redact(s.URL), err)
	}
	s.Provider = cmp.Or(s.Provider, auth.Generic)
	switch cloud := s.Provider != auth.Generic && s.SecretRef.Name == ""; {
	case cloud && s.ServiceAccountName != "":
		return nil, controller.Stalled(auth.ReasonFeatureGate, "spec.serviceAccountName: limpet does not use identities of service accounts of the cluster; "+
			"leave it out, and the identity of this host is used")
	case cloud && (s.Insecure || s.CertSecretRef.Name != "" || s.layout.path != ""):
		return nil, controller.Stalled(auth.ReasonProvider, "spec.provider: the identity of this host goes to registries of %s alone, over https and "+
			"without an authority of a secret; leave spec.insecure and spec.certSecretRef out", s.Provider)
	}
	if s.Ref.Digest != "" && s.Ref.Digest.Validate() != nil {
		return nil, controller.Stalled(reasonPull, "spec.ref.digest: it is no digest such as sha256:HEX")
	}
	var err error
	if s.versions, err = s.parseRange(); err != nil {
		return nil, controller.Stalled(reasonRead, "failed to determine the artifact tag for '%s': %w", s.URL, err)
	}
	return s, nil
}

// address reads the URL.
func (s *spec) address() (err error) {
	if rest, local := strings.CutPrefix(s.URL, layoutScheme); local {
		s.layout, err = parseLayout(rest)
		return err
	}
	rest, ok := strings.CutPrefix(s.URL, "oci://")
	if ok {
		s.at, err = registry.ParseReference(rest)
	}
	if !ok || err != nil {
		return errors.New("URL must be in format 'oci://<domain>/<org>/<repo>'")
	}
	if s.at.Reference != "" {
		return fmt.Errorf("URL must not contain a tag; remove '%s'", strings.TrimPrefix(rest, s.at.Registry+"/"+s.at.Repository))
	}
	return nil
}

// Uses returns all that a source is made of besides its registry.
func (s *spec) Uses() []dependency.Ref {
	names := []string{s.SecretRef.Name, s.CertSecretRef.Name, s.ProxySecretRef.Name}
	if s.Verify != nil {
		names = append(names, s.Verify.SecretRef.Name)
	}
	return dependency.SecretRefs(s.namespace, s.kind.o.Sealed, names...)
}

// Host returns the registry, "" for a layout.
func (s *spec) Host() string { return s.at.Host() }

// copies reports whether the layer is stored as it is.
func (s *spec) copies() bool { return s.LayerSelector.Operation == "copy" }

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream { return &upstream{spec: s, visit: v} }

// upstream is an OCIRepository in one reconcile.
type upstream struct {
	controller.Plain
	spec     *spec
	visit    controller.Visit
	keys     keys   // that may have signed; nil = none is demanded
	verified string // what was verified, for people; "" = nothing
	from     store
	revision string
	found    ocispec.Descriptor // without a type while only the digest is known
	manifest ocispec.Manifest
	layer    ocispec.Descriptor
	file     string // with the layer
}

// checksum hashes all that an artifact is made of besides its revision.
func (u *upstream) checksum() string {
	s := u.spec
	return controller.Checksum(archive.Version, s.URL, u.visit.KeepSymlinks, s.Ignore, s.LayerSelector, u.keys)
}

// Event returns the message of an event.
func (u *upstream) Event(a artifact.Artifact, _ bool) string {
	message := fmt.Sprintf("stored artifact with revision '%s' from '%s'", a.Revision, u.spec.URL)
	origin, revision := a.Metadata[ocispec.AnnotationSource], a.Metadata[ocispec.AnnotationRevision]
	if origin != "" && revision != "" {
		message += fmt.Sprintf(", origin source '%s', origin revision '%s'", origin, revision)
	}
	return message
}

// Signatures returns whether any are demanded, and what has been verified.
func (u *upstream) Signatures() (demanded bool, verified string) { return u.keys != nil, u.verified }

// Fields returns what the artifact was made of.
func (u *upstream) Fields(func(artifact.Artifact) map[string]any) map[string]any {
	out := map[string]any{"observedIgnore": nil, "observedLayerSelector": nil}
	if u.spec.Ignore != nil {
		out["observedIgnore"] = *u.spec.Ignore
	}
	selector := map[string]any{}
	for name, value := range map[string]string{"mediaType": u.spec.LayerSelector.MediaType, "operation": u.spec.LayerSelector.Operation} {
		if value != "" {
			selector[name] = value
			out["observedLayerSelector"] = selector
		}
	}
	return out
}

// unverified is a failure of signatures.
func unverified(stalled bool, format string, args ...any) error {
	return &controller.Failure{Condition: controller.SourceVerified, Reason: auth.ReasonVerify, Err: fmt.Errorf(format, args...), Stalled: stalled}
}

// Require finds the keys that have to have signed.
func (u *upstream) Require(ctx context.Context) (err error) {
	v := u.spec.Verify
	if v == nil {
		return nil
	}
	switch {
	case v.Provider == "notation":
		return unverified(true, "limpet verifies no signatures of notation; sign with a key of cosign, "+
			"and name the Secret with its *.pub in spec.verify.secretRef")
	case v.SecretRef.Name == "":
		return unverified(true, "limpet verifies no keyless signatures of cosign; sign with a key, "+
			"and name the Secret with its *.pub in spec.verify.secretRef")
	}
	if u.keys, err = u.spec.kind.readKeys(ctx, u.spec.namespace, v.SecretRef.Name); err != nil {
		return unverified(false, "failed to verify the signature using provider 'cosign': %w", err)
	}
	return nil
}
