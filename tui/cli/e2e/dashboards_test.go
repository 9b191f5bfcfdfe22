package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/sync/control"
	"limpet/sync/testenv"
	"limpet/sync/testenv/ptytest"
	"limpet/sync/testenv/suite"
	"limpet/sync/text"
)

// TestDashboardsOnOneDaemon: five dashboards look at a daemon that holds a job,
// while others are edited all the time, and one of the five is stopped. The lease
// is renewed as if nobody looked, the daemon does not grow, the others see what is
// new, and so does the fifth when it goes on. After a kill of the daemon and a new
// one all are there again.
func TestDashboardsOnOneDaemon(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	f := newField(t, testenv.Options{}, 1, append(fieldLease(), "--repository-selector", "site=here")...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.labelled("slow", g.URL, map[string]string{"site": "here"})
	others := suite.Count(30, 1000)
	f.repository("elsewhere", "") // whose jobs wait for another agent
	for i := range others {
		name := fmt.Sprintf("other-%04d", i)
		f.labelled(name, "", map[string]string{"site": "here"})
		f.job(name+"-job", "elsewhere")
	}
	f.start()
	var all []*terminal
	attached := func() string { return fmt.Sprintf("attached to daemon %d", a.cmd.Process.Pid) }
	for range 5 {
		all = append(all, a.terminal(t))
	}
	for _, tt := range all {
		tt.redrawn(t, attached())
	}
	count := a.count(t)
	stop := f.noise(20 * time.Millisecond)
	before := readWeight(t, a.cmd.Process.Pid)
	send := func(s syscall.Signal) {
		if err := all[4].process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	began := time.Now()
	// The connection of the one that is stopped ends after 10 s. A host that is
	// silent for two minutes ends a job, so the long form has several.
	hold, rounds := 12*time.Second, suite.Count(1, 6)
	if suite.IsFull() {
		hold = 50 * time.Second
	}
	var uids []string
	var longest time.Duration
	renewals := 0
	for round := range rounds {
		if round > 0 {
			g.open()
			within(t, time.Minute, "the job has ended", func() bool { return f.look("job") == nil })
			g.shut()
		}
		uids = append(uids, string(f.job("job", "slow")))
		until(t, "the job is claimed", func() bool { return f.owner("job") != "" })
		mark, last, owner := f.api.Mark(t), time.Now(), f.owner("job")
		<-time.After(hold)
		seen := f.renewals(a, mark)
		for _, r := range seen {
			longest, last = max(longest, time.UnixMilli(r.At).Sub(last)), time.UnixMilli(r.At)
		}
		longest, renewals = max(longest, time.Since(last)), renewals+len(seen)
		if now := f.owner("job"); now != owner {
			t.Errorf("the job was in the hands of %q and is in those of %q", owner, now)
		}
	}
	f.labelled("new", "", map[string]string{"site": "here"})
	news := "Repos " + text.Thousands(others+2)
	for _, tt := range all[:4] {
		tt.redrawn(t, news)
	}
	stopped := time.Since(began)
	after := readWeight(t, a.cmd.Process.Pid)
	edits, sent := stop(), count()
	if sent.deltas == 0 || sent.snapshots != 1 || sent.deltaBytes/sent.deltas > sent.snapshotBytes/20 {
		t.Errorf("a watcher got %+v", sent)
	}
	if longest >= fieldGivesUp {
		t.Errorf("%d renewals, at most %s between two", renewals, longest)
	}
	if grown := after.rss - before.rss; grown > 32<<10 {
		t.Errorf("the daemon has grown by %d KiB: %s, then %s", grown, before, after)
	}
	send(syscall.SIGCONT)
	all[4].redrawn(t, news)
	a.kill()
	for _, tt := range all {
		tt.redrawn(t, "reconnecting")
	}
	f.start()
	for _, tt := range all {
		tt.redrawn(t, attached())
	}
	g.open()
	within(t, time.Minute, "the job has ended", func() bool { return f.look("job") == nil })
	for _, tt := range all {
		tt.press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	auditOf(t, f.api.Requests(t, f.began), fieldExpiry).judge(t, uids...)
	t.Logf("fault: five dashboards, one stopped for %.0f s beside %d edits: %d renewals, at most %.1f s apart; the daemon %.1f MiB, then %.1f, %.1f s of processor time; all back after a kill; a picture of %d jobs and repositories has %d bytes, a change %d, %.1f a second",
		stopped.Seconds(), edits, renewals, longest.Seconds(), float64(before.rss)/1024, float64(after.rss)/1024, (after.cpu - before.cpu).Seconds(),
		others, sent.snapshotBytes, sent.deltaBytes/sent.deltas, float64(sent.deltas)/stopped.Seconds())
}

// sent is what a watcher got.
type sent struct{ snapshots, snapshotBytes, deltas, deltaBytes int }

// count watches the stream of the daemon until the returned function is called.
func (a *agent) count(t *testing.T) func() sent {
	t.Helper()
	tr := control.Transport(filepath.Join(filepath.Dir(a.state()), "limpet.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, control.BaseURL+"/limpet/v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan sent, 1)
	go func() {
		var s sent
		defer func() { resp.Body.Close(); got <- s }()
		for in := bufio.NewReader(resp.Body); ; {
			line, err := in.ReadBytes('\n')
			switch {
			case err != nil:
				return
			case bytes.HasPrefix(line, []byte(`{"type":"snapshot"`)):
				s.snapshots, s.snapshotBytes = s.snapshots+1, s.snapshotBytes+len(line)
			case bytes.HasPrefix(line, []byte(`{"type":"delta"`)):
				s.deltas, s.deltaBytes = s.deltas+1, s.deltaBytes+len(line)
			}
		}
	}()
	return func() sent { cancel(); tr.CloseIdleConnections(); return <-got }
}

// TestDashboardsComeAndGo: a thousand of them leave a daemon with the goroutines
// and descriptors that it had.
func TestDashboardsComeAndGo(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	at := regexp.MustCompile(`"address":"(127[^"]*)"`).FindStringSubmatch(d.log.String())
	if at == nil {
		t.Fatalf("the log does not tell where the metrics are: %s", d.log)
	}
	holds := func() (goroutines, files int) {
		resp, err := http.Get("http://" + at[1] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		txt := &strings.Builder{}
		if err := resp.Write(txt); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(txt.String(), "\ngo_goroutines ")
		if _, err := fmt.Sscan(rest, &goroutines); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return goroutines, len(entries)
	}
	path := filepath.Join(filepath.Dir(h.state()), "limpet.sock")
	look := func() {
		c, err := control.Attach(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := c.Watch(ctx).Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	look()
	goroutines, files := 0, 0
	until(t, "the first has gone", func() bool {
		n, m := holds()
		same := n == goroutines && m == files
		goroutines, files = n, m
		return same
	})
	for range 1000 {
		look()
	}
	var n, m int
	until(t, fmt.Sprintf("there are %d goroutines and %d descriptors again, as before", goroutines, files), func() bool {
		n, m = holds()
		return n <= goroutines+2 && m <= files+2
	})
	t.Logf("fault: a thousand dashboards came and went: %d goroutines and %d descriptors, before %d and %d", n, m, goroutines, files)
}

// TestDashboardFinishesFirst: who quits while a job runs in the process may have it
// finish first. Nothing new is claimed from then on, and the dashboard ends by itself
// when the job has come to its end.
func TestDashboardFinishesFirst(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	silent := listenSilently(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://"+silent.Addr().String()+"/boards.git")
	h.must(t, 0, "job", "create", "boards")
	tt := h.show(t, 100, 30, ptytest.Line{})
	shows := func(what string) {
		t.Helper()
		tt.Await(t, what, callTimeout, func(screen string) bool { return strings.Contains(screen, what) })
	}
	shows("1 working")
	tt.Press(t, "q")
	shows("Finish first")
	tt.Press(t, "\r") // decides nothing
	tt.Press(t, "f")
	shows("draining, 1 to go")
	silent.hangUp()
	if err := tt.End(t, callTimeout); err != nil {
		t.Errorf("end: %v", err)
	}
}

// silence is a host that takes connections and says nothing until it hangs up.
type silence struct {
	net.Listener
	mu    sync.Mutex // guards calls
	calls []net.Conn
}

func listenSilently(t *testing.T) *silence {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silence{Listener: l}
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.calls = append(s.calls, c)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { s.hangUp(); <-taken })
	return s
}

func (s *silence) hangUp() {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		c.Close()
	}
}

// TestDashboardShowsWhatAPullHasChanged: from the history to the job, its files and
// one of them old against new, out of the mirror of a real Git repository, attached
// to a daemon.
func TestDashboardShowsWhatAPullHasChanged(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newSite(t, 2, 2)
	s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
	file := s.repo.Dashboards()[1].Path
	s.repo.Commit(t, "a new title", testenv.Change{Path: file, Data: []byte(`{"schemaVersion": 39, "tags": [], "panels": [], "uid": "other", "title": "Quokka-in-Git"}`)})
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.shows(t, "attached to daemon")
	tt.press(t, "4")
	tt.shows(t, "newest first")
	tt.shows(t, "2 jobs")
	tt.press(t, "\r")
	tt.shows(t, "attempt 1")
	tt.press(t, "d")
	tt.shows(t, "Changes of")
	tt.shows(t, "modified")
	tt.shows(t, path.Base(file))
	tt.press(t, "\r")
	tt.shows(t, "as JSON, keys sorted")
	tt.press(t, "/quokka\r")
	tt.shows(t, "Quokka-in-Git")
	if strings.Contains(tt.screen.String(), "It cannot be told") {
		t.Error("it was not told at first")
	}
	tt.press(t, "q")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
}

// TestDashboardTestsAndShowsAnObject: t asks the daemon, which has the credentials, for
// a test against the real Git host; y shows what the API has, and copies it.
func TestDashboardTestsAndShowsAnObject(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newSite(t, 1, 1)
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.shows(t, "attached to daemon")
	tt.press(t, "3")
	tt.shows(t, "1 in order")
	tt.press(t, "t")
	tt.shows(t, "Test boards")
	for _, step := range []string{"ok rules", "ok credentials", "ok remote", "ok branch"} {
		tt.shows(t, step)
	}
	tt.press(t, "qy")
	tt.shows(t, "apiVersion: provisioning.grafana.app/")
	tt.shows(t, "name: boards")
	tt.press(t, "y")
	const clipboard = "\x1b]52;c;"
	tt.shows(t, clipboard)
	tt.shows(t, "YAML")
	_, sent, _ := strings.Cut(tt.screen.String(), clipboard)
	sent, _, _ = strings.Cut(sent, "\a")
	text, err := base64.StdEncoding.DecodeString(sent)
	if out := s.must(t, 0, "get", "repository", "boards", "-o", "yaml"); err != nil || string(text) != out.out {
		t.Errorf("copied %q, %v; limpet get prints %q", text, err, out.out)
	}
	s.file(t, "credentials/default.boards/token", "another")
	tt.press(t, "qt")
	tt.shows(t, "failed remote")
	tt.press(t, "q4")
	tt.shows(t, "newest first")
	tt.press(t, "y")
	tt.shows(t, "finished:")
	tt.press(t, "qq")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
	if strings.Contains(tt.screen.String(), gitToken) {
		t.Error("the token is on the screen")
	}
}

// boardsMatch fails unless the API holds exactly the dashboards of the branch
// for a Repository, each with the checksum of its file.
func boardsMatch(t *testing.T, h *home, namespace, repository string, repo *testenv.Repository) {
	t.Helper()
	var list struct{ Items []object }
	r := h.must(t, 0, "get", "dashboards", "-n", namespace, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range list.Items {
		a := o.Metadata.Annotations
		if a["grafana.app/managerId"] != repository {
			t.Errorf("%s/%s is managed by %q", namespace, o.Metadata.Name, a["grafana.app/managerId"])
		}
		got[a["grafana.app/sourcePath"]] = a["grafana.app/sourceChecksum"]
	}
	blobs := map[string]string{}
	for _, line := range strings.Split(repo.Git(t, "ls-tree", "-r", "--format=%(objectname) %(path)", testenv.Branch, testenv.Directory), "\n") {
		hash, file, _ := strings.Cut(line, " ")
		blobs[file] = hash
	}
	for _, d := range repo.Dashboards() {
		rel := strings.TrimPrefix(d.Path, testenv.Directory+"/")
		if got[rel] != blobs[d.Path] {
			t.Errorf("%s %s: checksum %q, want %q", namespace, rel, got[rel], blobs[d.Path])
		}
		delete(got, rel)
	}
	for rel := range got {
		t.Errorf("%s %s is in the API but not in the branch", namespace, rel)
	}
}
