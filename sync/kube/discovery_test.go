package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/api"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestCheck(t *testing.T) {
	groups := `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"provisioning.grafana.app","versions":[{"groupVersion":"provisioning.grafana.app/v0alpha1","version":"v0alpha1"}],"preferredVersion":{"groupVersion":"provisioning.grafana.app/v0alpha1","version":"v0alpha1"}}]}`
	deny := func(code int, reason string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	for name, tc := range map[string]struct {
		apis func(http.ResponseWriter, *http.Request)
		want string // part of the error; "" = none
		hint string
	}{
		"an API":           {reply(200, jsonType, groups), "", ""},
		"a web page":       {reply(200, "text/html; charset=utf-8", "<html>Sign in</html>"), "got an HTML page", "APIGroupList"},
		"a page as text":   {reply(200, "text/plain", "<!doctype html>"), "got an HTML page", "APIGroupList"},
		"other JSON":       {reply(200, jsonType, `{"database":"ok"}`), "no discovery answer", "--provisioning-server-url"},
		"other kind":       {reply(200, jsonType, `{"kind":"Pod"}`), "no discovery answer", "--provisioning-server-url"},
		"text":             {reply(200, "text/plain", "hello"), "no discovery answer", "--provisioning-server-url"},
		"nothing":          {reply(200, jsonType, ""), "no discovery answer", "--provisioning-server-url"},
		"404":              {reply(404, "text/html", "<html>"), "got status 404", "--provisioning-server-url"},
		"401":              {reply(401, jsonType, deny(401, "Unauthorized")), "", "--token"},
		"401 without body": {reply(401, "text/plain", ""), "", "--token"},
		"403":              {reply(403, jsonType, deny(403, "Forbidden")), "", "--namespace"},
		"503":              {reply(503, "text/plain", "starting"), "", "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/sub/apis", tc.apis)
			server := httptest.NewServer(mux)
			defer server.Close()
			err := connect(t, Config{Server: server.URL + "/sub/apis"}).Check(t.Context())
			if name == "an API" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var stranger *NotKubernetesError
			if err == nil || errors.As(err, &stranger) != (tc.want != "") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v", err)
			}
			if hint := Hint(err); !strings.Contains(hint, tc.hint) {
				t.Errorf("hint %q for %v", hint, err)
			}
		})
	}
}

func TestCheckUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	plain := httptest.NewServer(okHandler)
	defer plain.Close()
	listener.Close()
	for server, hint := range map[string]string{
		"http://" + address: "check the port",
		"https://" + strings.TrimPrefix(plain.URL, "http://"): "not a TLS server",
	} {
		err := connect(t, Config{Server: server, Logger: slog.New(slog.DiscardHandler)}).Check(t.Context())
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Server != server || !strings.Contains(Hint(err), hint) {
			t.Errorf("%s: %v, hint %q", server, err, Hint(err))
		}
	}
}

func TestPreferred(t *testing.T) {
	version := "v1beta1"
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/dashboard.grafana.app", func(w http.ResponseWriter, r *http.Request) {
		asked++
		reply(200, jsonType, `{"kind":"APIGroup","name":"dashboard.grafana.app","preferredVersion":{"version":"`+version+`"}}`)(w, r)
	})
	mux.HandleFunc("/apis/odd.test", reply(200, jsonType, `{"kind":"Thing"}`))
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{Transport: &wire{handler: mux}, Logger: slog.New(slog.DiscardHandler)})
		want := func(version string, times int) {
			t.Helper()
			if got, err := c.PreferredVersion(t.Context(), api.DashboardGroup); err != nil || got != version || asked != times {
				t.Errorf("version %s, %v, asked %d times; want %s, %d", got, err, asked, version, times)
			}
		}
		want("v1beta1", 1)
		version = "v2"
		pass(discoveredFor - time.Second)
		want("v1beta1", 1)
		pass(time.Second)
		want("v2", 2)
		if _, err := c.PreferredVersion(t.Context(), "none.test"); !apierrors.IsNotFound(err) {
			t.Errorf("a group that is not served: %v", err)
		}
		var stranger *NotKubernetesError
		if _, err := c.PreferredVersion(t.Context(), "odd.test"); !errors.As(err, &stranger) {
			t.Errorf("an odd answer: %v", err)
		}
	})
}

// TestServes: what the server serves is asked once in a minute, and again after an answer that was
// none.
func TestServes(t *testing.T) {
	list := func(names string) string {
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"provisioning.grafana.app/v0alpha1","resources":[{"name":"repositories"}` + names + `]}`
	}
	var answer atomic.Pointer[http.HandlerFunc]
	var asked atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/provisioning.grafana.app/v0alpha1" {
			t.Errorf("%s", r.URL.Path)
		}
		asked.Add(1)
		(*answer.Load())(w, r)
	})
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{Server: "http://api", Transport: &wire{handler: handler}})
		for n, step := range []struct {
			later  time.Duration
			code   int
			kind   string
			body   string
			serves bool
			asked  int64 // in all
			fails  bool
		}{
			{code: 404, kind: jsonType, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, asked: 1},
			{code: 403, kind: jsonType, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, asked: 2,
				fails: true},
			{code: 200, kind: "text/html", body: "<html>", asked: 3, fails: true},
			{code: 200, kind: jsonType, body: list(""), asked: 4},
			{code: 200, kind: jsonType, body: list(`,{"name":"repositories/webhook"}`), asked: 4},
			{later: 59 * time.Second, asked: 4},
			{later: time.Second, serves: true, asked: 5},
			{code: 200, kind: jsonType, body: list(""), serves: true, asked: 5},
			{later: time.Minute, asked: 6},
		} {
			time.Sleep(step.later)
			if step.code != 0 {
				h := http.HandlerFunc(reply(step.code, step.kind, step.body))
				answer.Store(&h)
			}
			got, err := c.Serves(t.Context(), api.Repositories.GroupVersion(), "repositories/webhook")
			if got != step.serves || (err != nil) != step.fails || asked.Load() != step.asked {
				t.Errorf("step %d: %v %v, asked %d times", n, got, err, asked.Load())
			}
		}
	})
}

// TestKind: a kind has the plural name and the version of the first version that has it, in the
// order of the server. What is missing is asked again after a minute, and not before.
func TestKind(t *testing.T) {
	group := `{"kind":"APIGroup","preferredVersion":{"version":"v1"},"versions":[{"version":"v0alpha1"},{"version":"v2"},{"version":"v1"}]}`
	v2 := atomic.Pointer[string]{}
	mux := http.NewServeMux()
	list := func(entries string) *string { return new(`{"kind":"APIResourceList","resources":[` + entries + `]}`) }
	v2.Store(list(""))
	var asked atomic.Int64
	for path, answer := range map[string]func() string{
		"/apis/dashboard.grafana.app": func() string { return group },
		"/apis/dashboard.grafana.app/v1": func() string {
			return *list(`{"name":"dashboards/status","kind":"Dashboard","namespaced":true},{"name":"dashboards","kind":"Dashboard","namespaced":true}`)
		},
		"/apis/dashboard.grafana.app/v0alpha1": func() string { return *list(`{"name":"librarypanels","kind":"LibraryPanel","namespaced":true}`) },
		"/apis/dashboard.grafana.app/v2":       func() string { return *v2.Load() },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			reply(200, jsonType, answer())(w, r)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, Config{Transport: &wire{handler: mux}, Logger: slog.New(slog.DiscardHandler)})
		want := func(group, kind, want string, times int64) {
			t.Helper()
			resource, version, err := c.Kind(t.Context(), group, kind)
			if got := resource + " " + version; err != nil || got != want || asked.Load() != times {
				t.Errorf("%s: %q, %v, asked %d times; want %q, %d", kind, got, err, asked.Load(), want, times)
			}
		}
		want("dashboard.grafana.app", "Dashboard", "dashboards v1", 2)
		want("dashboard.grafana.app", "LibraryPanel", "librarypanels v0alpha1", 4)
		want("dashboard.grafana.app", "Boat", " ", 7)
		v2.Store(list(`{"name":"boats","kind":"Boat"}`))
		want("dashboard.grafana.app", "Boat", " ", 7)
		time.Sleep(discoveredFor)
		want("dashboard.grafana.app", "Boat", " ", 11) // in no namespace
		v2.Store(list(`{"name":"boats","kind":"Boat","namespaced":true}`))
		time.Sleep(discoveredFor)
		want("dashboard.grafana.app", "Boat", "boats v2", 15)
		want("none.test", "Boat", " ", 15)
	})
}
