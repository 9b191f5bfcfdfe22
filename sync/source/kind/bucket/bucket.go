// Package bucket is the kind of sources Bucket: it follows the objects of a bucket below a prefix
// and serves them as an archive.
//
//	look.go    the listing of the objects, and its revision
//	index.go   what is remembered of an artifact: the ETags that it was made of
//	fetch.go   objects that have changed, into files; the archive of them and of the others
//	remote.go  requests in the dialects of S3 and of Azure
//	login.go   credentials, and how a request shows them
//
// An object is named by its key and its ETag. Those that the stored artifact has are taken from it.
package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/identity"
	"limpet/sync/netx"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

// Options of a Kind. All but Sealed must be set.
type Options struct {
	Places     auth.Places
	Identities *identity.Identities
	Client     *netx.Client // its connections and clocks
	Artifacts  *artifact.Store
	Dir        string // of objects that are in no artifact yet; of this kind alone
	MaxBytes   int64  // see archive.Options
	MaxFiles   int
	Sealed     func(secret string) bool // see dependency.Reader
}

// Kind is the kind Bucket.
type Kind struct{ o Options }

// New returns the kind. What a process before has left of downloads may have lost bytes in a power
// cut, which no ETag shows.
func New(o Options) *Kind {
	_ = os.RemoveAll(o.Dir) // else making it again fails
	return &Kind{o}
}

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind("Bucket")
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string {
	return fmt.Sprintf("stored artifact: revision '%s'", revision)
}

// Reasons of conditions. Source: Flux.
const (
	reasonBucket = "BucketOperationFailed"
	reasonIgnore = "SourceIgnoreError"
	reasonSTS    = "InvalidSTSConfiguration"
)

// spec is the spec of a Bucket.
type spec struct {
	kind      *Kind
	namespace string
	name      string
	base      *url.URL // of the endpoint

	Provider           string
	BucketName         string
	Endpoint           string
	Region             string
	Prefix             string
	Insecure           bool
	Ignore             *string
	ServiceAccountName string
	STS                *struct{ Provider string }
	SecretRef          struct{ Name string }
	CertSecretRef      struct{ Name string }
	ProxySecretRef     struct{ Name string }
}

// Read reads a spec.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	s := &spec{kind: k, namespace: obj.GetNamespace(), name: obj.GetName()}
	err := controller.Decode(obj, s)
	if err != nil {
		return nil, err
	}
	s.Provider = cmp.Or(s.Provider, auth.Generic)
	switch {
	case s.ServiceAccountName != "":
		return nil, controller.Stalled(auth.ReasonFeatureGate, "spec.serviceAccountName: limpet does not use service accounts of the cluster; "+
			"leave it out, and name a Secret in spec.secretRef")
	case s.STS != nil:
		return nil, controller.Stalled(reasonSTS, "spec.sts: limpet asks no STS of a spec; leave it out, and name a Secret in spec.secretRef")
	case s.Provider != auth.Generic && s.SecretRef.Name == "" && s.CertSecretRef.Name != "":
		return nil, controller.Stalled(auth.ReasonProvider, "spec.certSecretRef: the identity of this host is not sent to hosts with an authority of a secret; "+
			"leave it out, or name a Secret in spec.secretRef")
	}
	if s.base, err = s.endpoint(); err != nil {
		return nil, controller.Stalled(auth.ReasonURL, "%w", err)
	}
	return s, nil
}

// Uses returns the Secrets of a source.
func (s *spec) Uses() []dependency.Ref {
	return dependency.SecretRefs(s.namespace, s.kind.o.Sealed, s.SecretRef.Name, s.CertSecretRef.Name, s.ProxySecretRef.Name)
}

// Host returns the endpoint.
func (s *spec) Host() string { return s.base.Host }

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream { return &upstream{spec: s, visit: v} }

// upstream is a Bucket in one reconcile.
type upstream struct {
	controller.Plain
	spec    *spec
	visit   controller.Visit
	from    *remote
	was     index // of the stored artifact
	now     index // of the listing
	settled bool  // what has another ETag has the same bytes
}

// Event returns the message of an event.
func (u *upstream) Event(a artifact.Artifact, _ bool) string {
	return fmt.Sprintf("stored artifact with %d fetched files from '%s' bucket", a.Files, u.spec.BucketName)
}

// Fields returns the rules of the spec.
func (u *upstream) Fields(func(artifact.Artifact) map[string]any) map[string]any {
	if u.spec.Ignore == nil {
		return map[string]any{"observedIgnore": nil}
	}
	return map[string]any{"observedIgnore": *u.spec.Ignore}
}

// endpoint returns the URL of the endpoint. That of gcp is known.
func (s *spec) endpoint() (*url.URL, error) {
	raw := "https://" + s.Endpoint
	switch {
	case s.Provider == "gcp":
		raw = "https://storage.googleapis.com"
	case s.Provider == "azure":
		raw = strings.TrimSuffix(s.Endpoint, "/")
	case s.Insecure:
		raw = "http://" + s.Endpoint
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery+u.Fragment != "":
		return nil, errors.New("spec.endpoint: it is no address of a server") // and may hold a password
	case s.Provider == "azure" && u.Scheme != "https" && !netx.Loopback(u.Hostname()):
		return nil, fmt.Errorf("spec.endpoint: %q is not https://ACCOUNT.blob.core.windows.net", text.Line(s.Endpoint, 200))
	case s.Provider != "azure" && u.Path != "":
		return nil, fmt.Errorf("spec.endpoint: %q is not HOST or HOST:PORT, without a scheme and a path", text.Line(s.Endpoint, 200))
	case s.BucketName == "." || s.BucketName == ".." || strings.ContainsAny(s.BucketName, "/?#"):
		return nil, fmt.Errorf("spec.bucketName: %q is no name of a bucket", text.Line(s.BucketName, 200))
	}
	return u, nil
}
