package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/tui/cli"
)

// TestAllExitCodes makes each of them happen with the built program. With -o json
// the last line of stderr is a document with the same code, and names a command.
func TestAllExitCodes(t *testing.T) {
	t.Parallel()
	known := readSchemas(t)
	h := newHome(t)
	gate := newGate(t, 2)
	h.daemon(t, "--controllers", "off")
	boards := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 2).Dir)
	for name, url := range map[string]string{"first": boards, "second": boards, "gated": gate.URL} {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch)
	}
	h.must(t, 0, "repo", "create", "off", "--url", boards, "--disabled")
	server := testenv.Start(t, testenv.Options{Deny: []string{"list jobs *"}})
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>the hotel network</html>")
	}))
	t.Cleanup(stranger.Close)
	locked := newHome(t)
	holder := locked.command(context.WithoutCancel(t.Context()), t, "api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0", "--state", locked.state())
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
	until(t, "the file is held", func() bool { return locked.owner() == holder.Process.Pid })
	remote := func(args ...string) []string {
		return append([]string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--state", filepath.Join(h.dir, "none.db")}, args...)
	}
	seen := map[int]bool{}
	for _, tt := range []struct {
		code int
		at   *home
		args []string
		try  string
	}{
		{cli.ExitOK, h, []string{"repo", "pull", "first", "--full", "--wait"}, ""},
		{cli.ExitError, h, []string{"job", "show", "nothing"}, "limpet job list"},
		{cli.ExitUsage, h, []string{"--drivers", "many", "status"}, "limpet"},
		{cli.ExitAuth, h, remote("--token", "stale", "get", "repositories"), "--token"},
		{cli.ExitAuth, h, remote("--token", server.TokenOf("guest"), "job", "list"), ""},
		{cli.ExitPartial, h, []string{"repo", "pull", "second", "--full", "--wait"}, "limpet history show "},
		{cli.ExitVersion, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", stranger.URL, "get", "jobs"}, "--provisioning-server-url"},
		{cli.ExitJobFailed, h, []string{"repo", "pull", "off", "--wait"}, "limpet history show "},
		{cli.ExitUnreachable, h, []string{"--state", filepath.Join(h.dir, "none.db"), "--provisioning-server-url", "https://127.0.0.1:1", "get", "jobs"}, "--provisioning-server-url"},
		{cli.ExitStore, locked, []string{"store", "info"}, fmt.Sprintf("wait until process %d has ended", holder.Process.Pid)},
		{cli.ExitTimeout, h, []string{"repo", "pull", "gated", "--full", "--wait", "--timeout", "1s"}, "limpet job watch gated-sync"},
	} {
		r := tt.at.run(t, append(tt.args, "-o", "json", "-q", "--log-level", "error")...)
		if r.code != tt.code {
			t.Errorf("limpet %s: exit %d, want %d\n%s%s", strings.Join(tt.args, " "), r.code, tt.code, r.out, r.err)
		}
		seen[r.code] = true
		known.says(t, r, tt.try)
	}
	// The job of the last one goes on.
	waiting := h.aside(t, "job", "watch", "gated-sync", "-o", "json", "-q")
	until(t, "somebody waits", func() bool { return h.daemonWorks(t) })
	h.must(t, 0, "job", "cancel", "gated-sync")
	r := waiting()
	seen[r.code] = true
	known.says(t, r, "limpet ")

	table := h.must(t, 0, "help", "exit-codes").out
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for code := range 11 {
		if !seen[code] {
			t.Errorf("exit code %d did not happen", code)
		}
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d  `, code)).MatchString(table) {
			t.Errorf("limpet help exit-codes does not tell of %d:\n%s", code, table)
		}
		if !strings.Contains(string(readme), fmt.Sprintf("| %d | ", code)) {
			t.Errorf("README has no row for exit code %d", code)
		}
	}
}

// says fails the test unless stderr ends with a document whose code is that of the
// process and which says what to try.
func (s schemas) says(t *testing.T, r result, try string) {
	t.Helper()
	if r.code == 0 {
		if r.err != "" {
			t.Errorf("success says %s", r.err)
		}
		return
	}
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	last := lines[len(lines)-1]
	s.keeps(t, "error", last)
	var d struct {
		Error struct {
			Code int
			Try  string
		}
	}
	if err := json.Unmarshal([]byte(last), &d); err != nil || d.Error.Code != r.code || !strings.Contains(d.Error.Try, try) || strings.Count(r.err, `"type":"error"`) != 1 {
		t.Errorf("exit %d, %v, want a try with %q: %s", r.code, err, try, r.err)
	}
}
