package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/state"
)

// site is a server on a state file of its own; both are checked and closed when
// the test ends.
type site struct {
	*Server
	t     testing.TB
	path  string
	store *state.Store
}

func newSite(t testing.TB) *site {
	t.Helper()
	return openSite(t, filepath.Join(t.TempDir(), "limpet.db"))
}

func openSite(t testing.TB, path string) *site {
	t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(store, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Server: server, t: t, path: path, store: store}
	t.Cleanup(s.close)
	return s
}

// close is idempotent.
func (s *site) close() {
	if err := s.Server.Close(); err != nil {
		s.t.Error(err)
	}
	if report, err := s.store.Check(context.Background()); err == nil && len(report.Problems) > 0 {
		s.t.Errorf("state: %s", strings.Join(report.Problems, "; "))
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
}

// call sends one request and answers the code and the decoded body. A body that
// begins with a brace is JSON; another is the name of the content type, a space
// and the content.
func (s *site) call(method, path, body string) (int, map[string]any) {
	s.t.Helper()
	rec := s.send(method, path, body, nil)
	out := map[string]any{}
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, rec.Body)
	}
	return rec.Code, out
}

func (s *site) send(method, path, body string, with func(*http.Request)) *httptest.ResponseRecorder {
	s.t.Helper()
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	if strings.HasPrefix(body, "application/") {
		contentType, body, _ = strings.Cut(body, " ")
	}
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	if with != nil {
		with(req)
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	return rec
}

// must is call for a request that has to succeed.
func (s *site) must(method, path, body string) map[string]any {
	s.t.Helper()
	code, out := s.call(method, path, body)
	if code > 299 {
		s.t.Fatalf("%s %s: %d %v", method, path, code, out["message"])
	}
	return out
}

const base = "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/"

// at reads a member by its path.
func at(object map[string]any, path ...string) any {
	var value any = object
	for _, name := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}

// sealedNames lists what is sealed for objects.
func (s *site) sealedNames() []string {
	s.t.Helper()
	names, err := s.store.SecretNames(s.t.Context(), "secure/")
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

// canary looks for a text in the whole state file, which must not be there.
func (s *site) canary(texts ...string) {
	s.t.Helper()
	var copied bytes.Buffer
	if _, err := s.store.Backup(s.t.Context(), &copied); err != nil {
		s.t.Fatal(err)
	}
	live, err := os.Open(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = live.Close() }()
	data, err := io.ReadAll(live)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, text := range texts {
		if bytes.Contains(copied.Bytes(), []byte(text)) || bytes.Contains(data, []byte(text)) {
			s.t.Errorf("%q stands in the state file", text)
		}
	}
}
