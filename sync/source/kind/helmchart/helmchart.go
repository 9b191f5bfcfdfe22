// Package helmchart is the kind of sources HelmChart: it follows a chart of a Helm repository, of a
// registry of containers or of the files of another source, and serves it as Helm's tools pack one.
//
//	origin.go    where the chart comes from, as its sourceRef says
//	index.go     a Helm repository with an index
//	registry.go  a Helm repository of type oci
//	tree.go      the artifact of a GitRepository or a Bucket
//	pack.go      the chart as the artifact, with the values of the spec
//
// A chart is packed again where it comes from a tree or has other values; else its bytes are those
// that were published.
package helmchart

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/helm"
	"limpet/sync/source/kind/helmrepository"
)

// Options of a Kind. All but Sealed must be set.
type Options struct {
	Sources    Sources
	Artifacts  Artifacts
	References *dependency.Watcher
	Client     *helmrepository.Client
	Registries controller.Kind          // OCIRepository
	Dir        string                   // of charts that are read
	Sealed     func(secret string) bool // see dependency.Reader
}

// Sources are the other sources.
type Sources interface {
	// Get returns a source, nil where there is none, and whether that is known.
	Get(kind, namespace, name string) (u *unstructured.Unstructured, known bool)
}

// Artifacts are those of other sources.
type Artifacts interface {
	Latest(ctx context.Context, of artifact.Key) (artifact.Artifact, error)
	OpenFile(ctx context.Context, a artifact.Artifact) (*os.File, error)
}

// Kind is the kind HelmChart.
type Kind struct{ o Options }

// New returns the kind.
func New(o Options) *Kind { return &Kind{o} }

// Kind returns its row in the table of kinds.
func (*Kind) Kind() api.Kind {
	k, _ := api.SourceKind("HelmChart")
	return k
}

// Stored returns the message of a stored revision.
func (*Kind) Stored(revision string) string { return fmt.Sprintf("chart with version '%s'", revision) }

// Summary returns whether a chart was taken as it is, or packed.
func (*Kind) Summary(a artifact.Artifact) (reason, message string) {
	if strings.HasPrefix(a.Subject, packaged) {
		return "ChartPackageSucceeded", a.Subject
	}
	return "ChartPullSucceeded", a.Subject
}

// failure is a reason of FetchFailed or BuildFailed. Source: Flux.
type failure struct{ condition, reason, summary string }

var (
	noSource      = failure{controller.FetchFailed, "SourceUnavailable", "failed to get source"}
	noKind        = failure{controller.FetchFailed, "UnsupportedSourceKind", "unsupported source kind"}
	noReference   = failure{controller.FetchFailed, "InvalidChartReference", "invalid chart reference"}
	noPull        = failure{controller.FetchFailed, "ChartPullError", "chart pull error"}
	noMetadata    = failure{controller.BuildFailed, "MetadataPatchError", "chart metadata patch error"}
	noValues      = failure{controller.BuildFailed, "ValuesFilesError", "values files merge error"}
	noDependency  = failure{controller.BuildFailed, "DependencyBuildError", "dependency build error"}
	noPackage     = failure{controller.BuildFailed, "ChartPackageError", "chart package error"}
	notVerified   = failure{controller.BuildFailed, "ChartVerificationError", "chart verification error"}
	untilAChange  = []failure{noKind, noReference, noMetadata, noValues}
	valuesOfChart = []string{"values.yaml"}
)

// of returns the failure for an error.
func (f failure) of(err error) *controller.Failure {
	return &controller.Failure{Condition: f.condition, Reason: f.reason, Err: fmt.Errorf("%s: %w", f.summary, err),
		Stalled: slices.Contains(untilAChange, f), Unsigned: f == notVerified}
}

// spec is the spec of a HelmChart.
type spec struct {
	kind       *Kind
	namespace  string
	name       string
	generation int64
	within     helm.Range
	memo       memo // it belongs to the worker of the source

	Chart                    string
	Version                  string
	SourceRef                struct{ Kind, Name string }
	ReconcileStrategy        string
	ValuesFiles              []string
	IgnoreMissingValuesFiles bool
	Verify                   map[string]any
}

// memo is what was found in an artifact of the source, which a look need not read again.
type memo struct {
	digest string // of that artifact; "" = none was read
	chosen helm.Version
}

// Read reads a spec.
func (k *Kind) Read(obj *unstructured.Unstructured) (controller.Spec, error) {
	s := &spec{kind: k, namespace: obj.GetNamespace(), name: obj.GetName(), generation: obj.GetGeneration()}
	err := controller.Decode(obj, s)
	if err != nil {
		return nil, err
	}
	if s.within, err = helm.ParseRange(s.Version); err != nil && s.SourceRef.Kind == kindRepository {
		return nil, noReference.of(fmt.Errorf("version '%s': %w", s.Version, err))
	}
	return s, nil
}

// Uses returns the source. What that uses is declared when it is known.
func (s *spec) Uses() []dependency.Ref { return []dependency.Ref{s.ref()} }

func (s *spec) ref() dependency.Ref {
	return dependency.Ref{Kind: s.SourceRef.Kind, Namespace: s.namespace, Name: s.SourceRef.Name}
}

// Host returns the host of the Helm repository, "" where there is none.
func (s *spec) Host() string {
	if s.SourceRef.Kind == kindRepository {
		if obj, _ := s.kind.o.Sources.Get(kindRepository, s.namespace, s.SourceRef.Name); obj != nil {
			r, _ := helmrepository.Parse(obj)
			return r.Host()
		}
	}
	return ""
}

// Open begins a reconcile.
func (s *spec) Open(v controller.Visit) controller.Upstream { return &upstream{spec: s, visit: v} }

// upstream is a HelmChart in one reconcile.
type upstream struct {
	controller.Plain
	spec   *spec
	visit  controller.Visit
	source artifact.Artifact // of the source
	origin origin

	chosen   helm.Version
	revision string
	brought  brought
	used     []string // values files that are in the artifact
	packed   bool
}

// Require finds the source, and its artifact where it has one.
func (u *upstream) Require(ctx context.Context) (err error) {
	u.origin, err = u.open(ctx)
	return err
}

// Look asks the origin for the newest version.
func (u *upstream) Look(ctx context.Context) (found controller.Found, err error) {
	if u.chosen, err = u.origin.look(ctx); err != nil {
		return found, err
	}
	u.revision = u.chosen.Version
	if metadata := u.metadata(); metadata != "" {
		version, err := semver.NewVersion(u.revision)
		if err != nil {
			return found, noMetadata.of(err)
		}
		with, err := version.SetMetadata(metadata)
		if err != nil {
			return found, noMetadata.of(err)
		}
		u.revision = with.String()
	}
	found = controller.Found{Revision: u.revision, Checksum: u.checksum()}
	observed, _, _ := unstructured.NestedString(u.visit.Object.Object, "status", fieldSource)
	found.Newer = observed != u.source.Revision
	if wrong(u.chosen.Digest, u.visit.Stored.Metadata[metaPublished]) {
		found.Note = "its digest is not that of the index, which an annotation accepts"
	}
	return found, nil
}

// metadata returns what a version has behind its "+": the revision of the source, the generation of
// the values.
func (u *upstream) metadata() string {
	const short = 12
	var parts []string
	if s := u.spec; s.ReconcileStrategy == "Revision" && s.SourceRef.Kind != kindRepository {
		revision := artifact.Commit(u.source.Revision)
		parts = append(parts, revision[:min(short, len(revision))])
	}
	if u.merges() {
		parts = append(parts, strconv.FormatInt(u.spec.generation, 10))
	}
	return strings.Join(parts, ".")
}

// merges reports whether the values are others than those of the chart.
func (u *upstream) merges() bool {
	return len(u.spec.ValuesFiles) > 0 && !slices.Equal(u.spec.ValuesFiles, valuesOfChart)
}

// checksum hashes all that the artifact is made of besides its revision.
func (u *upstream) checksum() string {
	s := u.spec
	return controller.Checksum(archive.Version, s.SourceRef, s.Chart, s.ValuesFiles, s.IgnoreMissingValuesFiles,
		u.chosen.Name, u.chosen.Digest)
}

// Fetch brings the chart to this host.
func (u *upstream) Fetch(ctx context.Context) (received int64, err error) {
	u.brought, received, err = u.origin.fetch(ctx)
	return received, err
}

// Event returns the message of an event.
func (*upstream) Event(a artifact.Artifact, _ bool) string { return a.Subject }

// Signatures returns those of a registry.
func (u *upstream) Signatures() (demanded bool, verified string) { return u.origin.signatures() }

// Fields of the status.
const (
	fieldSource = "observedSourceArtifactRevision"
	fieldValues = "observedValuesFiles"
)

// Fields returns what the artifact was made of.
func (u *upstream) Fields(func(artifact.Artifact) map[string]any) map[string]any {
	out := map[string]any{"observedChartName": u.chosen.Name, fieldSource: nil}
	if u.source.Revision != "" {
		out[fieldSource] = u.source.Revision
	}
	if u.packed {
		out[fieldValues] = nil
	}
	if u.packed && u.spec.IgnoreMissingValuesFiles && len(u.used) > 0 {
		names := make([]any, len(u.used))
		for i, name := range u.used {
			names[i] = name
		}
		out[fieldValues] = names
	}
	return out
}
