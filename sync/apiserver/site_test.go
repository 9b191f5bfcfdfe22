package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/state"
)

// site is a server on a state file of its own; both are checked and closed when the test ends.
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

// call sends one request and answers the code and the decoded body. A body that begins with a brace
// is JSON; another is the name of the content type, a space and the content.
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

// TestNoWayLeavesPlainText sends a secret value by every way in, also by ways
// where none belongs, and looks for it in all answers and in the state file.
func TestNoWayLeavesPlainText(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	file := repositoryJSON(`{"token":{"create":"` + canaryOne + `"}}`)
	apply := "application/apply-patch+yaml "
	beta := strings.Replace(base, "v0alpha1", "v1beta1", 1)
	for _, c := range []struct {
		name, method, path, body string
		code                     int
	}{
		{"dry run", "POST", base + "repositories?dryRun=All", file, 201},
		{"create", "POST", base + "repositories", file, 201},
		{"create again", "POST", base + "repositories", file, 409},
		{"another version", "POST", beta + "repositories", strings.NewReplacer("v0alpha1", "v1beta1", `"dashboards"`, `"beta"`, "dashboards.git", "beta.git").Replace(file),
			201},
		{"update of a stale one", "PUT", path, strings.Replace(file, `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1), 409},
		{"merge patch", "PATCH", path, `{"secure":{"token":{"create":"` + canaryOne + `"}}}`, 200},
		{"JSON patch", "PATCH", path, `application/json-patch+json [{"op":"add","path":"/secure/webhookSecret","value":{"create":"` + canaryOne +
			`"}}]`, 200},
		{"JSON patch of the member", "PATCH", path, `application/json-patch+json [{"op":"add","path":"/secure/token/create","value":"` +
			canaryOne + `"}]`, 200},
		{"apply", "PATCH", path + "?fieldManager=a&force=true", apply + file, 200},
		{"apply of an invalid one", "PATCH", path + "?fieldManager=a&force=true",
			apply + strings.Replace(file, `"branch":"main"`, `"branch":"a b"`, 1), 422},
		{"status", "PATCH", path + "/status", `{"secure":{"token":{"create":"` + canaryOne + `"}},"status":{"health":{"healthy":true}}}`, 200},
		{"apply of status", "PATCH", path + "/status?fieldManager=b&force=true",
			apply + strings.Replace(file, `"spec"`, `"status":{"health":{"healthy":true}},"spec"`, 1), 200},
		{"wrong type", "POST", base + "repositories", strings.Replace(repositoryJSON(`{"token":"`+canaryOne+`"}`), `"dashboards"`, `"wrong"`, 1),
			422},
		{"list in place of a member", "POST", base + "repositories", strings.Replace(repositoryJSON(`{"token":["`+canaryOne+`"]}`),
			`"dashboards"`, `"wrong"`, 1), 422},
		{"secure that is a text", "POST", base + "repositories", strings.Replace(repositoryJSON(`"`+canaryOne+`"`), `"dashboards"`, `"wrong"`,
			1), 422},
		{"a job with secure", "POST", base + "jobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"},
			"spec":{"action":"pull","repository":"r","pull":{}},"secure":{"token":{"create":"` + canaryOne + `"}}}`, 201},
		{"broken JSON", "POST", base + "repositories", `{"secure":{"token":{"create":"` + canaryOne + `"}}`, 400},
		{"secret of wrong form", "POST", "/api/v1/namespaces/default/secrets",
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"w"},"data":{"a":"` + canaryOne + `"}}`, 422},
		{"job by the subresource", "POST", path + "/jobs", `{"action":"pull","pull":{"incremental":"` + canaryOne + `"}}`, 422},
	} {
		rec := s.send(c.method, c.path, c.body, nil)
		if rec.Code != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, rec.Code, rec.Body, c.code)
		}
		if text := rec.Body.String() + fmt.Sprint(rec.Header()); strings.Contains(text, canaryOne) {
			t.Errorf("%s: the answer repeats the value: %s", c.name, text)
		}
	}
	s.must("DELETE", path, "")
	s.canary(canaryOne)
}

// TestSecretsInWatches: a watch shows values as a read does; of a Secret that is
// gone it shows the object without them.
func TestSecretsInWatches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	srv := httptest.NewServer(s)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/secrets?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	next := func(kind, holds string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("no %s event: %v", kind, lines.Err())
		}
		if line := lines.Text(); !strings.Contains(line, `"type":"`+kind+`"`) || !strings.Contains(line, holds) ||
			strings.Contains(line, sealedPrefix) {
			t.Errorf("event %s, want %s with %s", line, kind, holds)
		}
	}
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"x"}}`)
	next("ADDED", `"a":"eA=="`)
	s.must("PATCH", secretPath, `{"stringData":{"a":"y"}}`)
	next("MODIFIED", `"a":"eQ=="`)
	s.must("PATCH", secretPath, `application/strategic-merge-patch+json {"stringData":{"b":"z"}}`)
	next("MODIFIED", `"b":"eg=="`)
	s.must("DELETE", secretPath, "")
	next("DELETED", `"name":"s"`)
}

// TestSealedValuesUnderLoad: whatever order writers come in, the name in the
// object leads to the value that came with it, and nothing is left behind.
func TestSealedValuesUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"first"}}`))
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"w"}}`)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				s.must("PATCH", path, fmt.Sprintf(`{"spec":{"title":"t"},"secure":{"token":{"create":"w%d-%d"}}}`, w, i))
				if got := s.token(); !strings.HasPrefix(got, "w") {
					t.Errorf("token = %q", got)
				}
				s.must("PATCH", secretPath, fmt.Sprintf(`{"stringData":{"a":"w%d-%d"}}`, w, i))
				if got, ok := at(s.must("GET", secretPath, ""), "data", "a").(string); !ok || !strings.HasPrefix(got, "d") {
					t.Errorf("data.a = %q", got)
				}
			}
		})
	}
	writers.Wait()
	if names := s.sealedNames(); len(names) != 2 {
		t.Errorf("sealed values %q, want two", names)
	}
}

// The tests of this file and those around it talk to the server through its
// Transport, so that they can run in a bubble of testing/synctest.

// narrowWindow is the window of a narrowSite.
const narrowWindow = 32

// narrowSite is a site whose feeds forget quickly.
func narrowSite(t testing.TB) *site {
	t.Helper()
	s := newSite(t)
	s.feed.window = narrowWindow
	return s
}

const folderPath = "/apis/folder.grafana.app/v1/namespaces/default/folders"

// folder is a small object of a kind without rules of its own. more is added to its metadata.
func folder(name, title, more string) string {
	return fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":%q%s},"spec":{"title":%q}}`, name, more,
		title)
}

// open sends a request through the transport and answers the open response.
func (s *site) open(ctx context.Context, method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://in-process"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: s.Transport()}).Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// watched is one event of a watch.
type watched struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"object"`
}

func (w watched) String() string {
	switch w.Type {
	case "BOOKMARK":
		if w.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
			return "END"
		}
		return w.Type
	case "ERROR":
		return fmt.Sprintf("ERROR %d %s", w.Object.Code, w.Object.Reason)
	}
	return w.Type + " " + w.Object.Metadata.Name
}

// follower reads a watch.
type follower struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *site) follow(query string, header ...string) *follower {
	s.t.Helper()
	resp := s.open(s.t.Context(), http.MethodGet, folderPath+"?watch=1&"+query, "", header...)
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("watch answered %d: %s", resp.StatusCode, data)
	}
	f := &follower{t: s.t, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	f.lines.Buffer(nil, 64<<20)
	s.t.Cleanup(f.close)
	return f
}

func (f *follower) close() {
	// Nothing can be done about a body that does not close.
	_ = f.body.Close()
}

// next reads one event; ok is false at the end of the watch.
func (f *follower) next() (event watched, ok bool) {
	f.t.Helper()
	if !f.lines.Scan() {
		return event, false
	}
	if err := json.Unmarshal(f.lines.Bytes(), &event); err != nil {
		f.t.Fatalf("event %s: %v", f.lines.Bytes(), err)
	}
	return event, true
}

// sees demands the next events, as String writes them.
func (f *follower) sees(want ...string) (last watched) {
	f.t.Helper()
	for _, w := range want {
		event, ok := f.next()
		if !ok {
			f.t.Fatalf("watch ended (%v), want %s", f.lines.Err(), w)
		}
		if event.String() != w {
			f.t.Fatalf("event %s, want %s", event, w)
		}
		last = event
	}
	return last
}

// ends demands the end of the watch.
func (f *follower) ends() {
	f.t.Helper()
	if event, ok := f.next(); ok {
		f.t.Fatalf("event %s, want the end", event)
	}
}

// revisionOf is the resourceVersion of an answered object.
func revisionOf(object map[string]any) string {
	version, _ := at(object, "metadata", "resourceVersion").(string)
	return version
}

// compact returns a value as JSON.
func compact(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
