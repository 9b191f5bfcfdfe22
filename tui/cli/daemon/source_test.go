package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/control"
	"limpet/tui/cli/command"
	"limpet/tui/screen"
)

// TestOlderDaemon: a key that only newer daemons know does no harm at an older one, and
// what it cannot do is told in words.
func TestOlderDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.sock")
	ln, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /limpet/v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(control.Hello{Version: "0.9", Protocol: control.Protocol})
	})
	asked := make(chan string, 10)
	mux.HandleFunc("/limpet/v1/", func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		http.NotFound(w, r)
	})
	old := &http.Server{Handler: mux}
	go func() { _ = old.Serve(ln) }()
	defer old.Close()
	daemon, err := control.Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	if note := versionSkew(daemon.Hello()); !strings.Contains(note, "daemon 0.9") || !strings.Contains(note, "reduced view") {
		t.Errorf("it is not told: %q", note)
	}
	s := &command.Session{Store: daemon}
	if err := perform(t.Context(), s, screen.Action{Verb: screen.Hurry}, daemon); err != nil {
		t.Errorf("R: %v", err)
	}
	if got := <-asked; got != "POST /limpet/v1/hurry" {
		t.Errorf("it was asked for %s", got)
	}
	err = perform(t.Context(), s, screen.Action{Verb: screen.Drain}, daemon)
	if !errors.Is(err, errors.ErrUnsupported) || err.Error() != "the daemon 0.9 does not know this request, which is of another version of limpet" {
		t.Errorf("drain: %v", err)
	}
	old.Close()
	if err := perform(t.Context(), s, screen.Action{Verb: screen.Hurry}, daemon); !errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("R at a daemon that is gone: %v", err)
	}
}

// TestSkew: who looks at a daemon of another version is told so.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		daemon control.Hello
		want   string
	}{
		{control.Hello{Version: command.Version, Protocol: control.Protocol}, ""},
		{control.Hello{Version: "0.9", Protocol: control.Protocol}, "daemon 0.9, this " + command.Version + ": reduced view"},
		{control.Hello{Version: command.Version, Protocol: control.Protocol + 1}, "daemon " + command.Version + ", this " + command.Version + ": reduced view"},
	} {
		if got := versionSkew(c.daemon); got != c.want {
			t.Errorf("%+v: %q, want %q", c.daemon, got, c.want)
		}
	}
}
