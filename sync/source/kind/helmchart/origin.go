package helmchart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"limpet/sync/dependency"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/helm"
	"limpet/sync/source/kind/helmrepository"
)

const kindRepository = "HelmRepository"

// originKinds are the kinds of sources in which charts are.
var originKinds = []string{kindRepository, dependency.GitRepository, "Bucket"}

// origin is where a chart comes from.
type origin interface {
	// look returns the newest version of the chart.
	look(ctx context.Context) (helm.Version, error)
	// fetch brings that version to this host. ctx ends after the chart was packed.
	fetch(ctx context.Context) (b brought, received int64, err error)
	// signatures returns whether any are demanded, and what has been verified.
	signatures() (demanded bool, verified string)
}

// unsigned is an origin that demands no signatures.
type unsigned struct{}

func (unsigned) signatures() (demanded bool, verified string) { return false, "" }

// brought is a chart that is on this host.
type brought struct {
	chart  *helm.Chart
	values func(paths []string) (map[string][]byte, error) // reads values files; those that are missing are left out
	file   string                                          // with the bytes that were published; "" = there are none
	made   archive.Digests                                 // of the file
	digest string                                          // of the file, in hex, where an index has one
}

// open finds the source, declares what it uses, and returns the origin that it is.
func (u *upstream) open(ctx context.Context) (origin, error) {
	s, o, ref := u.spec, u.spec.kind.o, u.spec.ref()
	if !slices.Contains(originKinds, ref.Kind) {
		return nil, noKind.of(fmt.Errorf("'%s', must be one of: %s, GitRepository, Bucket", ref.Kind, kindRepository))
	}
	obj, known := o.Sources.Get(ref.Kind, s.namespace, ref.Name)
	if obj == nil && !known && u.visit.Stored.Digest != "" { // after a start: the status stays as it is
		return nil, fmt.Errorf("the list of each %s is not there yet", ref.Kind)
	}
	if obj == nil {
		o.References.Observe(ref, "")
		return nil, waiting(noSource.of(fmt.Errorf("there is no %s '%s'", ref.Kind, ref.Name)))
	}
	var repository helmrepository.Repository
	if ref.Kind == kindRepository {
		var err error
		if repository, err = helmrepository.Parse(obj); err != nil {
			return nil, waiting(noSource.of(err))
		}
		self := dependency.Ref{Kind: "HelmChart", Namespace: s.namespace, Name: s.name}
		o.References.Use(self, append(repository.Uses(o.Sealed), ref)...)
		if repository.OCI() {
			return u.registry(repository)
		}
	}
	its, err := o.Artifacts.Latest(ctx, artifact.KeyOf(ref.Kind, s.namespace, ref.Name))
	if err == nil && its.UID != string(obj.GetUID()) { // of an object of that name before
		its, err = artifact.Artifact{}, artifact.ErrNotFound
	}
	o.References.Observe(ref, its.Digest) // also that there is none
	switch {
	case errors.Is(err, artifact.ErrNotFound):
		return nil, waiting(&controller.Failure{Condition: controller.FetchFailed, Reason: "NoSourceArtifact",
			Err: fmt.Errorf("no artifact available for %s source '%s'", ref.Kind, ref.Name)})
	case err != nil:
		return nil, fmt.Errorf("read index of artifacts: %w", err)
	}
	if u.source = its; ref.Kind != kindRepository {
		return &tree{u: u}, nil
	}
	if s.Verify != nil {
		return nil, notVerified.of(errors.New("not implemented: only charts of repositories of type oci have signatures"))
	}
	return &index{u: u, repository: repository}, nil
}

// waiting returns a failure that ends when another object changes.
func waiting(f *controller.Failure) error {
	f.Wait = controller.DependencyRetry
	return f
}

// timeout returns how long requests to a repository may take.
func timeout(r helmrepository.Repository) time.Duration {
	most, _ := time.ParseDuration(r.Timeout)
	return cmp.Or(most, time.Minute)
}

// receive writes a packed chart into the file of this source.
func (u *upstream) receive(body io.Reader) (b brought, err error) {
	b.file = filepath.Join(u.spec.kind.o.Dir, "chart_"+u.spec.namespace+"_"+u.spec.name) // no name of an object has a "_"
	b.made, err = archive.Receive(b.file, body, helm.MaxChart)
	if err == nil && b.made.Size > helm.MaxChart {
		err = tooLarge(u.chosen.Name)
	}
	return b, err
}

// open reads a chart that was received, and looks whether it is the one that was chosen.
func (b *brought) open(chosen helm.Version) (err error) {
	b.chart, err = helm.Open(func() (io.ReadCloser, error) { return os.Open(b.file) }, "")
	if err != nil {
		return fmt.Errorf("failed to load archive: %w", err)
	}
	b.values = b.chart.Find
	if c := b.chart; c.Name != chosen.Name || c.Version != chosen.Version {
		return fmt.Errorf("the chart says that it is %s %s, and is published as %s %s", c.Name, c.Version, chosen.Name, chosen.Version)
	}
	return nil
}
