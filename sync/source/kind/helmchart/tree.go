package helmchart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"limpet/sync/source/archive"
	"limpet/sync/source/helm"
	"limpet/sync/text"
)

// tree is the artifact of a source with files: a chart is a directory in it, or was packed by
// Helm's tools.
type tree struct {
	unsigned
	u *upstream
}

// look reads Chart.yaml.
func (t *tree) look(ctx context.Context) (helm.Version, error) {
	memo := &t.u.spec.memo
	if memo.digest == t.u.source.Digest {
		return memo.chosen, nil
	}
	c, err := t.chart(ctx)
	if err != nil {
		return helm.Version{}, noReference.of(err)
	}
	if missing := c.Missing(); missing != "" {
		return helm.Version{}, noDependency.of(fmt.Errorf("%q is not below charts/, and limpet downloads no dependencies: "+
			"add it to the source, as with helm dependency build", text.Line(missing, 100)))
	}
	memo.digest, memo.chosen = t.u.source.Digest, helm.Version{Name: c.Name, Version: c.Version}
	return memo.chosen, nil
}

// fetch opens the chart: the artifact is on this host.
func (t *tree) fetch(ctx context.Context) (b brought, received int64, err error) {
	if b.chart, err = t.chart(ctx); err != nil {
		return b, 0, noPackage.of(err)
	}
	b.values = func(paths []string) (map[string][]byte, error) { return helm.Find(t.open(ctx), "", paths) }
	return b, 0, nil
}

// open opens the artifact.
func (t *tree) open(ctx context.Context) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return t.u.spec.kind.o.Artifacts.OpenFile(ctx, t.u.source) }
}

// chart opens the chart in the artifact.
func (t *tree) chart(ctx context.Context) (*helm.Chart, error) {
	at := path.Clean(t.u.spec.Chart)
	if !filepath.IsLocal(at) {
		return nil, fmt.Errorf("%q leaves the source", text.Line(t.u.spec.Chart, 200))
	}
	if strings.HasSuffix(at, ".tgz") {
		return helm.Open(func() (io.ReadCloser, error) { return inner(t.open(ctx), at) }, "")
	}
	return helm.Open(t.open(ctx), at)
}

// inner opens a file of an archive.
func inner(open func() (io.ReadCloser, error), at string) (io.ReadCloser, error) {
	from, err := open()
	if err != nil {
		return nil, err
	}
	for f, err := range archive.Files(from) {
		if err != nil {
			return nil, errors.Join(err, from.Close())
		}
		if f.Path == at {
			return struct {
				io.Reader
				io.Closer
			}{f.Reader, from}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("there is no file %q in the source", text.Line(at, 200)), from.Close())
}
