package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/ptytest"
)

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries
// them, writes them, and works with them. A token that was typed is in a file of its
// own and nowhere else.
func TestSetUpOnATerminal(t *testing.T) {
	t.Parallel()
	server := testenv.Real(t)
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

// TestSetUpAccessible: the same three questions in words, on a terminal that can only
// print and on a pipe that brings all answers at once. Nothing is written before the
// person says so, and a token itself is never taken.
func TestSetUpAccessible(t *testing.T) {
	t.Parallel()
	server := testenv.Real(t)
	limpetBinary(t)
	fresh := func(t *testing.T) (h *home, config, good, bad string) {
		h = newHome(t)
		return h, filepath.Join(h.dir, ".config", "limpet", "config.yaml"), h.file(t, "token", server.Token+"\n"), h.file(t, "wrong", "wrong-token\n")
	}
	written := func(t *testing.T, h *home, config, token string) {
		t.Helper()
		text, err := os.ReadFile(config)
		if err != nil || !strings.Contains(string(text), server.URL) || !strings.Contains(string(text), token) || strings.Contains(string(text), server.Token) {
			t.Errorf("config file: %s, %v", text, err)
		}
		if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("config file: %v, %v", info, err)
		}
		h.must(t, 0, "config", "validate")
	}
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		h, config, good, bad := fresh(t)
		tt := h.dumb(t, "--accessible")
		says := func(typed string, texts ...string) {
			t.Helper()
			from := len(tt.screen.String())
			tt.press(t, typed)
			for _, text := range texts {
				until(t, "it says "+text, func() bool { return strings.Contains(tt.screen.String()[from:], text) })
			}
		}
		says("", "Nothing is set up yet", "The word setup asks three questions")
		says("setup\n", "1 of 3. Where is the server?")
		says("\nnonsense://x\n", "no address of a server", "1 of 3.")
		says(server.URL+"\n", "2 of 3. Who are you?")
		says("glsa_example\n", "a token that is typed would be read out", "2 of 3.")
		says(bad+"\n", "3 of 3. Trying "+server.URL, "It does not work: ", "2: write them all the same", "Type a number, or leave.")
		says("yes\n1\n", "2 of 3.")
		says(good+"\n", "3 of 3. Trying", "It works: ", "1: back to the answers")
		if _, err := os.Stat(config); !os.IsNotExist(err) {
			t.Fatalf("something was written before the person said so: %v", err)
		}
		says("2\n", "Writing "+config, "API: "+server.URL, "the API was read: what is listed is live")
		written(t, h, config, good)
		says("quit\n", "limpet: 0 working")
		if err := tt.end(t); err != nil {
			t.Errorf("end: %v", err)
		}
		readable(t, tt.screen.String())
		if strings.Contains(tt.screen.String(), server.Token) {
			t.Error("the token was read out")
		}
	})
	t.Run("pipe", func(t *testing.T) {
		t.Parallel()
		h, config, good, _ := fresh(t)
		r := h.feed(t, "setup\n"+server.URL+"\n"+good+"\n2\nstatus\nquit\n", "--accessible")
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		readable(t, r.out+r.err)
		for _, text := range []string{"1 of 3.", "2 of 3.", "3 of 3. Trying", "It works: ", "Writing " + config, "API: " + server.URL, "limpet: 0 working"} {
			if !strings.Contains(r.out, text) {
				t.Errorf("no %q in\n%s", text, r.out)
			}
		}
		written(t, h, config, good)
	})
	t.Run("an end in the middle", func(t *testing.T) {
		t.Parallel()
		h, config, good, _ := fresh(t)
		for _, answers := range []string{"setup\n", "setup\n" + server.URL + "\n", "setup\n" + server.URL + "\n" + good + "\n", "setup\n" + server.URL + "\nleave\n"} {
			if r := h.feed(t, answers, "--accessible"); r.code != 0 {
				t.Errorf("%q: exit %d: %s", answers, r.code, r.err)
			}
			if _, err := os.Stat(filepath.Dir(config)); !os.IsNotExist(err) {
				t.Fatalf("%q: something was written: %v", answers, err)
			}
		}
	})
}
