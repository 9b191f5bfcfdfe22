package cli

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestDaemonIsToldToEndBeforeItBegins: SIGTERM is no failure, however early it
// comes; --timeout is one.
func TestDaemonIsToldToEndBeforeItBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cause error
		code  int
	}{
		{"SIGTERM", signalled{syscall.SIGTERM}, ExitOK},
		{"timeout", timedOut{time.Second}, ExitTimeout},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(c.cause)
		var out, errs bytes.Buffer
		s := newSite(t)
		s.must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
		// The file was left by a process that had no time to close it, so that it
		// is looked through first.
		if err := os.WriteFile(s.env["LIMPET_STATE"]+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		err := execute(ctx, []string{"--daemon"}, s.world("", &out, &errs), func() {})
		if code := report(&errs, err); code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s", c.name, code, c.code, errs.String())
		}
	}
}
