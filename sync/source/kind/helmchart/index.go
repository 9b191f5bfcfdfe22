package helmchart

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/source/helm"
	"limpet/sync/source/kind/helmrepository"
	"limpet/sync/text"
)

// index is a Helm repository with an index, which is the artifact of its source.
type index struct {
	unsigned
	u          *upstream
	repository helmrepository.Repository
}

// look chooses among the versions of the index.
func (i *index) look(ctx context.Context) (helm.Version, error) {
	s, source := i.u.spec, i.u.source
	if s.memo.digest == source.Digest {
		return s.memo.chosen, nil
	}
	f, err := s.kind.o.Artifacts.OpenFile(ctx, source)
	if err != nil {
		return helm.Version{}, fmt.Errorf("open index: %w", err)
	}
	defer f.Close()
	all, err := helm.Versions(f, s.Chart)
	chosen, ok := s.within.Choose(all)
	if err == nil && !ok {
		err = fmt.Errorf("no '%s' chart with version matching '%s' found", s.Chart, s.within)
	}
	if err != nil {
		return helm.Version{}, noReference.of(fmt.Errorf("failed to get chart version for remote reference: %w", err))
	}
	s.memo = memo{source.Digest, chosen}
	return chosen, nil
}

// fetch downloads the packed chart.
func (i *index) fetch(ctx context.Context) (b brought, received int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout(i.repository))
	defer cancel()
	b, err = i.download(ctx)
	_, b.digest, _ = strings.Cut(b.made.Digest, ":")
	if err == nil {
		err = i.check(b.digest)
	}
	if err == nil {
		err = b.open(i.u.chosen)
	}
	received = b.made.Size
	if errors.As(err, new(*helmrepository.LoginError)) {
		f := noPull.of(fmt.Errorf("failed to authenticate with the Helm repository: %w", err))
		f.Reason = auth.ReasonAuthentication
		return b, received, f
	}
	if err != nil {
		return b, received, noPull.of(fmt.Errorf("failed to download chart for remote reference: %w", err))
	}
	return b, received, nil
}

// download brings the chart from the first of its addresses.
func (i *index) download(ctx context.Context) (b brought, err error) {
	chosen := i.u.chosen
	if len(chosen.URLs) == 0 {
		return b, fmt.Errorf("chart '%s' has no downloadable URLs", chosen.Name)
	}
	at, err := i.repository.At(chosen.URLs[0])
	if err != nil {
		return b, err
	}
	resp, err := i.u.spec.kind.o.Client.Get(ctx, i.repository, at, http.Header{})
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	return i.u.receive(resp.Body)
}

// check compares a digest with that of the index.
func (i *index) check(digest string) error {
	listed := i.u.chosen.Digest
	if !wrong(listed, digest) || api.Annotation(i.u.visit.Object, api.AnnoAcceptDigest) == "true" {
		return nil
	}
	return fmt.Errorf("its digest is %s, and that of the index is %s: it is damaged, or the index is wrong; "+
		`the annotation %s: "true" accepts it`, digest, text.Line(listed, 100), api.AnnoAcceptDigest)
}

// wrong reports whether a digest is another than that of an index. Some write its algorithm.
func wrong(listed, got string) bool {
	listed = strings.TrimPrefix(strings.ToLower(listed), "sha256:")
	return listed != "" && got != "" && listed != got
}
