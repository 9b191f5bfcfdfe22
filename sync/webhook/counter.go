package webhook

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// logEvery is how often what strangers do reaches the log, in one line.
const logEvery = time.Minute

// suspicious are the outcomes that have no line of their own.
var suspicious = []string{Forged, Limited, TooLarge, Broken, NotFound}

// counter counts the requests that are not worth a line each.
type counter struct {
	mu       sync.Mutex // guards what follows
	counts   map[string]int
	troubled time.Time // time of the last line of warn
}

func (t *counter) add(outcome string) {
	if !slices.Contains(suspicious, outcome) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[outcome]++
}

// run logs the counts, until ctx ends.
func (t *counter) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			t.log(log)
			return
		case <-tick.C:
			t.log(log)
		}
	}
}

func (t *counter) log(log *slog.Logger) {
	t.mu.Lock()
	counts := t.counts
	t.counts = nil
	t.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	var attrs []any
	for _, outcome := range suspicious {
		if n := counts[outcome]; n > 0 {
			attrs = append(attrs, outcome, n)
		}
	}
	log.Warn("webhook requests were refused", attrs...)
}

// warn logs a problem at most once a minute.
func (t *counter) warn(log *slog.Logger, what string, err error) {
	t.mu.Lock()
	quiet := time.Since(t.troubled) < logEvery
	if !quiet {
		t.troubled = time.Now()
	}
	t.mu.Unlock()
	if !quiet {
		log.Warn(what, "err", err)
	}
}
