package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
)

// TestHailWaitsForAStart: a command that is called while an agent starts finds it, and
// one that is called when the agent should have its socket for long does not wait.
func TestHailWaitsForAStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	at := agent.SocketPath(path)
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: Version, Socket: at})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	asked := time.Now()
	if _, err := Attach(ctx, path); err == nil || time.Since(asked) >= startTimeout {
		t.Errorf("nobody waits for the answer: %v after %s", err, time.Since(asked))
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /limpet/v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(control.Hello{Version: Version, Protocol: control.Protocol})
	})
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		ln, err := control.Listen(at)
		if err == nil {
			err = server.Serve(ln)
		}
		served <- err
	})
	daemon, err := Attach(t.Context(), path)
	if err != nil {
		t.Errorf("while it starts: %v", err)
	} else {
		daemon.Close()
	}
	server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}

	for name, since := range map[string]time.Time{"long ago": time.Now().Add(-time.Hour), "later": time.Now().Add(time.Hour)} {
		note, err := os.ReadFile(path + ".owner")
		if err != nil {
			t.Fatal(err)
		}
		var owner map[string]any
		if err := json.Unmarshal(note, &owner); err != nil {
			t.Fatal(err)
		}
		owner["since"] = since
		if note, err = json.Marshal(owner); err == nil {
			err = os.WriteFile(path+".owner", bytes.TrimSpace(note), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := Attach(t.Context(), path); !errors.As(err, new(*UnresponsiveError)) || time.Since(began) > startTimeout {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
	}
}

// TestAwaitStop: an agent that stops holds the file for a moment longer than its socket, one that
// hangs keeps it.
func TestAwaitStop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: Version, Socket: agent.SocketPath(path)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := AwaitStop(t.Context(), path, os.Getpid()+1); err != nil {
		t.Errorf("another one holds the file: %v", err)
	}
	hangs, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := AwaitStop(hangs, path, os.Getpid()); !errors.As(err, new(*UnresponsiveError)) {
		t.Errorf("it hangs: %v", err)
	}
	closed := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { closed <- store.Close() })
	if err := AwaitStop(t.Context(), path, os.Getpid()); err != nil {
		t.Errorf("it stops: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
