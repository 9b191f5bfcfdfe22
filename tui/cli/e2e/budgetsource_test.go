package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui"
)

// dashboardOf is the variable that makes the test program a dashboard with a
// source of its own: "working" has three jobs at work, "storm" a thousand changes a
// second for as long as stormFor says, "still" nothing that ever changes. "fall" and
// "stumble" panic after a second, in what the screen does and in what it waits for.
const dashboardOf = "LIMPET_TEST_DASHBOARD"

// stormEnd is a word on the screen once the storm is over.
const stormEnd = "the-storm-is-over"

// onDashboard runs such a dashboard and says whether it was asked for.
func onDashboard() bool {
	kind := os.Getenv(dashboardOf)
	if kind == "" {
		return false
	}
	src := &weather{kind: kind, began: time.Now(), changed: make(chan struct{}, 1)}
	src.storm, _ = time.ParseDuration(os.Getenv(dashboardOf + "_FOR"))
	ctx, cancel := context.WithCancel(context.Background())
	var blowing sync.WaitGroup
	blowing.Go(func() { src.blow(ctx) })
	err := tui.Run(ctx, src, tui.Options{In: os.Stdin, Out: os.Stdout, Color: "auto", Env: os.Getenv})
	cancel()
	blowing.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// weather is a source of the test.
type weather struct {
	kind    string
	began   time.Time
	storm   time.Duration
	changed chan struct{} // holds one: something is new

	mu   sync.Mutex // guards what follows
	n    int        // changes so far
	over bool
}

// blow changes things until ctx ends.
func (w *weather) blow(ctx context.Context) {
	gap := time.Second // of jobs that go on by one file a second
	if w.kind == "storm" {
		gap = time.Millisecond
	}
	tick := time.NewTicker(gap)
	defer tick.Stop()
	w.touch()
	for w.kind != "still" {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		w.n++
		w.over = w.kind == "storm" && time.Since(w.began) >= w.storm
		over := w.over
		w.mu.Unlock()
		w.touch()
		if over {
			return
		}
	}
}

func (w *weather) touch() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Next makes a picture of all changes so far.
func (w *weather) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	select {
	case <-w.changed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	n, over := w.n, w.over
	w.mu.Unlock()
	if w.kind == "stumble" && n > 0 {
		panic("stumbled")
	}
	now := time.Now()
	s := &snapshot.Snapshot{Seq: uint64(n) + 1, At: now, Agent: snapshot.Agent{Host: "edge-07", PID: 4121, Version: "1.0.0", Started: w.began, Drivers: 3, Claims: 3, Namespace: "default"},
		API: snapshot.API{Server: "https://grafana.example", Up: true, Synced: true, Since: w.began}}
	for i := range 3 {
		done := int64(n % 500)
		s.Jobs = append(s.Jobs, snapshot.Job{UID: fmt.Sprint("w", i), Namespace: "default", Name: fmt.Sprint("pull-", i), Repository: fmt.Sprint("repo-", i), Action: "pull", Detail: "full", State: "working", Owner: "this",
			Message: fmt.Sprintf("writing dashboards/%04d.json", n), Progress: float64(done) / 5, Done: done, Total: 500, Created: w.began, Started: w.began, LeaseUntil: now.Add(50 * time.Second), RenewAt: now.Add(10 * time.Second), Attempt: 1})
	}
	rows := 40
	if w.kind == "storm" {
		rows = 900 // as many as a picture has
	}
	for i := range rows {
		name := fmt.Sprintf("push-%04d", (i+n)%5000)
		s.Jobs = append(s.Jobs, snapshot.Job{UID: name, Namespace: "default", Name: name, Repository: "repo-3", Action: "push", State: "pending", Created: w.began, Attempt: 1})
		if w.kind != "storm" {
			s.Jobs[len(s.Jobs)-1].UID, s.Jobs[len(s.Jobs)-1].Name = fmt.Sprint("p", i), fmt.Sprint("push-", i)
		}
	}
	if w.kind == "still" {
		s.Jobs = nil
	}
	for i := range 20 {
		// Seconds ago would change each second, which is not what nothing works means.
		s.Repos = append(s.Repos, snapshot.Repo{UID: fmt.Sprint("r", i), Namespace: "default", Name: fmt.Sprint("repo-", i), Type: "git", Enabled: true, Healthy: true, Checked: w.began, SyncState: "success", Synced: w.began.Add(-10 * time.Minute)})
	}
	if over {
		s.Jobs[0].Name = stormEnd
	}
	s.Counts = snapshot.Count(s.Jobs, now)
	return s, nil
}

func (*weather) Act(context.Context, tui.Action) error { return nil }
func (*weather) Past(context.Context, snapshot.PastQuery) (snapshot.PastPage, error) {
	return snapshot.PastPage{}, nil
}
func (*weather) PastJob(context.Context, string) (snapshot.Job, error) {
	return snapshot.Job{}, errors.New("not in the history")
}
func (*weather) Care(context.Context) (snapshot.Care, error) {
	return snapshot.Care{At: time.Now()}, nil
}
func (*weather) Lately(context.Context, string, string) (snapshot.Lately, error) {
	return snapshot.Lately{}, nil
}
func (*weather) Compare(context.Context, snapshot.CompareQuery) (snapshot.Comparison, error) {
	return snapshot.Comparison{}, nil
}
func (*weather) Test(context.Context, snapshot.Subject) ([]snapshot.Finding, error) { return nil, nil }
func (*weather) Manifest(context.Context, snapshot.Subject) (string, error)         { return "", nil }
func (*weather) Name() string                                                       { return "attached to daemon 4121" }
func (w *weather) Note() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kind == "fall" && w.n > 0 {
		panic("fell")
	}
	return ""
}
