package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/control"
	"limpet/sync/testenv/ptytest"
)

// What the dashboard may cost and how quick it has to be, on a terminal. The long
// form measures all of it, five times each, and prints a table; the short one, part
// of all tests, looks with fewer samples and leaves times to machines that are
// quiet.
//
//	make bench-tui

var budgets = flag.Bool("budgets", false, "measure what the dashboard costs, in full")

// ledger holds what was measured.
type ledger struct {
	t    *testing.T
	rows []string
}

// entry is one figure: the median and the worst of several runs, against a limit.
func (l *ledger) entry(name, unit string, limit float64, values ...float64) {
	l.t.Helper()
	slices.Sort(values)
	mid, worst := values[len(values)/2], values[len(values)-1]
	verdict := "ok"
	if mid > limit {
		verdict = "OVER"
		l.t.Errorf("%s: %.1f %s, limit %.1f", name, mid, unit, limit)
	}
	l.rows = append(l.rows, fmt.Sprintf("| %-52s | %9.1f | %9.1f | %8.1f | %-5s | %2d | %s |", name, mid, worst, limit, unit, len(values), verdict))
}

func (l *ledger) print() {
	l.t.Logf("\n| %-52s | %9s | %9s | %8s | %-5s | %2s |    |\n|---|---|---|---|---|---|---|\n%s", "figure", "median", "worst", "limit", "unit", "n", strings.Join(l.rows, "\n"))
}

// rounds is how often a figure is measured, and span how long a look takes.
func rounds() int { return pickOf(1, 5) }

func span(short, long time.Duration) time.Duration {
	if *budgets {
		return long
	}
	return short
}

func pickOf(short, long int) int {
	if *budgets {
		return long
	}
	return short
}

// slack widens limits of time in the short form: other tests run beside it.
func slack() float64 {
	if *budgets {
		return 1
	}
	return 20
}

// show starts the built program on a terminal.
func (h *home) show(t *testing.T, w, hh int, line ptytest.Line, args ...string) *ptytest.Terminal {
	t.Helper()
	cmd := h.command(context.WithoutCancel(t.Context()), t, args...)
	cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color")
	return ptytest.Start(t, cmd, w, hh, line)
}

// weatherOn starts a dashboard with a source of the test.
func weatherOn(t *testing.T, kind string, w, h int, storm time.Duration) *ptytest.Terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = []string{"TERM=xterm-256color", "LANG=C.UTF-8", dashboardOf + "=" + kind, dashboardOf + "_FOR=" + storm.String()}
	tt := ptytest.Start(t, cmd, w, h, ptytest.Line{})
	tt.Await(t, "the first picture", callTimeout, func(s string) bool { return strings.Contains(s, "repo-1") })
	return tt
}

// cost is what a process has used.
type cost struct {
	cpu   time.Duration
	wakes int64 // times that a thread has gone to sleep, that of the runtime's monitor aside
	rss   int64 // KiB
	bytes int64
}

func costOf(t *testing.T, tt *ptytest.Terminal) cost {
	t.Helper()
	pid := tt.Process.Pid
	c := cost{bytes: tt.Bytes()}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	for _, f := range fields[11:13] {
		ticks, _ := strconv.ParseInt(f, 10, 64)
		c.cpu += time.Duration(ticks) * 10 * time.Millisecond // 100 a second; proc(5)
	}
	c.rss = statusField(t, fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	// The monitor is the first thread that Go starts. It sleeps while all others do, and
	// takes naps of microseconds while one runs: more of them, the busier the machine is.
	monitor, naps := int64(1<<62), int64(0)
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range threads {
		id, n := statusField(t, path, "Pid:"), statusField(t, path, "voluntary_ctxt_switches:")
		if id != int64(pid) && id < monitor {
			monitor, naps = id, n
		}
		c.wakes += n
	}
	c.wakes -= naps
	return c
}

// statusField is a number of a file such as /proc/PID/status; 0 when the thread has gone.
func statusField(t *testing.T, path, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for _, l := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(l, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}

// look waits for d and says what that took.
func look(t *testing.T, tt *ptytest.Terminal, d time.Duration) cost {
	t.Helper()
	before := costOf(t, tt)
	<-time.After(d)
	after := costOf(t, tt)
	return cost{cpu: after.cpu - before.cpu, wakes: after.wakes - before.wakes, rss: after.rss - before.rss, bytes: after.bytes - before.bytes}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func percentile(values []float64, p float64) float64 {
	slices.Sort(values)
	return values[min(int(p*float64(len(values))), len(values)-1)]
}

func TestTerminalBudgets(t *testing.T) {
	suite.Full(t)
	l := &ledger{t: t}
	defer l.print()
	t.Run("quiet", func(t *testing.T) { l.t = t; l.quiet() })
	t.Run("working", func(t *testing.T) { l.t = t; l.working() })
	t.Run("storm", func(t *testing.T) { l.t = t; l.storm() })
	t.Run("resize", func(t *testing.T) { l.t = t; l.resize() })
	t.Run("full", func(t *testing.T) { l.t = t; l.full() })
	l.t = t
}

// quiet is a dashboard where nothing works: alone, and on a daemon at rest.
func (l *ledger) quiet() {
	t := l.t
	var bytes, cpu []float64
	for range rounds() {
		c, d := l.rest(weatherOn(t, "still", 80, 24, 0))
		bytes = append(bytes, float64(c.bytes)/d.Seconds())
		cpu = append(cpu, 100*c.cpu.Seconds()/d.Seconds())
	}
	l.entry("idle, 80x24: sent", "B/s", 60, bytes...)
	l.entry("idle, 80x24: processor", "%", 0.5*slack(), cpu...)

	h := newHome(t)
	l.fill(h, 0, 0)
	limpetBinary(t)
	h.daemon(t, "--repository-selector", "nobody=has", "--controllers", "off", "--log-level", "error")
	var wakes []float64
	bytes, cpu = nil, nil
	for range rounds() {
		tt := h.show(t, 80, 24, ptytest.Line{})
		tt.Await(t, "the first picture", callTimeout, func(s string) bool { return strings.Contains(s, "lab-1 ") })
		c, d := l.rest(tt)
		bytes = append(bytes, float64(c.bytes)/d.Seconds())
		cpu = append(cpu, 100*c.cpu.Seconds()/d.Seconds())
		wakes = append(wakes, float64(c.wakes)/d.Seconds())
	}
	l.entry("idle, attached, 80x24: sent", "B/s", 60, bytes...)
	l.entry("idle, attached, 80x24: processor", "%", 0.5*min(slack(), 4), cpu...)
	l.entry("idle, attached, 80x24: wakes up", "1/s", 5, wakes...)
}

// rest is what a dashboard takes once it has started.
func (l *ledger) rest(tt *ptytest.Terminal) (cost, time.Duration) {
	d := span(5*time.Second, 60*time.Second)
	<-time.After(2 * time.Second) // what belongs to the start
	c := look(l.t, tt, d)
	_ = tt.Process.Kill()
	return c, d
}

// working is three jobs that go on.
func (l *ledger) working() {
	t := l.t
	var bytes, cpu, frame []float64
	for range rounds() {
		tt := weatherOn(t, "working", 140, 40, 0)
		d := span(5*time.Second, 60*time.Second)
		<-time.After(time.Second)
		c := look(t, tt, d)
		bytes = append(bytes, float64(c.bytes)/d.Seconds())
		cpu = append(cpu, 100*c.cpu.Seconds()/d.Seconds())
		most := 0
		for _, b := range tt.Bursts(time.Time{}) {
			most = max(most, b.Bytes)
		}
		frame = append(frame, float64(most))
		_ = tt.Process.Kill()
	}
	l.entry("3 jobs working, 140x40: sent", "B/s", 1024, bytes...)
	l.entry("3 jobs working, 140x40: processor", "%", 2*slack(), cpu...)
	l.entry("largest burst, 140x40", "B", 12<<10, frame...)
}

// storm is a thousand changes a second, all of them on the screen.
func (l *ledger) storm() {
	t := l.t
	var frames, cpu, grown, last []float64
	for range rounds() {
		d := span(5*time.Second, 60*time.Second)
		tt := weatherOn(t, "storm", 140, 40, d)
		began := time.Now()
		<-time.After(d / 5) // what memory it needs at all it has by then
		c := look(t, tt, d/2)
		frames = append(frames, float64(len(tt.Bursts(began)))/time.Since(began).Seconds())
		cpu = append(cpu, 100*c.cpu.Seconds()/(d/2).Seconds())
		grown = append(grown, float64(c.rss)/1024)
		tt.Await(t, "the end of the storm", callTimeout, func(s string) bool { return strings.Contains(s, stormEnd) })
		last = append(last, millis(time.Since(began)-d))
		_ = tt.Process.Kill()
	}
	l.entry("1,000 changes a second: frames", "1/s", 11, frames...)
	l.entry("1,000 changes a second: processor", "%", 15*slack(), cpu...)
	l.entry("1,000 changes a second: memory grows by", "MiB", 5*min(slack(), 4), grown...) // a short storm is its beginning
	l.entry("last state on the screen after the storm", "ms", 250*slack(), last...)
}

// resize is a terminal whose size changes 50 times a second.
func (l *ledger) resize() {
	t := l.t
	var took []float64
	for range rounds() {
		tt := weatherOn(t, "working", 80, 24, 0)
		tick := time.NewTicker(20 * time.Millisecond)
		for i := range pickOf(50, 500) {
			<-tick.C
			tt.Resize(t, 40+(i*7)%120, 10+(i*5)%40)
		}
		tick.Stop()
		tt.Resize(t, 100, 30)
		d := tt.Await(t, "the frame of the last size", callTimeout, func(s string) bool {
			lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
			return len(lines) == 30 && strings.Contains(lines[29], "quit") && strings.Contains(lines[0], "limpet 1.0.0") && strings.HasSuffix(strings.TrimRight(lines[0], " "), "Z")
		})
		took = append(took, millis(d))
		_ = tt.Process.Kill()
	}
	l.entry("right frame after 50 sizes a second", "ms", 100*slack(), took...)
}

// full is the built program on a daemon with ten thousand jobs and a hundred
// thousand records.
func (l *ledger) full() {
	t := l.t
	h, jobs, records := newHome(t), pickOf(1000, 10_000), pickOf(2000, 100_000)
	l.fill(h, jobs, records)
	limpetBinary(t)
	h.daemon(t, "--repository-selector", "nobody=has", "--controllers", "off", "--log-level", "error")
	ready := func(s string) bool { return strings.Contains(s, "Repositories") && strings.Contains(s, "-pull-0") }

	var first, rss []float64
	var tt *ptytest.Terminal
	for range rounds() {
		if tt != nil {
			_ = tt.Process.Kill()
		}
		tt = h.show(t, 80, 24, ptytest.Line{})
		first = append(first, millis(tt.Await(t, "the first frame", callTimeout, ready)))
	}
	l.entry(fmt.Sprintf("first frame, attached, %d jobs, %d records", jobs, records), "ms", 150*slack(), first...)

	stop := l.post(h)
	var keys, scroll []float64
	tt.Press(t, "2")
	tt.Await(t, "the jobs", callTimeout, func(s string) bool { return strings.Contains(s, "[2 Jobs") })
	for range pickOf(50, 500) {
		row, before := cursorRow(tt.Text()), tt.Bytes()
		tt.Press(t, "j")
		took := tt.Await(t, "the cursor moves", callTimeout, func(s string) bool { return cursorRow(s) != row })
		keys, scroll = append(keys, millis(took)), append(scroll, float64(tt.Bytes()-before))
		<-time.After(20 * time.Millisecond)
	}
	stop()
	l.entry("key to cursor, p50", "ms", 10*slack(), percentile(keys, 0.5))
	l.entry("key to cursor, p99", "ms", 50*slack(), percentile(keys, 0.99))
	l.entry("scroll by a line", "B", 300, percentile(scroll, 0.5))

	tt.Press(t, "4")
	tt.Await(t, "the history", callTimeout, func(s string) bool { return strings.Contains(s, "401 bad cre") })
	keys = nil
	for _, line := range []struct{ text, found string }{{"state:error lab-17", "lab-17 "}, {"401 lab-3 pull", "lab-3 "}, {"lab-44-past-00", "lab-44 "}} {
		tt.Press(t, "/")
		typed := ""
		for _, key := range line.text {
			typed += string(key)
			tt.Press(t, string(key))
			keys = append(keys, millis(tt.Await(t, "the letter", callTimeout, func(s string) bool { return strings.Contains(s, "/ "+strings.TrimRight(typed, " ")) })))
		}
		found := tt.Await(t, "what the filter lets through", callTimeout, func(s string) bool { return strings.Contains(s, line.found) && !strings.Contains(s, "looking") })
		t.Logf("the rows of %q came %v after its last letter", line.text, found.Round(time.Millisecond))
		tt.Press(t, "\x1b")
		tt.Await(t, "the filter is gone", callTimeout, func(s string) bool { return !strings.Contains(s, typed) })
	}
	l.entry(fmt.Sprintf("filter of %d records: key to letter, p95", records), "ms", 16*slack(), percentile(keys, 0.95))
	rss = append(rss, float64(costOf(t, tt).rss)/1024)
	l.entry("memory of the dashboard", "MiB", 60, rss...)
	_ = tt.Process.Kill()

	l.slowLine(h, ready)
	l.silent(h)
}

// slowLine is a serial console of 9,600 baud at the end of a way of 200 ms.
func (l *ledger) slowLine(h *home, ready func(string) bool) {
	t := l.t
	line := ptytest.Line{Rate: 960, Delay: 100 * time.Millisecond}
	tt := h.show(t, 80, 24, line)
	tt.Await(t, "the first frame", callTimeout, ready)
	<-time.After(3 * time.Second)
	var keys []float64
	for range pickOf(5, 30) {
		row := cursorRow(tt.Text())
		began := time.Now()
		tt.Press(t, "j")
		tt.Await(t, "the cursor moves", callTimeout, func(s string) bool { return cursorRow(s) != row })
		keys = append(keys, millis(time.Since(began)+line.Delay))
		<-time.After(500 * time.Millisecond)
	}
	// The letters of a scrolled line take their own time: 175 B are 180 ms.
	l.entry("9,600 baud, 200 ms: key to cursor, p50", "ms", 450*min(slack(), 3), percentile(keys, 0.5))
	l.entry("9,600 baud, 200 ms: key to cursor, worst", "ms", 1200*min(slack(), 3), percentile(keys, 1))
	_ = tt.Process.Kill()
}

// silent is a command on a terminal that answers nothing.
func (l *ledger) silent(h *home) {
	t := l.t
	var took []float64
	for range rounds() {
		began := time.Now()
		tt := h.show(t, 80, 24, ptytest.Line{}, "version")
		if err := tt.End(t, callTimeout); err != nil {
			t.Fatal(err)
		}
		took = append(took, millis(time.Since(began)))
		if raw := tt.Raw(); strings.ContainsRune(raw, 0x1b) || raw == "" {
			t.Errorf("version sent %q", raw)
		}
	}
	l.entry("version on a silent terminal", "ms", 300*slack(), took...)
}

// cursorRow is where in the list the cursor is, as the foot of the list says.
func cursorRow(screen string) string {
	at := ""
	for _, l := range strings.Split(screen, "\n") {
		if rest, ok := strings.CutPrefix(l, "╰"); ok && at == "" {
			at, _, _ = strings.Cut(strings.TrimLeft(rest, "─ "), "/")
		}
	}
	return at
}

// fill makes a state file with jobs that wait and records of others.
func (l *ledger) fill(h *home, jobs, records int) {
	t := l.t
	store, _, err := state.Open(t.Context(), state.Options{Path: h.state()})
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	g.SetLimit(64)
	put := func(plural, name, object string) {
		g.Go(func() error {
			key := state.ObjectKey{Resource: "provisioning.grafana.app/" + plural, Namespace: "default", Name: name}
			_, err := store.Mutate(t.Context(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
				return state.Mutation{Data: []byte(strings.Replace(object, `"0"`, fmt.Sprintf(`"%d"`, rev), 1))}, nil
			})
			return err
		})
	}
	now := time.Now()
	meta := func(kind, name, labels string, i int) string {
		return fmt.Sprintf(`"apiVersion":"provisioning.grafana.app/v0alpha1","kind":%q,"metadata":{"name":%q,"namespace":"default","uid":"00000000-0000-4000-%04x-%012x","resourceVersion":"0","generation":1,"creationTimestamp":%q,"labels":{%s}}`,
			kind, name, len(kind), i, now.Add(-time.Hour).UTC().Format(time.RFC3339), labels)
	}
	for i := range 50 {
		name := fmt.Sprint("lab-", i)
		put("repositories", name, fmt.Sprintf(`{%s,"spec":{"title":%q,"type":"git","git":{"url":"https://git.invalid/%s.git","branch":"main","path":"/"},"sync":{"enabled":true,"target":"folder","intervalSeconds":3600},"workflows":[]},"status":{"observedGeneration":1,"health":{"healthy":true,"checked":1},"sync":{"state":"success","message":[],"finished":%d}}}`,
			meta("Repository", name, "", i), name, name, now.Add(-10*time.Minute).UnixMilli()))
	}
	for i := range jobs {
		repo := fmt.Sprint("lab-", i%50)
		name := fmt.Sprintf("%s-pull-%06d", repo, i)
		put("jobs", name, fmt.Sprintf(`{%s,"spec":{"action":"pull","repository":%q,"pull":{"incremental":true}},"status":{"state":"pending"}}`, meta("Job", name, fmt.Sprintf(`"provisioning.grafana.app/repository":%q`, repo), i), repo))
	}
	for i := range records {
		g.Go(func() error {
			at := now.Add(-time.Duration(i) * time.Second)
			return store.PutRecord(t.Context(), state.Record{UID: fmt.Sprintf("past-%06d", i), Namespace: "default", Name: fmt.Sprintf("lab-%d-past-%06d", i%50, i), Repository: fmt.Sprint("lab-", i%50), Action: "pull",
				State: []string{"success", "error"}[i%2], Message: []string{"completed successfully", "401 bad credentials"}[i%2], Agent: "edge-07", Started: at.Add(-time.Second), Finished: at,
				Spec: []byte(`{"action":"pull","pull":{"incremental":true}}`), Status: []byte(`{"state":"success","summary":[{"kind":"Dashboard","noop":200}]}`), Attempts: []state.Attempt{{N: 1, State: "success", Finished: at}},
				RefFrom: fmt.Sprintf("%040x", i), RefTo: fmt.Sprintf("%040x", i+1), Created: at.Add(-2 * time.Second), Commit: &state.Commit{Subject: fmt.Sprint("change panel ", i), Author: "M. Ito", At: at.Add(-time.Minute)},
				Steps: []state.Step{{Text: "look up branch:main", Seconds: 0.2}, {Text: fmt.Sprintf("fetch %07x", i), Seconds: 0.4}, {Text: "compare with the server", Seconds: 0.1}, {Text: "replicating changes", Seconds: 0.3}}})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// post makes five jobs a second until the function that it returns is called.
func (l *ledger) post(h *home) (stop func()) {
	t := l.t
	client := &http.Client{Transport: control.Transport(filepath.Join(filepath.Dir(h.state()), "limpet.sock"))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			body := fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"late-%06d"},"spec":{"action":"pull","repository":"lab-1","pull":{"incremental":true}}}`, i)
			resp, err := client.Post(control.BaseURL+"/apis/provisioning.grafana.app/v0alpha1/namespaces/default/jobs", "application/json", strings.NewReader(body))
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			answer, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				t.Errorf("POST a job: %s %s", resp.Status, answer)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
