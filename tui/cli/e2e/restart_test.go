package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/testenv/suite"
)

// TestKilledWhileRequeueing: the agent dies after it has requeued the job of an agent that is gone.
func TestKilledWhileRequeueing(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-requeued", first, few())
	kills := suite.Count(1, 10)
	for range kills {
		for _, name := range m.names() {
			m.edit(name)
			m.pull(name, map[string]string{api.LabelClaim: strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10),
				api.LabelClaimOwner: "somebody-gone"})
		}
		l := m.start(fmt.Sprintf("%s=kill@%d", failpoint.Requeued, 1+m.rng.IntN(len(m.sizes))))
		if !m.awaitEnd(l) {
			t.Fatal("not killed")
		}
	}
	m.finishJobs()
	m.verify()
}

// TestSecondAgentOnOneFile: an agent that finds its state file in use ends at once and
// names the process; a kill frees the file.
func TestSecondAgentOnOneFile(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	for range suite.Count(3, 20) {
		d := h.daemon(t)
		began := time.Now()
		r := h.must(t, exitStore, "--daemon")
		// One second is what people are promised; this machine may be busy.
		if took := time.Since(began); !strings.Contains(r.err, d.pid()) || took > 10*time.Second {
			t.Fatalf("after %s: %s", took, r.err)
		}
		d.kill()
	}
	h.must(t, 0, "store", "check")
}

// TestRestarts: an agent that is restarted all the time, in order or not, leaves no claim behind, does not make its
// file grow, and asks the API for no more than it needs.
func TestRestarts(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "restarts", first, few())
	m.ensureJobs(m.names()...)
	m.finishJobs()
	size := func() int64 {
		info, err := os.Stat(m.state())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before, since := size(), w.api.Mark(t)
	restarts := suite.Count(4, 100)
	for i := range restarts {
		m.ensureJobs(m.names()...)
		l := m.start("")
		signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[i%2]
		if m.rng.IntN(4) > 0 {
			m.awaitClaim(l)
		}
		timer := time.AfterFunc(time.Duration(m.rng.IntN(300))*time.Millisecond, func() { _ = l.cmd.Process.Signal(signal) })
		m.awaitEnd(l)
		timer.Stop()
	}
	lists := map[string]int{}
	for _, r := range w.api.Requests(t, since) {
		if dir, kind := filepath.Split(r.Path); r.Method == "GET" && !strings.Contains(r.Query, "watch=") && r.Agent != "user" &&
			strings.HasSuffix(dir, "/namespaces/"+m.namespace+"/") && (kind == "jobs" || kind == "repositories") {
			lists[kind]++
		}
	}
	for kind, n := range lists {
		if n > 3*restarts {
			t.Errorf("%d lists of %s for %d starts", n, kind, restarts)
		}
	}
	m.finishJobs()
	m.verify()
	grown := size() - before
	if grown >= 1<<20 {
		t.Errorf("the state file has grown by %d bytes", grown)
	}
	store, _, err := state.Open(context.Background(), state.Options{Path: m.state()})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := store.Claims(context.Background())
	if err != nil || len(claims) != 0 {
		t.Errorf("%d claims are left, %v", len(claims), err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// previous is the commit of the last release.
const previous = "2ec8c84"

// TestUpgradeInFlight: an agent of the last release is killed at its work, and
// one of this build goes on with the file that it finds. It needs the history of
// the checkout and a build of the old sources, so it is part of the long form.
func TestUpgradeInFlight(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "old", "limpet")
	build := exec.Command("sh", "-ec", `mkdir "$1/old"; git -C "$(go env GOMOD | xargs dirname)" archive "$2" | tar -x -C "$1/old"; cd "$1/old"; go build -o limpet .`, "sh", dir, previous)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rounds, taken := 3, 0
	for i := range rounds {
		m := newCrashAgent(t, w, fmt.Sprint("upgrade-", i), first+uint64(i), few())
		m.ensureJobs(m.names()...)
		l := m.startAs(old, "")
		until(t, "a job is at work", func() bool { return strings.Contains(m.log.String(), stepped("claimed")) })
		timer := time.AfterFunc(time.Duration(m.rng.IntN(150))*time.Millisecond, func() { _ = l.cmd.Process.Kill() })
		m.awaitEnd(l)
		timer.Stop()
		m.finishJobs()
		m.verify()
		taken += strings.Count(m.log.String(), stepped("resumed"))
	}
	if taken == 0 {
		t.Error("no claim of the old agent was left to take up")
	}
}

// TestSystemdCredentials: a daemon started with the command line of its unit reads config and
// token from $CREDENTIALS_DIRECTORY, which is read-only.
func TestSystemdCredentials(t *testing.T) {
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
	config := h.file(t, "etc/config.yaml",
		"drivers: 7\ngit-credentials:\n- url: https://git.example.com\n  values: {token: handed-canary-git}\n")
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
