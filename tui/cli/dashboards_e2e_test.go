package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/control"
	"limpet/sync/testenv"
	"limpet/sync/text"
)

// TestDashboardsOnOneDaemon: five dashboards look at a daemon that holds a job,
// while others are edited all the time, and one of the five is stopped. The lease
// is renewed as if nobody looked, the daemon does not grow, the others see what is
// new, and so does the fifth when it goes on. After a kill of the daemon and a new
// one all are there again.
func TestDashboardsOnOneDaemon(t *testing.T) {
	t.Parallel()
	f := newField(t, testenv.Options{}, 1, append(fieldLease(), "--repository-selector", "site=here")...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.labelled("slow", g.URL, map[string]string{"site": "here"})
	others := times(30, 1000)
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
	hold, rounds := 12*time.Second, times(1, 6)
	if *long {
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
