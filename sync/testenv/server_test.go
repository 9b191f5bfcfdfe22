package testenv

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

const folders = "/apis/folder.grafana.app/v1/namespaces/default/folders"

func TestRealServesDefinitionsAndLogsRequests(t *testing.T) {
	s := Real(t)
	c := s.Client(t)
	since := s.Mark(t)
	get(t, c, s.URL+folders, http.StatusOK)
	post(t, c, s.URL+folders, `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"a"},"spec":{"title":"A"}}`,
		http.StatusCreated)
	writes := s.Writes(t, since)
	if len(writes) != 1 || writes[0].String() != "POST "+folders+" Created" || !strings.Contains(string(writes[0].Body), `"title":"A"`) {
		t.Fatalf("writes = %v", writes)
	}
	if n := len(s.Requests(t, since)); n != 2 {
		t.Fatalf("requests = %v", s.Requests(t, since))
	}
	if Real(t) != s {
		t.Fatal("a second call started a second server")
	}
}

func TestDeny(t *testing.T) {
	s := Start(t, Options{Deny: []string{"list folders denied"}})
	c := s.Client(t)
	get(t, c, s.URL+strings.Replace(folders, "default", "denied", 1), http.StatusForbidden)
	get(t, c, s.URL+folders, http.StatusOK)
}

func TestTokenExchange(t *testing.T) {
	s := Real(t)
	for _, c := range []struct {
		name, token, realms, body string
		code                      int
	}{
		{"whole", SignToken, `[{"type":"system","identifier":"system"}]`, `{"namespace":"*","audiences":["folder.grafana.app"]}`, 200},
		{"wrong token", "nope", `[{"type":"system","identifier":"system"}]`, `{"namespace":"*","audiences":["folder.grafana.app"]}`, 401},
		{"no realms", SignToken, "", `{"namespace":"*","audiences":["folder.grafana.app"]}`, 400},
		{"no audiences", SignToken, `[{"type":"system","identifier":"system"}]`, `{"namespace":"*"}`, 400},
		{"no namespace", SignToken, `[{"type":"system","identifier":"system"}]`, `{"audiences":["folder.grafana.app"]}`, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, answer := exchange(t, s, c.token, c.realms, c.body)
			if code != c.code {
				t.Fatalf("answered %d %s, want %d", code, answer, c.code)
			}
			if code != 200 {
				return
			}
			token := between(answer, `"token":"`, `"`)
			for header, want := range map[string]int{"X-Access-Token": 200, "Authorization": 200} {
				for path, want := range map[string]int{folders: want, "/apis/provisioning.grafana.app/v0alpha1/jobs": 401} {
					req := request(t, http.MethodGet, s.URL+path, "")
					req.Header.Set(header, "Bearer "+token)
					if code, answer := send(t, s.Client(t).Transport.(bearer).next, req); code != want {
						t.Errorf("%s with %s answered %d %s, want %d", path, header, code, answer, want)
					}
				}
			}
		})
	}
}

func exchange(t *testing.T, s *Server, token, realms, body string) (int, string) {
	t.Helper()
	req := request(t, http.MethodPost, s.SignURL, body)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Org-ID", "0")
	req.Header.Set("X-Realms", realms)
	return send(t, s.Client(t).Transport, req)
}

func get(t *testing.T, c *http.Client, url string, want int) string {
	t.Helper()
	code, answer := send(t, c.Transport, request(t, http.MethodGet, url, ""))
	if code != want {
		t.Fatalf("GET %s answered %d %s, want %d", url, code, answer, want)
	}
	return answer
}

func post(t *testing.T, c *http.Client, url, body string, want int) {
	t.Helper()
	if code, answer := send(t, c.Transport, request(t, http.MethodPost, url, body)); code != want {
		t.Fatalf("POST %s answered %d %s, want %d", url, code, answer, want)
	}
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func send(t *testing.T, rt http.RoundTripper, req *http.Request) (int, string) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// TestBinary is what "make full" runs first, with time for a cold compile.
func TestBinary(t *testing.T) {
	suite.Full(t)
	info, err := os.Stat(apiserver(t))
	if err != nil || info.Mode()&0o111 == 0 {
		t.Fatalf("binary %s: %v", apiserver(t), err)
	}
}
