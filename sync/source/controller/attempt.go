package controller

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// attempt is one reconcile of a source. Each step reads what the steps before it have found, and
// adds its own.
type attempt struct {
	key    reconcile.Key
	obj    *unstructured.Unstructured
	memory *memory
	spec   spec
	git    source.Git
	over   bool // the status is not written
	links  bool // symbolic links are kept

	sunk    string        // digest of the artifact that the directory was compared with
	sink    api.Condition // of the directory; zero = as it is
	sinkErr error         // is tried again
	program bool          // one follows the switch of the directory
	written bool          // the status was written, and the program may run

	artifact artifact.Artifact // the newest whose bytes are right; zero = none
	lost     artifact.Artifact // one whose bytes are not
	included []artifact.Artifact

	remote    git.Remote
	demands   []git.Verification // what has to be signed; none = nothing
	ref       git.Ref
	revision  string
	unchanged bool   // the artifact is that of the revision, made of the same as now
	checksum  string // of all that the artifact of the revision is made of
	verified  string // what was verified, for people; "" = nothing
}

// spec is the part of a spec that says what is packed, and when.
type spec struct {
	Interval       string
	Suspend        bool
	Ignore         *string
	Submodules     bool      `json:"recurseSubmodules"`
	Includes       []include `json:"include"`
	SparseCheckout []string

	interval time.Duration
}

// include is another source whose artifact becomes a directory of this one.
type include struct {
	Repository struct{ Name string }
	FromPath   string
	ToPath     string
}

// run runs the steps. An error that is no *failure is not written to the status.
func (c *Controller) run(ctx context.Context, a *attempt) (*failure, error) {
	_, err := reconcile.Run(ctx, a, c.steps)
	if failed, is := errors.AsType[*failure](err); is && ctx.Err() == nil {
		return failed, nil
	}
	return nil, err
}

// failure is why a source is not ready.
type failure struct {
	condition string // that says so
	reason    string
	err       error
	stalled   bool          // until the spec changes or a reconcile is requested
	wait      time.Duration // until it is tried again; 0 = the backoff, or stalledRetry
}

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// The conditions of a source. Source: fluxcd/source-controller, api/v1/condition_types.go.
const (
	condReady       = "Ready"
	condReconciling = "Reconciling"
	condStalled     = "Stalled"
	condStored      = "ArtifactInStorage"
	condOutdated    = "ArtifactOutdated"
	condFetch       = "FetchFailed"
	condInclude     = "IncludeUnavailable"
	condStorage     = "StorageOperationFailed"
	condVerified    = "SourceVerified"
)

// fetchFailed is the failure of an error about the Git host or the way to it.
func fetchFailed(err error) error {
	if git.KindOf(err) == git.Unverified { // a submodule
		return &failure{condition: condVerified, reason: reasonCommit, err: err}
	}
	return &failure{condition: condFetch, reason: source.Reason(err), err: err}
}

// timeout returns how long one request to the Git host may take.
func (a *attempt) timeout() time.Duration {
	if a.git.Timeout > 0 {
		return a.git.Timeout
	}
	return defaultTimeout
}

// checksumOf hashes all that an artifact of a commit is made of: what of it changes makes another
// artifact, or has the commit verified again. Each part has its length before it, so that no two
// configurations have one encoding.
func (a *attempt) checksumOf(ref git.Ref) string {
	h := sha256.New()
	add := func(parts ...string) {
		for _, p := range parts {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
			h.Write([]byte(p))
		}
	}
	add(archive.Version, a.git.URL, a.git.Selector.String(), strconv.FormatBool(a.spec.Submodules), strconv.FormatBool(a.links),
		strconv.FormatBool(a.spec.Ignore != nil))
	if a.spec.Ignore != nil {
		add(*a.spec.Ignore)
	}
	add(strconv.Itoa(len(a.included)))
	for i, in := range a.spec.Includes[:len(a.included)] {
		add(in.Repository.Name, in.FromPath, in.ToPath, a.included[i].Revision, a.included[i].Digest)
	}
	add(strconv.Itoa(len(a.spec.SparseCheckout)))
	add(a.spec.SparseCheckout...)
	for _, d := range a.demands {
		add(string(d.Mode), d.Keys.Digest(), strconv.FormatBool(d.OfMaker), strconv.Itoa(len(d.Principals)))
		add(d.Principals...)
		if d.Mode.Tag() { // another tag object of the same commit may be signed by another
			add(ref.Tag)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
