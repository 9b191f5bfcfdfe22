package cli

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// TestLostOutput: a reader that has gone is no news, a full disk is.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status"}, {"version"}, {"version", "-o", "json"}, {"crds"}, {"repo", "list"}, {"--help"},
		{"history", "list", "-o", "yaml"}, {"store", "info"}, {"doctor"}} {
		s := newSite(t)
		var errs bytes.Buffer
		if code := s.main(args, s.streams("", clitest.FailingWriter{Err: syscall.EPIPE}, &errs)); code != command.ExitPipe || errs.Len() > 0 {
			t.Errorf("%v into a pipe without a reader: exit %d, %s", args, code, &errs)
		}
		if code := s.main(args, s.streams("", clitest.FailingWriter{Err: syscall.ENOSPC}, &errs)); code != command.ExitError ||
			!strings.Contains(errs.String(), "write the result: no space left") {
			t.Errorf("%v onto a full disk: exit %d, %s", args, code, &errs)
		}
	}
}

// TestKeyOfAnotherCommand: a config file is valid for each command when it has a key that is a flag
// of one of them alone.
func TestKeyOfAnotherCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(s.Dir, "other.yaml")
	if err := os.WriteFile(file, []byte("follow: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"version", "status", "doctor", "config show", "job list"} {
		var out, errs bytes.Buffer
		s.main(append(strings.Fields(name), "--config", file), s.streams("", &out, &errs))
		if text := out.String() + errs.String(); strings.Contains(text, "unknown key") || out.Len() == 0 {
			t.Errorf("limpet %s: %s", name, text)
		}
	}
}

// looks are the commands that change nothing at the API or in the state file. A
// new command is either here or has the tag "writes".
var looks = []string{
	"completion", "config path", "config show", "config validate", "connection list", "connection show", "connection test", "crds",
	"dashboard", "doctor", "fleet status", "get", "history export", "history list", "history show",
	"job diff", "job list", "job logs", "job show", "job watch", "logs", "man", "manifests",
	"monitoring dashboards", "monitoring ksm", "monitoring podmonitor", "monitoring rules", "monitoring scrape", "repo diff", "repo export", "repo files", "repo list", "repo open", "repo show", "repo test",
	"repo validate",
	"service print", "source diff", "source export", "source get", "source list", "source show", "source test", "status",
	"store backup", "store check",
	"store info", "validate", "version",
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	commands, err := Commands()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		if commands[name] == slices.Contains(looks, name) {
			t.Errorf("limpet %s: the tag \"writes\" says %v, and the list of this test %v", name, commands[name], !slices.Contains(looks, name))
		}
	}
}

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
