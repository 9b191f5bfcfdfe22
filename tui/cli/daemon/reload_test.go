package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// TestReloadOfServer: the token of a new server is not sent to the old one, also after a second
// reload.
func TestReloadOfServer(t *testing.T) {
	t.Parallel()
	sent := map[string]bool{}
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent[r.Header.Get("Authorization")] = true
		w.WriteHeader(http.StatusNotFound)
	}))
	defer old.Close()
	s := newSite(t)
	path := filepath.Join(s.Dir, "config.yaml")
	s.Env["LIMPET_CONFIG"] = path
	configure := func(server, token string) {
		if err := os.WriteFile(path, fmt.Appendf(nil, "provisioning-server-url: %s\ntoken: %s\n", server, token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(old.URL, "canary-old")
	streams := command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Lookup: s.Lookup}
	e, call, err := command.Parse(streams, newTree)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	e.Invocation = new(command.Invocation)
	e.Log = slog.New(slog.NewTextHandler(&log, nil))
	store, _, err := state.Open(t.Context(), state.Options{Path: s.Env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	cfg, err := e.AgentConfig(store, s.Env["LIMPET_STATE"], e.Log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := &reloader{e: e, path: s.Env["LIMPET_STATE"], running: settings(e, call)}
	for _, c := range []struct{ server, token, restart string }{
		{"http://127.0.0.1:1", "canary-new", "[provisioning-server-url token]"},
		{"http://127.0.0.1:1", "canary-new", "[provisioning-server-url token]"},
		{old.URL, "canary-newer", "[]"},
	} {
		configure(c.server, c.token)
		log.Reset()
		r.reload(a)
		_, _ = a.API.Resource(api.Repositories).Namespace("default").Get(t.Context(), "x", metav1.GetOptions{})
		if !strings.Contains(log.String(), "needs_restart="+c.restart) && !strings.Contains(log.String(), `needs_restart="`+c.restart) {
			t.Errorf("%s: %s", c.server, log.String())
		}
	}
	if len(sent) != 2 || !sent["Bearer canary-old"] || !sent["Bearer canary-newer"] {
		t.Errorf("%v", sent)
	}
}
