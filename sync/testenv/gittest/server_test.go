package gittest

import (
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestServeGit: each answer is the one of git http-backend.
func TestServeGit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	id := NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a": "1"})
	backend := &cgi.Handler{Path: Must[string](t)(Backend()), Stderr: io.Discard,
		Env: append(Quick, "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1", "HOME="+root, "GIT_CONFIG_NOSYSTEM=1")}
	list := "0014command=ls-refs\n00010000"
	want := "0011command=fetch0001000fno-progress0032want " + id + "\n0032have " + strings.Repeat("1", 40) + "\n0000" // without a pack
	for _, config := range []string{"", "uploadpack.allowFilter"} {
		if config != "" {
			Git(t, filepath.Join(root, "site.git"), nil, "config", config, "true")
		}
		for _, c := range [][]string{{"/site.git/info/refs?service=git-upload-pack"}, {"/site.git/git-upload-pack", list},
			{"/site.git/git-upload-pack", want}, {"/none.git/git-upload-pack", list}} {
			for _, version := range []string{"", "version=2"} {
				var answers [2]*httptest.ResponseRecorder
				for i := range answers {
					r := httptest.NewRequest(http.MethodGet, c[0], nil)
					if len(c) > 1 {
						r = httptest.NewRequest(http.MethodPost, c[0], strings.NewReader(c[1]))
						r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
					}
					r.Header.Set("Git-Protocol", version)
					answers[i] = httptest.NewRecorder()
					if i == 0 {
						backend.ServeHTTP(answers[i], r)
					} else {
						dir, _, _ := strings.Cut(r.URL.Path[1:], "/")
						ServeGit(backend, filepath.Join(root, dir), answers[i], r)
					}
				}
				a, b := answers[0], answers[1]
				if a.Code != b.Code || !maps.EqualFunc(a.Header(), b.Header(), slices.Equal) || a.Body.String() != b.Body.String() {
					t.Errorf("%q of %q %q: %d %v %q, want %d %v %q", c, version, config, b.Code, b.Header(), b.Body, a.Code, a.Header(), a.Body)
				}
			}
		}
	}
}
