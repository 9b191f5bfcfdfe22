package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/apitest"
	"limpet/tui/ptytest"
)

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries
// them, writes them, and works with them. A token that was typed is in a file of its
// own and nowhere else.
func TestSetUpOnATerminal(t *testing.T) {
	t.Parallel()
	server := apitest.Real(t)
	h := newHome(t)
	config := filepath.Join(h.dir, ".config", "limpet")
	limpetBinary(t)
	// The certificate of the test is trusted by name only; a loopback server needs
	// no more.
	tt := h.show(t, 100, 30, ptytest.Line{})
	shows := func(what string) {
		t.Helper()
		tt.Await(t, what, callTimeout, func(s string) bool { return strings.Contains(s, what) })
	}
	shows("asks three questions")
	tt.Press(t, "\r")
	shows("Where is the server?")
	tt.Press(t, "nonsense://x\r")
	shows("no address of a server")
	tt.Press(t, "\x15"+server.URL+"\r")
	shows("The path of a file with the token")
	tt.Press(t, "wrong-token\r")
	shows("Esc leads back")
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Fatalf("something was written before the person said so: %v", err)
	}
	tt.Press(t, "\x1b")
	shows("The path of a file with the token")
	tt.Press(t, "\x15"+server.Token+"\r")
	shows("y writes")
	tt.Press(t, "y")
	shows("API ok")
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
	if strings.Contains(tt.Raw(), server.Token) {
		t.Error("the token was on the screen")
	}
	tt.Press(t, "q")
	if err := tt.End(t, callTimeout); err != nil {
		t.Errorf("end: %v", err)
	}
	if out := h.must(t, 0, "config", "validate").out; !strings.Contains(out, "config.yaml") {
		t.Errorf("config validate: %s", out)
	}
}
