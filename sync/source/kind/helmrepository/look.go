package helmrepository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"limpet/sync/auth"
	"limpet/sync/source/archive"
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

// validatorsOf returns those of an answer. A time of change within the second of the answer is none:
// the index may change once more in it. Source: RFC 9110, 8.8.2.2.
func validatorsOf(revision string, answer http.Header) validators {
	v := validators{revision: revision, etag: answer.Get("ETag")}
	modified, err := http.ParseTime(answer.Get("Last-Modified"))
	if at, late := http.ParseTime(answer.Get("Date")); err == nil && late == nil && at.Sub(modified) >= time.Second {
		v.modified = answer.Get("Last-Modified")
	}
	return v
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
	if err := u.receive(resp.Body); err != nil {
		return controller.Found{}, controller.Failed(reasonFailed, "failed to fetch Helm repository index: %w", err)
	}
	found.Revision, found.Cache = u.made.Digest, "cache_miss"
	u.answer = validatorsOf(found.Revision, resp.Header)
	if found.Revision == stored.Revision && found.Checksum == stored.Checksum {
		s.last = u.answer
		err = os.Remove(u.file)
	}
	return found, err
}

// receive writes an index to its file.
func (u *upstream) receive(body io.Reader) (err error) {
	o := u.spec.kind.o
	u.file = filepath.Join(o.Dir, "index_"+u.visit.Key.Namespace+"_"+u.visit.Key.Name) // no name has a "_"
	u.made, err = archive.Receive(u.file, body, o.MaxBytes)
	if err == nil && u.made.Size > o.MaxBytes {
		err = fmt.Errorf("the index has more than %s, the limit (--helm-index-max-size)", text.Size(o.MaxBytes))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(u.file))
	}
	return nil
}
