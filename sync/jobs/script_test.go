package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// script is a worker that does what a test says.
type script struct {
	action string
	ready  func(t Task) error
	run    func(ctx context.Context, t *Task) error

	mu   sync.Mutex // guards runs
	runs []string   // "name attempt mark"
}

func worker(run func(ctx context.Context, t *Task) error) *script {
	return &script{action: "pull", run: run}
}

// quick is a worker that has nothing to do.
func quick() *script { return worker(func(context.Context, *Task) error { return nil }) }

func (s *script) Action() string { return s.action }

func (s *script) Ready(_ context.Context, t Task) error {
	if s.ready == nil {
		return nil
	}
	return s.ready(t)
}

func (s *script) Run(ctx context.Context, t *Task) error {
	s.mu.Lock()
	s.runs = append(s.runs, fmt.Sprintf("%s %d %s", t.Name, t.Attempt, t.Mark))
	s.mu.Unlock()
	return s.run(ctx, t)
}

func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// work is a worker that takes some time and heeds its context.
func work(d time.Duration) *script {
	return worker(func(ctx context.Context, t *Task) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
