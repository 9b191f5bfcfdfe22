package artifact

import (
	"context"
	"time"
)

// Step has f called before each step of a Put that changes the disk; its error ends the Put.
func (s *Store) Step(f func(name string) error) { s.step = f }

// Prune removes what is too old at a time.
func (s *Store) Prune(ctx context.Context, now time.Time) error { return s.prune(ctx, now) }
