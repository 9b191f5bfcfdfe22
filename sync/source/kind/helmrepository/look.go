package helmrepository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"limpet/sync/auth"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

// Members of the metadata of an artifact: the validators of a conditional request, so that a
// restart does not read the index again.
const (
	metaETag     = "limpet/etag"
	metaModified = "limpet/last-modified"
)

// validators are what a server has said of a revision, for the next request.
type validators struct{ revision, etag, modified string }

func (v validators) header() http.Header {
	h := http.Header{}
	for name, value := range map[string]string{"If-None-Match": v.etag, "If-Modified-Since": v.modified} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return h
}

func (v validators) metadata() map[string]string {
	return map[string]string{metaETag: v.etag, metaModified: v.modified}
}

// Look asks for the index. The one that is stored costs an answer without a body.
func (u *upstream) Look(ctx context.Context) (controller.Found, error) {
	s, stored := u.spec, u.visit.Stored
	if s.last.revision != stored.Revision {
		s.last = validators{stored.Revision, stored.Metadata[metaETag], stored.Metadata[metaModified]}
	}
	if stored.Checksum != u.checksum() {
		s.last = validators{}
	}
	resp, err := s.kind.o.Client.Get(ctx, s.Repository, s.index, s.last.header())
	if err != nil {
		reason := reasonFailed
		if errors.As(err, new(*LoginError)) {
			reason = auth.ReasonAuthentication
		}
		return controller.Found{}, controller.Failed(reason, "failed to fetch Helm repository index: %w", err)
	}
	defer resp.Body.Close()
	found := controller.Found{Revision: stored.Revision, Checksum: u.checksum(), Cache: "cache_hit"}
	if resp.StatusCode == http.StatusNotModified && stored.Revision != "" {
		return found, nil
	}
	if found.Revision, err = u.receive(resp.Body); err != nil {
		return controller.Found{}, controller.Failed(reasonFailed, "failed to fetch Helm repository index: %w", err)
	}
	u.answer = validators{found.Revision, resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")}
	if found.Revision == stored.Revision {
		s.last = u.answer
		err = os.Remove(u.file)
	}
	found.Cache = "cache_miss"
	return found, err
}

// receive writes an index to its file and returns its revision.
func (u *upstream) receive(body io.Reader) (revision string, err error) {
	dir := u.spec.kind.o.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	u.file = filepath.Join(dir, "index_"+u.visit.Key.Namespace+"_"+u.visit.Key.Name) // no name has a "_"
	f, err := os.OpenFile(u.file, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	most := u.spec.kind.o.MaxBytes
	u.size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, most+1))
	if err == nil && u.size > most {
		err = fmt.Errorf("the index has more than %s, the limit (--helm-index-max-size)", text.Size(most))
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(u.file))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
