// Package gitrepository is the kind of sources GitRepository: it follows a ref and packs its tree.
//
// A source that does not change costs one ls-remote per interval. A commit that is pinned by its
// hash is fetched once. An artifact that is lost is made anew from the mirror.
package gitrepository

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/git"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/worker/checkout"
)

// Options of a Kind. All but Rules and Sealed must be set.
type Options struct {
	Sources       *source.Watcher // of GitRepositories, which may include each other
	Git           *git.Mirrors
	Credentials   auth.Source // a chain that ends with auth.NamedSecret
	Places        auth.Places // of the keys of signers
	Rules         *auth.List[auth.Rule]
	Signers       *checkout.Signers // with the policies of the configuration
	AllowInsecure bool
	Artifacts     *artifact.Store
	MaxBytes      int64 // see archive.Options
	MaxFiles      int
	References    *dependency.Watcher
	Sealed        func(secret string) bool // see dependency.Reader
	Now           func() time.Time         // of the server
}

// singular is the kind in the keys of artifacts.
const singular = "gitrepository"

// Kind is the kind GitRepository.
type Kind struct{ o Options }

// New returns the kind.
func New(o Options) *Kind { return &Kind{o} }

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind(dependency.GitRepository)
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string {
	return fmt.Sprintf("stored artifact for revision '%s'", revision)
}

// spec is the spec of a GitRepository.
type spec struct {
	kind      *Kind
	git       source.Git
	namespace string
	name      string
	content   content
}

// content is the part of a spec that says what is packed.
type content struct {
	Ignore         *string
	Submodules     bool      `json:"recurseSubmodules"`
	Includes       []include `json:"include"`
	SparseCheckout []string
}

// include is another source whose artifact becomes a directory of this one.
type include struct {
	Repository struct{ Name string }
	FromPath   string
	ToPath     string
}

// Read reads a spec.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	g, err := source.ReadGit(obj)
	if e, ok := errors.AsType[*auth.SourceError](err); ok && e.Reason != "" {
		f := &controller.Failure{Condition: controller.FetchFailed, Reason: e.Reason, Err: err, Stalled: true}
		if e.Reason == auth.ReasonVerifyMode {
			f.Condition = controller.SourceVerified
		}
		return nil, f
	}
	s := &spec{kind: k, git: g, namespace: obj.GetNamespace(), name: obj.GetName()}
	if err == nil {
		err = controller.Decode(obj, &s.content)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Uses returns all that a source is made of besides its Git host.
func (s *spec) Uses() (refs []dependency.Ref) {
	o := s.kind.o
	refs = dependency.SecretRefs(s.namespace, o.Sealed, s.git.Secret, s.git.ProxySecret, s.git.Signers)
	for _, in := range s.content.Includes {
		refs = append(refs, dependency.Ref{Kind: dependency.GitRepository, Namespace: s.namespace, Name: in.Repository.Name})
	}
	signers := o.Signers.Files(s.namespace, s.name, s.git.URL)
	for _, path := range append(signers, auth.RuleFiles(o.Rules.Get(), s.git.URL)...) {
		refs = append(refs, dependency.Ref{Kind: dependency.Path, Name: path})
	}
	return refs
}

// Host returns the Git host.
func (s *spec) Host() string {
	address, err := auth.ParseAddress(s.git.URL)
	if err != nil { // Look says so
		return ""
	}
	return address.HostPort()
}

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream { return &upstream{spec: s, visit: v} }

// upstream is a GitRepository in one reconcile.
type upstream struct {
	spec     *spec
	visit    controller.Visit
	included []artifact.Artifact
	demands  []git.Verification // what has to be signed; none = nothing
	remote   git.Remote
	ref      git.Ref
	verified string // what was verified, for people; "" = nothing
}

// Require finds the artifacts that are included, and what has to be signed.
func (u *upstream) Require(ctx context.Context) error {
	if err := u.include(ctx); err != nil {
		return err
	}
	return u.demand(ctx)
}

// checksumOf hashes all that an artifact of a commit is made of: what of it changes makes another
// artifact, or has the commit verified again. Each part has its length before it, so that no two
// configurations have one encoding.
func (u *upstream) checksumOf(ref git.Ref) string {
	content := u.spec.content
	h := sha256.New()
	add := func(parts ...string) {
		for _, p := range parts {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
			h.Write([]byte(p))
		}
	}
	add(archive.Version, u.spec.git.URL, u.spec.git.Selector.String(), strconv.FormatBool(content.Submodules), strconv.FormatBool(u.visit.KeepSymlinks),
		strconv.FormatBool(content.Ignore != nil))
	if content.Ignore != nil {
		add(*content.Ignore)
	}
	add(strconv.Itoa(len(u.included)))
	for i, in := range content.Includes[:len(u.included)] {
		add(in.Repository.Name, in.FromPath, in.ToPath, u.included[i].Revision, u.included[i].Digest)
	}
	add(strconv.Itoa(len(content.SparseCheckout)))
	add(content.SparseCheckout...)
	for _, d := range u.demands {
		add(string(d.Mode), d.Keys.Digest(), strconv.FormatBool(d.OfMaker), strconv.Itoa(len(d.Principals)))
		add(d.Principals...)
		if d.Mode.Tag() { // another tag object of the same commit may be signed by another
			add(ref.Tag)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
