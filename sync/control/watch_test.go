package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/snapshot"
)

// manyJobs returns a snapshot of n jobs and repositories; the first job runs.
func manyJobs(seq uint64, n int) *snapshot.Snapshot {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s := &snapshot.Snapshot{Seq: seq, At: at.Add(time.Duration(seq) * time.Second), Agent: snapshot.Agent{Host: "edge-07", PID: 4121}}
	for i := range n {
		s.Jobs = append(s.Jobs, snapshot.Job{UID: fmt.Sprintf("u%04d", i), Name: fmt.Sprintf("site-%04d-sync", i), State: "pending", Created: at})
		s.Repos = append(s.Repos, snapshot.Repo{Name: fmt.Sprintf("site-%04d", i), URL: "https://git.example.com/sites/dashboards.git",
			Checked: at})
	}
	if n > 0 {
		s.Jobs[0].State, s.Jobs[0].Done, s.Jobs[0].Total = "working", int64(seq), 288
	}
	return s
}

// sees fails unless the next snapshot is the one that the agent has published last.
func (a *fakeAgent) sees(t testing.TB, w *Watch) {
	t.Helper()
	for {
		got, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Seq < a.current.Seq {
			continue // one in flight
		}
		x, _ := json.Marshal(got)
		y, _ := json.Marshal(a.current)
		if string(x) != string(y) {
			t.Fatalf("snapshot %d is\n%s\nwant\n%s", got.Seq, x, y)
		}
		return
	}
}

func TestWatchersGetEveryChange(t *testing.T) {
	t.Parallel()
	path, a := filepath.Join(t.TempDir(), "limpet.sock"), newFakeAgent()
	a.publish(manyJobs(1, 0))
	serveAgent(t, path, a, nil, testHello())
	var all []*Watch
	for range 5 {
		all = append(all, attach(t, path).Watch(t.Context()))
	}
	for seq := uint64(2); seq < 30; seq++ {
		a.publish(manyJobs(seq, int(seq)))
		for _, w := range all {
			a.sees(t, w)
		}
	}
}

// pipes is a listener of connections in memory, whose deadlines have the time of a synctest bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestStalledReader: a reader that leaves its data unread delays no other reader, keeps no more
// than one snapshot in the daemon, and is disconnected.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, ln := newFakeAgent(), make(pipes)
		stop := serve(t, ln, &Server{Hello: testHello(), Agent: a, API: http.NotFoundHandler()})
		conn, server := net.Pipe()
		ln <- server
		fmt.Fprintf(conn, "GET %swatch HTTP/1.1\r\nHost: limpet\r\n\r\n", prefix)
		began := time.Now()
		for seq := uint64(2); seq < 50; seq++ {
			a.publish(manyJobs(seq, 100))
			synctest.Wait()
			if n := a.addReader(0); n != 0 {
				t.Fatalf("the agent is asked for snapshot %d while the last one is unread", seq)
			}
		}
		time.Sleep(writeTimeout + time.Second)
		if _, err := io.ReadAll(conn); err != nil || time.Since(began) > writeTimeout+2*time.Second {
			t.Errorf("it is still connected after %s: %v", time.Since(began), err)
		}
		stop()
	})
}

// TestWatchAcrossRestart: Next fails without a daemon and continues with the snapshots of the next
// daemon, whatever their numbers.
func TestWatchAcrossRestart(t *testing.T) {
	t.Parallel()
	path, a := filepath.Join(t.TempDir(), "limpet.sock"), newFakeAgent()
	end := serveAgent(t, path, a, nil, testHello())
	w := attach(t, path).Watch(t.Context())
	a.publish(manyJobs(50, 2))
	a.sees(t, w)
	end()
	for range 3 {
		if s, err := w.Next(t.Context()); !errors.Is(err, ErrNoDaemon) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	younger := newFakeAgent() // counts from 1
	after := testHello()
	after.Version, after.PID = "2.0", 7
	serveAgent(t, path, younger, nil, after)
	younger.sees(t, w)
	if h := w.Hello(); h.Version != "2.0" || h.PID != 7 {
		t.Errorf("hello of before: %+v", h)
	}
	younger.publish(manyJobs(2, 3))
	younger.sees(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoDaemon) {
		t.Errorf("cancelled: %v", err)
	}
	younger.sees(t, w) // another context, another stream
}

// TestWatchOtherVersion: unknown members are ignored; a stream that is not understood is an error,
// and changes no snapshot.
func TestWatchOtherVersion(t *testing.T) {
	t.Parallel()
	const first = `{"snapshot":{"seq":1,"agent":{"host":"a","mood":"good"},"tides":[1],"jobs":[{"uid":"u","salt":true}]}}` + "\n"
	for name, stream := range map[string]string{
		"unknown members": first,
		"unknown message": `{"wave":{}}` + "\n",
		"delta too early": `{"delta":{"from":0,"head":{"seq":9}}}` + "\n",
		"gap":             first + `{"delta":{"from":4,"head":{"seq":9}}}` + "\n",
		"no JSON":         "\x00\xff\x1b[2J\n",
		"other types":     `{"snapshot":{"seq":"one"}}` + "\n",
		"no stream":       "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "limpet.sock")
			ln, err := Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			mux := http.NewServeMux()
			handle(mux, "hello", func(context.Context, none) (map[string]any, error) {
				return map[string]any{"protocol": Protocol, "version": "0.9", "tide": "low"}, nil
			})
			if stream != "" {
				mux.HandleFunc(prefix+"watch", func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprintf(w, `{"hello":{"version":"0.9","tide":1}}`+"\n%s", stream)
					http.NewResponseController(w).Flush()
					<-r.Context().Done()
				})
			}
			srv := &http.Server{Handler: mux}
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(ln) }()
			defer func() { srv.Close(); <-done }()
			w := attach(t, path).Watch(t.Context())
			s, err := w.Next(t.Context())
			if name == "gap" && err == nil {
				s, err = w.Next(t.Context())
			}
			if ok := name == "unknown members"; ok != (err == nil) || ok && s.Seq != 1 || !ok && !errors.Is(err, ErrNoDaemon) {
				t.Errorf("%+v, %v", s, err)
			}
			if w.Hello().Version != "0.9" {
				t.Errorf("hello: %+v", w.Hello())
			}
		})
	}
}

// TestSilentDaemon: a daemon that sends nothing counts as unavailable.
func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	path, a := filepath.Join(t.TempDir(), "limpet.sock"), newFakeAgent()
	serveAgent(t, path, a, nil, testHello())
	w := attach(t, path).Watch(t.Context())
	a.sees(t, w)
	w.idleTimeout = 50 * time.Millisecond
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), "nothing for 50ms") {
		t.Errorf("%v", err)
	}
	w.idleTimeout = idleTimeout
	a.sees(t, w)
}

// TestAttachAndDetach: a thousand dashboards leak nothing.
func TestAttachAndDetach(t *testing.T) {
	path, a := filepath.Join(t.TempDir(), "limpet.sock"), newFakeAgent()
	serveAgent(t, path, a, nil, testHello())
	once := func() {
		c, err := Attach(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		w := c.Watch(ctx)
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := w.Next(ctx)
			waiting <- err
		}()
		cancel()
		if err := <-waiting; err == nil {
			t.Fatal("a snapshot that was not published")
		}
	}
	once()
	goroutines, files := settled(t, func(int, int) bool { return a.addReader(0) == 0 })
	for range 1000 {
		once()
	}
	after, held := settled(t, func(n, f int) bool { return a.addReader(0) == 0 && n <= goroutines+2 && f <= files+2 })
	if after > goroutines+2 || held > files+2 {
		t.Errorf("after 1000 dashboards %d goroutines and %d descriptors, before %d and %d", after, held, goroutines, files)
	}
}

// settled returns the numbers of goroutines and descriptors of this process once they match, or
// after 10 s.
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
