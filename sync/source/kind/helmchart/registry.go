package helmchart

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/source/controller"
	"limpet/sync/source/helm"
	"limpet/sync/source/kind/helmrepository"
)

// chartType is the layer of a chart. Source: Helm.
const chartType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// registry is a Helm repository of type oci: a chart is the layer of an OCIRepository, and is
// brought as one.
type registry struct {
	u   *upstream
	oci controller.Upstream
}

// registry returns the origin of a chart in a registry.
func (u *upstream) registry(r helmrepository.Repository) (origin, error) {
	s := u.spec
	ref := map[string]any{"semver": s.within.String()}
	if _, err := semver.StrictNewVersion(s.Version); err == nil {
		ref = map[string]any{"tag": strings.ReplaceAll(s.Version, "+", "_")}
	}
	spec := map[string]any{"url": strings.TrimSuffix(r.URL, "/") + "/" + s.Chart, "ref": ref, "insecure": r.Insecure,
		"layerSelector": map[string]any{"mediaType": chartType, "operation": "copy"}, "provider": r.Provider,
		"secretRef": map[string]any{"name": r.SecretRef.Name}, "certSecretRef": map[string]any{"name": r.CertSecretRef.Name}}
	if s.Verify != nil {
		spec["verify"] = s.Verify
	}
	read, err := s.kind.o.Registries.Read(&unstructured.Unstructured{Object: map[string]any{"spec": spec,
		"metadata": map[string]any{"namespace": s.namespace, "name": "helmchart/" + s.name}}}) // the name of no OCIRepository
	if err != nil {
		return nil, ofChart(err)
	}
	visit := u.visit
	visit.Timeout = timeout(r)
	return &registry{u, read.Open(visit)}, nil
}

// ofChart returns a failure of an OCIRepository as that of a chart.
func ofChart(err error) error {
	f, is := errors.AsType[*controller.Failure](err)
	switch {
	case !is || f.Reason == auth.ReasonAuthentication:
		return err
	case f.Condition == controller.SourceVerified:
		return notVerified.of(f.Err)
	case f.Reason == "ReadOperationFailed":
		f = noReference.of(f.Err)
		f.Stalled = false // the registry may have the version one day
		return f
	}
	return noPull.of(f.Err)
}

// look resolves the tag.
func (r *registry) look(ctx context.Context) (v helm.Version, err error) {
	if err := r.oci.Require(ctx); err != nil {
		return v, ofChart(err)
	}
	found, err := r.oci.Look(ctx)
	if err != nil {
		return v, ofChart(err)
	}
	tag, digest, _ := strings.Cut(found.Revision, "@")
	return helm.Version{Name: path.Base(r.u.spec.Chart), Version: strings.ReplaceAll(tag, "_", "+"), Digest: digest + " " + found.Checksum}, nil
}

func (r *registry) signatures() (demanded bool, verified string) { return r.oci.Signatures() }

// fetch brings the layer.
func (r *registry) fetch(ctx context.Context) (b brought, received int64, err error) {
	if received, err = r.oci.Fetch(ctx); err != nil {
		return b, received, ofChart(err)
	}
	content, err := r.oci.Pack(ctx)
	if err != nil {
		return b, received, ofChart(err)
	}
	layer := cmp.Or(content.File, content.Spent)
	f, err := os.Open(layer)
	if err != nil {
		return b, received, err
	}
	b, err = r.u.receive(f)
	err = errors.Join(err, f.Close(), os.RemoveAll(layer))
	if err == nil {
		err = b.open(r.u.chosen)
	}
	if err != nil {
		return b, received, noPull.of(err)
	}
	return b, received, nil
}
