package artifact

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Times of a download.
const (
	leastTime  = time.Minute // that each may take
	leastSpeed = 16 << 10    // bytes a second, beyond that
)

// TimeFor returns how long a client may take for so many bytes.
func TimeFor(size int64) time.Duration { return leastTime + time.Duration(size/leastSpeed)*time.Second }

// Handler serves each artifact at its path, and as /KIND/NAMESPACE/NAME/KEY.tar.gz for all keys of
// Find; a slash in a key is escaped. Nothing is listed. token returns what a client has to send as bearer
// token; nil lets everyone in.
func (s *Store) Handler(token func() (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
			return
		}
		if !authorized(r, token) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		a, err := s.find(r)
		if err == nil {
			err = s.serve(w, r, a)
		}
		_, corrupt := errors.AsType[*CorruptError](err)
		switch {
		case err == nil:
		case errors.Is(err, ErrNotFound), corrupt:
			http.Error(w, "there is no such artifact", http.StatusNotFound)
		default:
			s.o.Logger.Warn("serve artifact", "path", r.URL.Path, "err", err)
			http.Error(w, "the artifact cannot be read", http.StatusServiceUnavailable)
		}
	})
}

func authorized(r *http.Request, token func() (string, error)) bool {
	if token == nil {
		return true
	}
	want, err := token()
	if err != nil || want == "" {
		return false
	}
	scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(strings.TrimSpace(got)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// find returns the artifact that a request is for.
func (s *Store) find(r *http.Request) (Artifact, error) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	if len(parts) != 5 || parts[0] != "" {
		return Artifact{}, ErrNotFound
	}
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return Artifact{}, ErrNotFound
		}
	}
	of := Key{Kind: parts[1], Namespace: parts[2], Name: parts[3]}
	if _, err := s.dir(of); err != nil {
		return Artifact{}, ErrNotFound
	}
	list, err := s.List(r.Context(), of)
	if err != nil {
		return Artifact{}, err
	}
	at := strings.Join(parts[1:], "/")
	if i := slices.IndexFunc(list, func(a Artifact) bool { return a.Path == at }); i >= 0 {
		return list[i], nil
	}
	key, ok := strings.CutSuffix(parts[4], suffix)
	if !ok {
		return Artifact{}, ErrNotFound
	}
	return Choose(list, key)
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request, a Artifact) error {
	f, err := s.OpenFile(context.WithoutCancel(r.Context()), a) // a client that gives up does not waste what was verified
	if err != nil {
		return err
	}
	defer f.Close()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(TimeFor(a.Size)))
	h := w.Header()
	h.Set("Content-Type", "application/gzip")
	h.Set("ETag", `"`+a.Digest+`"`)
	h.Set("Cache-Control", "no-cache") // most keys get other bytes one day
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Limpet-Revision", url.PathEscape(a.Revision))
	http.ServeContent(w, r, "", a.Updated, f)
	return nil
}
