// Package gittest is the rig of the tests of package git and of its parts: repositories
// that real git writes, servers that it serves them with, and packs made by hand.
package gittest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/giterr"
)

// Glob lists the files of dir that match pattern.
func Glob(t testing.TB, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Main runs the tests of a package and checks that they leave no goroutine behind.
func Main(m *testing.M) int {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt) // starts the goroutine that fuzzing would leave behind
	signal.Stop(interrupts)
	before := runtime.NumGoroutine()
	code := m.Run()
	if code != 0 {
		return code
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		if runtime.NumGoroutine() <= before {
			return 0
		}
		<-tick.C
	}
	buf := make([]byte, 1<<16)
	fmt.Fprintf(os.Stderr, "%d goroutines, %d before\n%s\n", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	return 1
}

// Dashboard is JSON of some size that changes in few places with v.
func Dashboard(name string, v, panels int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"uid\": %q,\n  \"title\": \"Dashboard %s\",\n  \"version\": %d,\n  \"panels\": [\n", name, name, v)
	for i := range panels {
		fmt.Fprintf(&b, "    {\"id\": %d, \"type\": \"timeseries\", \"title\": \"Panel %d of %s\", ", i, i, name)
		fmt.Fprintf(&b, "\"targets\": [{\"expr\": \"rate(x_%s_%d[5m])\"}]},\n", name, i*7919)
	}
	b.WriteString("    {\"id\": -1}\n  ]\n}\n")
	return b.String()
}

// Secret is a password that must appear nowhere; see ErrorIs.
const Secret = "s3cret/CANARY+token"

// ErrorIs checks an error's kind, that its hint and text hold what they should,
// and that nothing in it shows a secret or steers a terminal.
func ErrorIs(t *testing.T, err error, want giterr.Kind, parts ...string) *giterr.Error {
	t.Helper()
	e, ok := errors.AsType[*giterr.Error](err)
	if !ok || e.Kind != want {
		t.Fatalf("error %v (%s), want kind %s", err, giterr.KindOf(err), want)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
	for chain := error(e); chain != nil; chain = errors.Unwrap(chain) {
		for _, text := range []string{chain.Error(), fmt.Sprintf("%+v", chain), fmt.Sprintf("%#v", chain)} {
			if strings.Contains(text, "CANARY") || strings.Contains(text, Secret[:6]) {
				t.Errorf("error shows a secret: %s", text)
			}
		}
		if strings.ContainsAny(chain.Error(), "\x1b\n\r\x07") {
			t.Errorf("error holds control characters: %q", chain)
		}
	}
	return e
}

// Must fails the test at an error.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// BasicAuth is the value of an Authorization header.
func BasicAuth(user, password string) string {
	req := &http.Request{Header: http.Header{}}
	req.SetBasicAuth(user, password)
	return req.Header.Get("Authorization")
}
