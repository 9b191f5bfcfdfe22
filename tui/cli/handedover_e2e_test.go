package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestHandedOverBySystemd: a daemon that is started with the words of its unit reads
// config and token where systemd has put them: files that nobody may write, in a
// directory that nobody may write.
func TestHandedOverBySystemd(t *testing.T) {
	t.Parallel()
	var sent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer handed-canary-token" {
			sent.Store(true)
		}
		http.Error(w, "later", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	h := newHome(t)
	config := h.file(t, "etc/config.yaml", "drivers: 7\ngit-credentials:\n- url: https://git.example.com\n  values: {token: handed-canary-git}\n")
	token := h.file(t, "etc/token", "handed-canary-token\n")
	given, kept := filepath.Join(h.dir, "credentials"), filepath.Join(h.dir, "sd")
	h.env = without(h.env, "LIMPET_STATE")
	unit := h.must(t, 0, "service", "print", "--config", config, "--token-file", token, "--provisioning-server-url", server.URL).out
	_, line, _ := strings.Cut(unit, "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	// What systemd does with the unit.
	loaded := 0
	for text := range strings.Lines(unit) {
		rest, ok := strings.CutPrefix(text, "LoadCredential=")
		if !ok {
			continue
		}
		name, path, _ := strings.Cut(strings.TrimSpace(rest), ":")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(h.file(t, "credentials/"+name, string(data)), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil { // the user of the service may not look there
			t.Fatal(err)
		}
		loaded++
	}
	if err := os.Chmod(given, 0o500); err != nil || loaded != 2 {
		t.Fatalf("%v: %d files are handed over by\n%s", err, loaded, unit)
	}
	t.Cleanup(func() { os.Chmod(given, 0o700) })
	h.env = append(h.env, "CREDENTIALS_DIRECTORY="+given, "STATE_DIRECTORY="+kept)
	words := strings.Fields(strings.NewReplacer("${CREDENTIALS_DIRECTORY}", given, "${STATE_DIRECTORY}", kept).Replace(line))[1:]
	cmd, said := h.command(context.WithoutCancel(t.Context()), t, words...), &log{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	until(t, "the token is sent", sent.Load)
	until(t, "the daemon says how many drivers it has", func() bool { return strings.Contains(said.String(), `"drivers":7`) })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "canary") {
		t.Errorf("the daemon ends with %v\n%s", err, said)
	}
	if _, err := os.Stat(filepath.Join(kept, "limpet.db")); err != nil {
		t.Error(err)
	}
}
