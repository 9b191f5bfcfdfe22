package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestDashboardFinishesFirst: a person who quits while a job runs in the process may
// have it finish first; the dashboard ends by itself when the job has ended.
func TestDashboardFinishesFirst(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	url, answer := hangingHost(t)
	h.must(t, 0, "repo", "create", "boards", "--url", url+"/boards.git")
	h.must(t, 0, "job", "create", "boards")
	tt := h.terminal(t)
	tt.showsNow(t, "1 working")
	tt.Press(t, "q")
	tt.showsNow(t, "Finish first")
	tt.Press(t, "\r") // decides nothing
	tt.Press(t, "f")
	tt.showsNow(t, "draining")
	answer()
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries them, writes them after a yes, and
// works with them. A token that was typed is in a file of its own and nowhere else.
func TestSetUpOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Real(t)
	h := newHome(t)
	config := filepath.Join(h.dir, ".config", "limpet")
	tt := h.terminal(t)
	tt.showsNow(t, "--kubeconfig")
	tt.Press(t, "\r")
	tt.showsNow(t, "Address of")
	tt.Press(t, "nonsense://x\r")
	tt.Press(t, "x\r")
	tt.showsNow(t, "no address")
	tt.Press(t, server.URL+"\rwrong-token\r")
	tt.showsNow(t, "[y/N]")
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Fatalf("something was written before the person said so: %v", err)
	}
	tt.Press(t, "n\r"+server.URL+"\r"+server.Token+"\r")
	tt.Await(t, "the question again", callTimeout, func(screen string) bool { return strings.Count(screen, "[y/N]") == 2 })
	tt.Press(t, "y\r")
	tt.showsNow(t, "API ok")
	token, err := os.ReadFile(filepath.Join(config, "token"))
	if err != nil || strings.TrimSpace(string(token)) != server.Token {
		t.Errorf("token file: %q, %v", token, err)
	}
	written, err := os.ReadFile(filepath.Join(config, "config.yaml"))
	if err != nil || strings.Contains(string(written), server.Token) || !strings.Contains(string(written), server.URL) {
		t.Errorf("config file: %s, %v", written, err)
	}
	for _, name := range []string{"token", "config.yaml"} {
		if info, err := os.Stat(filepath.Join(config, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 || strings.Contains(tt.Raw(), server.Token) {
		t.Errorf("exit %d, or the token was on the screen", code)
	}
	h.must(t, 0, "config", "validate")
}
