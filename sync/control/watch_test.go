package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/snapshot"
)

// snapshotAgent is an agent that publishes the snapshots of a test.
type snapshotAgent struct {
	Agent
	mu      sync.Mutex // guards all below
	current *snapshot.Snapshot
	changed chan struct{}
	lookers int
	looks   int // calls of Next
}

func newSnapshotAgent() *snapshotAgent {
	return &snapshotAgent{current: manyJobs(1, 0), changed: make(chan struct{})}
}

func (g *snapshotAgent) Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	g.count(1)
	defer g.count(-1)
	for {
		g.mu.Lock()
		cur, changed := g.current, g.changed
		g.mu.Unlock()
		if cur.Seq > seq {
			return cur, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (g *snapshotAgent) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lookers += by; by > 0 {
		g.looks++
	}
}

func (g *snapshotAgent) looking() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookers
}

func (g *snapshotAgent) hang(s *snapshot.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = s
	close(g.changed)
	g.changed = make(chan struct{})
}

// manyJobs returns a snapshot of n jobs and repositories; the first job runs.
func manyJobs(seq uint64, rows int) *snapshot.Snapshot {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s := &snapshot.Snapshot{Seq: seq, At: at.Add(time.Duration(seq) * time.Second), Agent: snapshot.Agent{Host: "edge-07", PID: 4121, Version: "1.0", RSS: 40 << 20}}
	for i := range rows {
		s.Jobs = append(s.Jobs, snapshot.Job{UID: fmt.Sprintf("0d9c2f4e-1111-4222-8333-%012d", i), Namespace: "stacks-1234", Name: fmt.Sprintf("site-%04d-sync", i), Repository: fmt.Sprintf("site-%04d", i),
			Action: "pull", Detail: "incr", State: "pending", Created: at, MaxAttempt: 3, Attempt: 1})
		s.Repos = append(s.Repos, snapshot.Repo{UID: fmt.Sprintf("1d9c2f4e-1111-4222-8333-%012d", i), Namespace: "stacks-1234", Name: fmt.Sprintf("site-%04d", i), Title: "Dashboards of a site", Type: "git",
			URL: "https://git.example.com/sites/dashboards.git", Branch: "main", Path: "grafana/", Target: "folder", Enabled: true, Healthy: true, Checked: at, SyncState: "success",
			LastRef: "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4", Synced: at, Runs: strings.Repeat("s", 24)})
	}
	if rows > 0 {
		s.Jobs[0].State, s.Jobs[0].Done, s.Jobs[0].Total, s.Jobs[0].Message = "working", int64(seq), 288, "replicating dashboards/network"
		s.Counts = snapshot.Count(s.Jobs, at)
	}
	return s
}

// show serves snapshots on a socket until the returned function is called.
func show(t testing.TB, path string, g *snapshotAgent, hello Hello) (end func()) {
	t.Helper()
	return showing(t, path, newBroadcaster(g), hello)
}

func showing(t testing.TB, path string, f *broadcaster, hello Hello) (end func()) {
	t.Helper()
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{Hello: hello, Agent: f.agent, API: http.NotFoundHandler(), broadcaster: f}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(end)
	return end
}

func hello() Hello { return Hello{Protocol: Protocol, Version: "test", PID: os.Getpid()} }

func attach(t testing.TB, path string) *Watch {
	t.Helper()
	c, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.Watch(t.Context())
}

// sees fails unless the next snapshot is the given one, field by field.
func (g *snapshotAgent) sees(t testing.TB, w *Watch, seq uint64) {
	t.Helper()
	for {
		got, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Seq < seq {
			continue // one in flight
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(g.current)
		if string(a) != string(b) {
			t.Fatalf("picture %d is\n%s\nwant\n%s", got.Seq, a, b)
		}
		return
	}
}

func TestWatchersGetEveryChange(t *testing.T) {
	t.Parallel()
	path, g := filepath.Join(t.TempDir(), "limpet.sock"), newSnapshotAgent()
	show(t, path, g, hello())
	var all []*Watch
	for range 5 {
		all = append(all, attach(t, path))
	}
	for seq := uint64(1); seq < 30; seq++ {
		g.hang(manyJobs(seq, int(seq)))
		for _, w := range all {
			g.sees(t, w, seq)
			if w.polling {
				t.Fatal("whole fakeAgent are asked for")
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lookers != 1 || g.looks > 32 {
		t.Errorf("for 5 watchers %d ask the agent, and did %d times", g.lookers, g.looks)
	}
}

// TestNoWatchers checks that an agent without watchers is not asked for snapshots,
// and that the next watcher gets a fresh one.
func TestNoWatchers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newSnapshotAgent()
		f := newBroadcaster(g)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.run(ctx) }()
		for round := range uint64(3) {
			synctest.Wait()
			if n := g.looking(); n != 0 {
				t.Errorf("round %d: %d look", round, n)
			}
			g.hang(manyJobs(10*round+1, 1))
			one, two := f.join(), f.join()
			for i, w := range []*watcher{one, two} {
				<-w.ready
				var l Message
				if lines := f.take(w); len(lines) != 1 || json.Unmarshal(lines[0], &l) != nil || l.Snapshot == nil || l.Snapshot.Seq != 10*round+1 {
					t.Errorf("round %d: watcher %d got %s", round, i, lines)
				}
			}
			f.leave(one)
			g.hang(manyJobs(10*round+2, 1))
			<-two.ready
			if lines := f.take(two); len(lines) != 1 || !strings.Contains(string(lines[0]), `"type":"delta"`) {
				t.Errorf("round %d: %s", round, lines)
			}
			f.leave(two)
			f.leave(two)
		}
		// A snapshot after the last watcher has left is dropped.
		gone, leave := context.WithCancel(t.Context())
		leave()
		f.publish(gone, manyJobs(100, 1))
		f.mu.Lock()
		if f.current != nil {
			t.Error("a picture is kept for nobody")
		}
		f.mu.Unlock()
		cancel()
		<-done
	})
}

// TestSlowWatcher checks that the queue of a watcher that reads nothing is bounded,
// that it continues with the newest snapshot, and that the others share their
// messages.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"many lines": 1, "large lines": 1000} {
		f := newBroadcaster(nil)
		slow, quick, other := f.join(), f.join(), f.join()
		last := uint64(0)
		most := 0
		for seq := uint64(1); seq <= 200; seq++ {
			s := manyJobs(seq, rows)
			for i := range s.Repos {
				s.Repos[i].Checked = s.At
			}
			f.publish(t.Context(), s)
			most = max(most, len(slow.lines))
			if slow.bytes > maxQueuedBytes || len(slow.lines) > maxQueued {
				t.Fatalf("%s: %d lines of %d bytes wait", name, len(slow.lines), slow.bytes)
			}
			a, b := f.take(quick), f.take(other)
			if len(a) != 1 || len(b) != 1 || &a[0][0] != &b[0][0] {
				t.Fatalf("%s: %d and %d lines, or each its own", name, len(a), len(b))
			}
			last = seq
		}
		var l Message
		lines := f.take(slow)
		if len(lines) != 1 || json.Unmarshal(lines[0], &l) != nil || l.Snapshot == nil || l.Snapshot.Seq != last {
			t.Fatalf("%s: %d lines, %s", name, len(lines), l.Type)
		}
		f.publish(t.Context(), manyJobs(last+1, rows))
		if lines := f.take(slow); len(lines) != 1 || json.Unmarshal(lines[0], &l) != nil || l.Delta == nil || l.Delta.From != last {
			t.Errorf("%s: it does not go on with changes: %d lines, %s", name, len(lines), l.Type)
		}
		if most != 0 {
			t.Errorf("%s: %d lines waited before the first picture was taken", name, most)
		}
		held := 0
		for seq := last + 2; seq < last+maxQueued+20; seq++ {
			s := manyJobs(seq, rows)
			for i := range s.Repos {
				s.Repos[i].Checked = s.At
			}
			f.publish(t.Context(), s)
			most, held = max(most, len(slow.lines)), max(held, slow.bytes)
		}
		if !slow.behind || most == 0 || most > maxQueued || held > maxQueuedBytes || slow.lines != nil {
			t.Errorf("%s: %d lines of %d bytes waited at most, %d now", name, most, held, len(slow.lines))
		}
	}
}

// TestStalledWatcherIsDropped checks that a watcher that reads nothing is
// disconnected without effect on the others and the agent.
func TestStalledWatcherIsDropped(t *testing.T) {
	t.Parallel()
	path, g := filepath.Join(t.TempDir(), "limpet.sock"), newSnapshotAgent()
	f := newBroadcaster(g)
	f.writeTimeout = 2 * time.Second
	showing(t, path, f, hello())
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %swatch HTTP/1.1\r\nHost: limpet\r\n\r\n", prefix)
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	w := attach(t, path)
	watch := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.watchers)
	}
	if watch() != 1 {
		t.Fatalf("%d watch, want the one that does not read", watch())
	}
	began := time.Now()
	for seq := uint64(2); seq < 4 || watch() > 1; seq++ {
		g.hang(manyJobs(seq, 1000+int(seq)%2))
		g.sees(t, w, seq)
		if time.Since(began) > 30*time.Second {
			t.Fatal("it is still there")
		}
	}
	// Data sent until then is still there; its end is not.
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	n, err := in.WriteTo(discard{})
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Errorf("after %d bytes the connection still stands", n)
	}
	if n > 2*maxQueuedBytes {
		t.Errorf("%d bytes waited for it", n)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestWatchAcrossRestart checks that Next fails without a daemon and continues with
// the snapshots of the next daemon, whatever their numbers.
func TestWatchAcrossRestart(t *testing.T) {
	t.Parallel()
	path, g := filepath.Join(t.TempDir(), "limpet.sock"), newSnapshotAgent()
	end := show(t, path, g, hello())
	w := attach(t, path)
	g.hang(manyJobs(50, 2))
	g.sees(t, w, 50)
	w.polling = true // as after an unknown message
	g.hang(manyJobs(51, 2))
	g.sees(t, w, 51)
	end()
	for range 3 {
		if s, err := w.Next(t.Context()); !errors.Is(err, ErrNoDaemon) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	younger := newSnapshotAgent() // counts from 1
	after := hello()
	after.Version, after.PID = "2.0", 7
	show(t, path, younger, after)
	younger.sees(t, w, 1)
	if h := w.Hello(); h.Version != "2.0" || h.PID != 7 {
		t.Errorf("hello of before: %+v", h)
	}
	if w.polling {
		t.Error("what one daemon has sent is held against the next")
	}
	younger.hang(manyJobs(2, 3))
	younger.sees(t, w, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoDaemon) {
		t.Errorf("asked to end: %v", err)
	}
	younger.sees(t, w, 2) // another context, another stream
}

// TestWatchOtherVersion checks that an unknown message of a daemon of another version
// costs deltas, not snapshots.
func TestWatchOtherVersion(t *testing.T) {
	t.Parallel()
	picture := `{"type":"snapshot","snapshot":{"seq":1,"agent":{"host":"a","mood":"good"},"tides":[1],"jobs":[{"uid":"u","salt":true}]}}` + "\n"
	for name, c := range map[string]struct {
		protocol int
		stream   string // "" = it has none
		plain    bool
	}{
		"no stream":           {Protocol, "", true},
		"another protocol":    {Protocol + 1, picture, true},
		"unknown members":     {Protocol, picture, false},
		"an unknown type":     {Protocol, picture + `{"type":"wave","wave":{}}` + "\n", true},
		"a type without body": {Protocol, `{"type":"snapshot"}` + "\n", true},
		"a change too early":  {Protocol, `{"type":"delta","delta":{"from":0,"seq":9}}` + "\n", true},
		"a gap":               {Protocol, picture + `{"type":"delta","delta":{"from":4,"seq":9}}` + "\n", true},
		"no JSON":             {Protocol, "\x00\xff\x1b[2J\n", true},
		"other types":         {Protocol, `{"type":"snapshot","snapshot":{"seq":"one"}}` + "\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "limpet.sock")
			ln, err := Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET "+prefix+"hello", func(w http.ResponseWriter, _ *http.Request) {
				answer(w, map[string]any{"protocol": c.protocol, "version": "0.9", "pid": 1, "tide": "low"}, nil)
			})
			mux.HandleFunc("GET "+prefix+"snapshot", func(w http.ResponseWriter, _ *http.Request) {
				answer(w, map[string]any{"seq": 5, "tides": []int{1}}, nil)
			})
			if c.stream != "" {
				mux.HandleFunc("GET "+prefix+"watch", func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprintf(w, `{"type":"hello","hello":{"version":"0.9","tide":1}}`+"\n%s", c.stream)
					http.NewResponseController(w).Flush()
					<-r.Context().Done()
				})
			}
			srv := &http.Server{Handler: mux}
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(ln) }()
			defer func() { srv.Close(); <-done }()
			w := attach(t, path)
			want := uint64(5)
			if !c.plain {
				want = 1
			}
			if s, err := w.Next(t.Context()); err != nil || s.Seq != 1 && s.Seq != 5 {
				t.Fatalf("%+v, %v", s, err)
			} else if s.Seq != want {
				s, err = w.Next(t.Context())
				if err != nil || s.Seq != want {
					t.Fatalf("%+v, %v; want picture %d", s, err, want)
				}
			}
			if w.polling != c.plain {
				t.Errorf("whole fakeAgent: %v, want %v", w.polling, c.plain)
			}
			if w.Hello().Version != "0.9" {
				t.Errorf("hello: %+v", w.Hello())
			}
		})
	}
}

// TestSilentDaemon checks that a daemon that sends nothing counts as unavailable.
func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	path, g := filepath.Join(t.TempDir(), "limpet.sock"), newSnapshotAgent()
	show(t, path, g, hello())
	w := attach(t, path)
	g.sees(t, w, 1)
	w.stream.idleTimeout = 50 * time.Millisecond
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), "nothing for 50ms") {
		t.Errorf("%v", err)
	}
	g.sees(t, w, 1)
}

// TestAttachAndDetach checks that a thousand dashboards leak nothing.
func TestAttachAndDetach(t *testing.T) {
	path, g := filepath.Join(t.TempDir(), "limpet.sock"), newSnapshotAgent()
	show(t, path, g, hello())
	once := func() {
		c, err := Attach(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Watch(ctx).Next(ctx); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Next(ctx, 1)
			waiting <- err
		}()
		cancel()
		if err := <-waiting; err == nil {
			t.Fatal("a picture that nobody has made")
		}
		c.Close()
	}
	once()
	goroutines, files := settled(t, func(int, int) bool { return g.looking() == 0 })
	for range 1000 {
		once()
	}
	after, held := settled(t, func(n, f int) bool { return g.looking() == 0 && n <= goroutines+2 && f <= files+2 })
	if after > goroutines+2 || held > files+2 {
		t.Errorf("after 1000 dashboards %d goroutines and %d descriptors, before %d and %d", after, held, goroutines, files)
	}
}

// settled returns the numbers of goroutines and descriptors of this process once they
// match, or after 10 s.
func settled(t *testing.T, ok func(goroutines, files int) bool) (goroutines, files int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		goroutines, files = runtime.NumGoroutine(), len(entries)
		if ok(goroutines, files) {
			return goroutines, files
		}
		select {
		case <-deadline:
			return goroutines, files
		case <-tick.C:
		}
	}
}

// FuzzFollow checks that any line gives a snapshot or an error.
func FuzzFollow(f *testing.F) {
	was, is := manyJobs(1, 3), manyJobs(2, 4)
	f.Add(encodeMessage(Message{Type: typeSnapshot, Snapshot: is}))
	f.Add(encodeMessage(Message{Type: typeDelta, Delta: snapshot.Diff(was, is)}))
	f.Add(encodeMessage(Message{Type: typeHello, Hello: &Hello{}}))
	f.Add([]byte(`{"type":"wave"}`))
	f.Add([]byte("\x00\xff"))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, shown := range []*snapshot.Snapshot{nil, was} {
			got, err := applyLine(shown, line)
			if err != nil && (got != nil || !errors.Is(err, errUnknownMessage) && !errors.Is(err, snapshot.ErrGap)) {
				t.Fatalf("%q: %v, %v", line, got, err)
			}
			if !reflect.DeepEqual(was, manyJobs(1, 3)) {
				t.Fatalf("%q has changed the picture that was shown", line)
			}
		}
	})
}

// TestLongLine checks that a line without an end is read up to a limit.
func TestLongLine(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{10: true, 100: true, 250: false} {
		in := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", n)+"\n"), 16)
		if line, err := readLine(in, 200); ok != (err == nil && len(line) == n+1) || !ok && !errors.Is(err, errUnknownMessage) {
			t.Errorf("%d bytes: %d, %v", n, len(line), err)
		}
	}
}
