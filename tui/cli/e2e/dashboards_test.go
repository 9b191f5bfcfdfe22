package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/control"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestDashboardsOnOneDaemon: five dashboards watch a daemon that holds a job, while
// other jobs are edited all the time and one of the five is stopped. The lease is
// renewed in time, the daemon does not grow, all dashboards see what is new, and all
// come back after a kill of the daemon.
func TestDashboardsOnOneDaemon(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	f := newFleet(t, testenv.Options{}, 1, append(fleetLease(), "--repository-selector", "site=here")...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.repository("slow", g.URL, map[string]string{"site": "here"})
	f.repository("elsewhere", "", nil) // its jobs wait for another agent
	for i := range 1000 {
		f.job(fmt.Sprintf("other-%04d", i), "elsewhere")
	}
	f.start()
	var all []*terminal
	for range 5 {
		tt := a.terminal(t)
		tt.showsNow(t, "slow")
		all = append(all, tt)
	}
	stop := f.editJobs(20 * time.Millisecond)
	before := readUsage(t, a.cmd.Process.Pid)
	send := func(s syscall.Signal) {
		if err := all[4].Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.claimOwner("job") != "" })
	mark, last, owner, longest := f.api.Mark(t), time.Now(), f.claimOwner("job"), time.Duration(0)
	<-time.After(20 * time.Second) // the connection of the one that is stopped ends after 10 s
	for _, r := range f.renewals(a, mark) {
		longest, last = max(longest, time.UnixMilli(r.At).Sub(last)), time.UnixMilli(r.At)
	}
	if longest = max(longest, time.Since(last)); longest >= fleetGivesUp || f.claimOwner("job") != owner {
		t.Errorf("at most %s between two renewals; owner %q, then %q", longest, owner, f.claimOwner("job"))
	}
	f.repository("new-one", "", map[string]string{"site": "here"})
	for _, tt := range all[:4] {
		tt.showsNow(t, "new-one")
	}
	stop()
	if after := readUsage(t, a.cmd.Process.Pid); after.rss-before.rss > 32<<10 {
		t.Errorf("the daemon has grown: %s, then %s", before, after)
	}
	send(syscall.SIGCONT)
	all[4].showsNow(t, "new-one")
	a.kill()
	for _, tt := range all {
		tt.showsNow(t, "reconnecting")
	}
	f.start()
	g.open()
	within(t, time.Minute, "the job has ended", func() bool { return f.getJob("job") == nil })
	for _, tt := range all {
		tt.Await(t, "it is attached again", callTimeout, func(s string) bool { return !strings.Contains(s, "reconnecting") })
		tt.Press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	auditOf(t, f.api.Requests(t, f.began), fleetExpiry).judge(t, uid)
}

// TestDashboardsComeAndGo: a thousand watchers leave a daemon with the descriptors that
// it had.
func TestDashboardsComeAndGo(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	holds := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	watch := func() {
		tr := control.Transport(filepath.Join(filepath.Dir(h.state()), "limpet.sock"))
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, control.BaseURL+"/limpet/v1/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadBytes('\n'); err != nil || !json.Valid(line) {
			t.Fatalf("%v: %s", err, line)
		}
	}
	watch()
	before := holds()
	for range 1000 {
		watch()
	}
	until(t, fmt.Sprintf("there are %d descriptors again", before), func() bool { return holds() <= before+2 })
}

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

// TestDashboardShowsWhatAPullHasChanged: from the history to the job, its files and one
// of them old against new, out of the mirror of a real Git repository.
func TestDashboardShowsWhatAPullHasChanged(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newSite(t, 2, 2)
	s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
	file := s.repo.Dashboards()[1].Path
	s.repo.Commit(t, "a new title", testenv.Change{Path: file,
		Data: []byte(`{"schemaVersion": 39, "tags": [], "panels": [], "uid": "other", "title": "Quokka-in-Git"}`)})
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.showsNow(t, "boards")
	tt.Press(t, "4")
	tt.showsNow(t, "2 jobs")
	tt.Press(t, "\r")
	tt.showsNow(t, "attempt 1")
	tt.Press(t, "d")
	tt.showsNow(t, "modified")
	tt.showsNow(t, path.Base(file))
	tt.Press(t, "\r")
	tt.showsNow(t, "@@")
	tt.Press(t, "/quokka\r")
	tt.showsNow(t, "Quokka-in-Git")
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDashboardTestsAndShowsAnObject: t has the daemon, which has the credentials, test
// a repository; y shows the object as the API has it, and copies it.
func TestDashboardTestsAndShowsAnObject(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newSite(t, 1, 1)
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.showsNow(t, "boards")
	tt.Press(t, "3")
	tt.Press(t, "t")
	for _, step := range []string{"ok spec", "ok credentials", "ok remote", "ok branch"} {
		tt.showsNow(t, step)
	}
	tt.Press(t, "q")
	tt.Press(t, "y")
	tt.showsNow(t, "apiVersion: provisioning.grafana.app/")
	tt.Press(t, "y")
	const clipboard = "\x1b]52;c;"
	tt.shows(t, clipboard)
	until(t, "all of it is copied", func() bool { _, sent, _ := strings.Cut(tt.Raw(), clipboard); return strings.Contains(sent, "\a") })
	_, sent, _ := strings.Cut(tt.Raw(), clipboard)
	sent, _, _ = strings.Cut(sent, "\a")
	copied, err := base64.StdEncoding.DecodeString(sent)
	if out := s.must(t, 0, "get", "repository", "boards", "-o", "yaml"); err != nil || string(copied) != out.out {
		t.Errorf("copied %q, %v; limpet get prints %q", copied, err, out.out)
	}
	s.file(t, "credentials/default.boards/token", "another")
	tt.Press(t, "q")
	tt.Press(t, "t")
	tt.showsNow(t, "failed remote")
	tt.Press(t, "q")
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if strings.Contains(tt.Raw(), gitToken) {
		t.Error("the token is on the screen")
	}
}

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries them,
// writes them after a yes, and works with them. A token that was typed is in a file of
// its own and nowhere else.
func TestSetUpOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Real(t)
	h := newHome(t)
	config := filepath.Join(h.dir, ".config", "limpet")
	tt := h.terminal(t)
	tt.showsNow(t, "--kubeconfig")
	tt.Press(t, "\r")
	tt.showsNow(t, "server?")
	tt.Press(t, "nonsense://x\r")
	tt.showsNow(t, "server?")
	tt.Press(t, "\x15"+server.URL+"\r")
	tt.showsNow(t, "token")
	tt.Press(t, "wrong-token\r")
	tt.showsNow(t, "Esc")
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Fatalf("something was written before the person said so: %v", err)
	}
	tt.Press(t, "\x1b")
	tt.showsNow(t, "token")
	tt.Press(t, "\x15"+server.Token+"\r")
	tt.showsNow(t, "y writes")
	tt.Press(t, "y")
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
