package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

var simSumsFile = flag.String("sums", "", "file to write the counts of TestSimulation to")

// simulateApart splits the seeds over n processes with one P each. A bubble hands
// over from goroutine to goroutine all the time; between Ps that costs as much as
// all else together. The first process that finds a broken law stops the others,
// unless they are to keep going.
func simulateApart(t *testing.T, n int, sums *simSums) {
	dir := t.TempDir()
	g, ctx := errgroup.WithContext(t.Context())
	if *simKeep {
		ctx = t.Context()
	}
	for i := range n {
		from, to := i**simSeeds/n, (i+1)**simSeeds/n
		args := []string{"-test.run=^TestSimulation$", fmt.Sprintf("-test.timeout=%s", untilDeadline(t)), fmt.Sprintf("-keep-going=%t", *simKeep),
			fmt.Sprintf("-seed=%d", *simSeed+uint64(from)), fmt.Sprintf("-seeds=%d", to-from), "-sums=" + filepath.Join(dir, fmt.Sprint(i))}
		g.Go(func() error { return simulateProcess(ctx, args) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for i := range n {
		var part simSums
		if data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i))); err == nil && json.Unmarshal(data, &part) == nil {
			sums.join(part)
		}
	}
	if !t.Failed() && sums.Counts["worlds"] != *simSeeds {
		t.Errorf("%d of %d seeds ran", sums.Counts["worlds"], *simSeeds)
	}
}

// simulateProcess is one of the processes. Its error has all that it said.
func simulateProcess(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, &said)
	}
	return context.Cause(ctx)
}

// untilDeadline is the time that is left to the test, 0 = without end.
func untilDeadline(t *testing.T) time.Duration {
	at, ok := t.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(at), time.Second)
}
