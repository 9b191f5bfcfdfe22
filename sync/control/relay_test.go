package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// relayOf is the variable that makes this binary a relay of a socket.
const relayOf = "LIMPET_TEST_RELAY"

// ranRelay is a relay of the socket of relayOf, and reports whether there is one.
func ranRelay() bool {
	path := os.Getenv(relayOf)
	if path == "" {
		return false
	}
	conn, err := Dial(context.Background(), path)
	if err == nil {
		err = Relay(conn, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "limpet:", err, "\n  try: limpet --daemon")
		os.Exit(8)
	}
	return true
}

// stubSSH puts a program in the place of ssh: a script that gets its arguments.
func stubSSH(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestRelay: all calls and the stream of snapshots go over one connection, whatever the shell of
// the host prints before; closing the client ends ssh.
func TestRelay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limpet.sock")
	starts := filepath.Join(t.TempDir(), "starts")
	a := newFakeAgent()
	serveAgent(t, path, a, nil, testHello())
	stubSSH(t, fmt.Sprintf(`echo "$@" >> %s; echo Welcome; printf "Last login: today"; %s=%s exec %s`, starts, relayOf, path, os.Args[0]))
	host := NewHost("ops@site-7", "/opt/my limpet", "/srv/x.db")
	client, err := AttachBy(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	snapshots := client.Watch(t.Context())
	if _, err := snapshots.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	if _, err := client.Snapshot(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the end: %v", err)
	}
	data, err := os.ReadFile(starts)
	want := "-T -x -a -o BatchMode=yes -o ConnectTimeout=15 -- ops@site-7 '/opt/my limpet' --state /srv/x.db relay\n"
	if err != nil || string(data) != want { // it was started once
		t.Errorf("%v %q", err, data)
	}
}

// TestRelayFails: a host that refuses, has no limpet or no agent, says something else or hangs is
// an error with its reason, in time, and leaves no process.
func TestRelayFails(t *testing.T) {
	for name, test := range map[string]struct{ script, want string }{
		"refuses":   {`echo "debug" >&2; echo "ops@site-7: Permission denied (publickey)." >&2; exit 255`, "Permission denied (publickey)."},
		"no limpet": {`echo "sh: 1: limpet: not found" >&2; exit 127`, "limpet: not found"},
		"no agent":  {relayOf + `=/none/limpet.sock exec ` + os.Args[0], "lstat /none/limpet.sock: no such file or directory"},
		"silent":    {`exit 3`, "exit status 3"},
		"noise":     {`exec yes`, "something else than an agent"},
		"hangs":     {`sleep 600 & echo $! >&2; exec sleep 600`, "deadline"},
		"secret":    {`echo "https://user:hunter2x@h/" >&2; exit 1`, "[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			stubSSH(t, test.script)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if name == "hangs" {
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			host := NewHost("site-7", "", "")
			began := time.Now()
			_, err := AttachBy(ctx, host)
			if !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("it took %s", took)
			}
			host.running.Wait() // else ssh still runs
		})
	}
}
