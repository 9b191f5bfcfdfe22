package cli_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/state"
)

// TestLongLists: what 10,000 jobs and 100,000 finished ones cost a person who lists
// them; with -figures, else a tenth. README has the figures.
func TestLongLists(t *testing.T) {
	if !*figures {
		t.Parallel()
	}
	jobs, records := 1_000, 10_000
	if *figures {
		jobs, records = 10_000, 100_000
	}
	h := newHome(t)
	h.must(t, 0, "repo", "list")
	store, _, err := state.Open(t.Context(), state.Options{Path: h.state(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	g.SetLimit(500)
	for i := range jobs {
		g.Go(func() error {
			key := state.ObjectKey{Resource: "provisioning.grafana.app/jobs", Namespace: "default", Name: fmt.Sprintf("job-%05d", i)}
			_, err := store.Mutate(context.Background(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
				return state.Mutation{Data: fmt.Appendf(nil, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":%q,"namespace":"default","uid":"u%d","resourceVersion":"%d"},"spec":{"action":"pull","repository":"r%d"}}`, key.Name, i, rev, i%10)}, nil
			})
			return err
		})
	}
	now := time.Now()
	for i := range records {
		g.Go(func() error {
			at := now.Add(-time.Duration(i) * time.Second)
			return store.PutRecord(context.Background(), state.Record{UID: fmt.Sprintf("h%d", i), Namespace: "default", Name: "r-sync", Repository: fmt.Sprintf("r%d", i%10), Action: "pull", State: "success",
				Message: "no changes to sync", Started: at.Add(-time.Second), Finished: at, Status: []byte(`{"state":"success","summary":[{"group":"dashboard.grafana.app","kind":"Dashboard","total":288,"noop":288}]}`),
				RefTo: fmt.Sprintf("%040x", i), Created: at.Add(-2 * time.Second), Commit: &state.Commit{Subject: fmt.Sprint("change panel ", i), Author: "M. Ito", At: at.Add(-time.Minute)},
				Steps: []state.Step{{Text: "look up branch:main", Seconds: 0.2}, {Text: fmt.Sprintf("fetch %07x", i), Seconds: 0.4}, {Text: "compare with the server", Seconds: 0.4}}})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args    []string
		lines   int
		most    time.Duration // of processor
		mostMiB int64
	}{
		{[]string{"job", "list"}, jobs + 1, 3 * time.Second, 200},
		{[]string{"job", "list", "-o", "jsonl"}, jobs, 3 * time.Second, 200},
		{[]string{"history", "list"}, records + 1, 5 * time.Second, 400},
		{[]string{"history", "list", "--limit", "100"}, 101, 3 * time.Second, 100},
		{[]string{"history", "list", "-o", "jsonl"}, records, 5 * time.Second, 400},
		{[]string{"history", "export"}, records, 3 * time.Second, 200},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		cmd := h.command(ctx, t, tt.args...)
		out := &counter{}
		cmd.Stdout = out
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		most := peakOf(t, cmd.Process.Pid)
		err := cmd.Wait()
		wall, took, rss := time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), most()
		cancel()
		t.Logf("limpet %v: %d lines in %.2f s, %.2f s of processor, %d MiB at most", tt.args, out.lines, wall.Seconds(), took.Seconds(), rss)
		if err != nil || out.lines != tt.lines || took > tt.most || rss > tt.mostMiB {
			t.Errorf("%v: %v, %d lines, want %d; limits %s and %d MiB", tt.args, err, out.lines, tt.lines, tt.most, tt.mostMiB)
		}
	}
}

// counter counts the lines that are written to it.
type counter struct{ lines int }

func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			c.lines++
		}
	}
	return len(p), nil
}

// peakOf looks at the memory of a process until the function that it returns is
// called, which says how much it was at most, in MiB, as the system keeps it. What
// the system says after the end of a process has that of its parent in it.
func peakOf(t *testing.T, pid int) func() int64 {
	t.Helper()
	done, ended := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var most int64
		for {
			most = max(most, statusField(t, fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")>>10)
			select {
			case <-done:
				ended <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 { close(done); return <-ended }
}
