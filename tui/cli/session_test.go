package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/tui/cli/command"
)

// server is an embedded API behind a URL, with one repository of that name.
func server(t *testing.T, repository string) string {
	t.Helper()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", repository, "--url", "https://git.example.com/x.git", "--disabled")
	store, _, err := state.Open(t.Context(), state.Options{Path: s.Env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close()
		h.CloseClientConnections()
		h.Close()
		store.Close()
	})
	return h.URL
}

// TestWhoIsAsked: without a server a command asks the daemon, with one it asks
// that server, by the daemon only if the daemon works on it.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	a, b := server(t, "of-a"), server(t, "of-b")
	local, onA := newSite(t), newSite(t)
	local.Must(t, 0, "repo", "create", "local", "--url", "https://git.example.com/x.git", "--disabled")
	local.Daemon(t, nil)
	onA.Daemon(t, func(c *agent.Config) { c.API.Server = a })
	for _, tt := range []struct {
		site *site
		args []string
		want string
	}{
		{local, nil, "local"},
		{local, []string{"--provisioning-server-url", a}, "of-a"},
		{onA, nil, "of-a"},
		{onA, []string{"--provisioning-server-url", a}, "of-a"},
		{onA, []string{"--provisioning-server-url", b}, "of-b"},
	} {
		for _, call := range []string{"repo list", "get repositories"} {
			if out, _ := tt.site.Must(t, 0, append(append(strings.Fields(call), "-o", "name"), tt.args...)...); out != "repository/"+tt.want+"\n" {
				t.Errorf("%s %v: %s", call, tt.args, out)
			}
		}
	}
	// Another state file in the same directory is another site.
	copied := filepath.Join(filepath.Dir(local.Env["LIMPET_STATE"]), "copy.db")
	local.Must(t, 0, "store", "backup", copied)
	local.Must(t, 0, "delete", "repository", "local")
	if out, _ := local.Must(t, 0, "--state", copied, "repo", "list", "-o", "name"); out != "repository/local\n" {
		t.Errorf("the copy: %s", out)
	}
	if out, _ := local.Must(t, 0, "repo", "list", "-o", "name"); out != "" {
		t.Errorf("the file itself: %s", out)
	}
}

// TestDaemonWhoseServerIsAway: a command says so and ends with the code for it.
// The list of jobs, which has none here, shows what the daemon knows.
func TestDaemonWhoseServerIsAway(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	s := newSite(t)
	s.Daemon(t, func(c *agent.Config) { c.API.Server = away.URL })
	for _, args := range [][]string{{"repo", "list"}, {"job", "list"}, {"repo", "pull", "x"}, {"get", "jobs", "x"}} {
		code, out, errs := s.Call(args...)
		if code != command.ExitUnreachable || strings.Count(out, "\n") > strings.Count(strings.Join(args, " "), "job list") ||
			!strings.Contains(errs, "refused") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	if out, _ := s.Must(t, 0, "history", "list", "-o", "name"); out != "" {
		t.Errorf("the history is on this host: %s", out)
	}
}

func TestApplyPrintsOneDocument(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	objects := "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: v}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"
	for i, format := range []string{"table", "name", "json", "yaml"} {
		var out, errs bytes.Buffer
		if code := s.main([]string{"apply", "-f", "-", "-o", format}, s.world(objects, &out, &errs)); code != 0 {
			t.Fatalf("-o %s: exit %d: %s", format, code, &errs)
		}
		verb := [...]string{" created", "", "", ""}[i]
		switch format {
		case "table", "name":
			if want := fmt.Sprintf("secret/a%s\nsecret/b%s\n", verb, verb); out.String() != want {
				t.Errorf("-o %s: %q, want %q", format, &out, want)
			}
		case "json":
			if !strings.HasPrefix(out.String(), "{\n  \"items\": [") || strings.Contains(out.String(), "managedFields") {
				t.Errorf("-o json: %s", &out)
			}
		case "yaml":
			if !strings.HasPrefix(out.String(), "items:\n- apiVersion: v1\n") {
				t.Errorf("-o yaml: %s", &out)
			}
		}
	}
}

// TestJobThatNobodyTakes: who waits for it is told why, and so is who asks.
func TestJobThatNobodyTakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Daemon(t, func(c *agent.Config) { c.Controllers = "off" })
	s.Must(t, 0, "repo", "create", "out", "--url", "https://git.example.com/x.git", "--sink-dir", "/nowhere/out")
	s.Must(t, 0, "repo", "pull", "out")
	_, errs := s.Must(t, command.ExitTimeout, "job", "watch", "out-sync", "--timeout", "5s")
	if !strings.Contains(errs, "out-sync is left alone: ") || strings.Count(errs, "left alone") != 1 || !strings.Contains(errs, "sink") {
		t.Errorf("who waits is told: %s", errs)
	}
	if out, _ := s.Must(t, command.ExitError, "status"); !strings.Contains(out, "job out-sync waits: ") {
		t.Errorf("who asks is told: %s", out)
	}
}
