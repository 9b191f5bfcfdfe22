package state

import (
	"context"
	"time"

	"go.etcd.io/bbolt"
)

// CheckReport is what Check found. No problems means that pages, frames and tallies are right.
type CheckReport struct {
	Frames   int      `json:"frames"` // records that were read and are sound
	Problems []string `json:"problems"`
}

// Check verifies the structure of the file, every frame and the tallies, then lets bbolt check its pages; writers wait
// for that last part only. What is found does not change the file: it is rebuilt at the next start. The error is that of
// a check that could not be done, ErrClosed or the context's.
func (s *Store) Check(ctx context.Context) (CheckReport, error) {
	found, err := s.verifyNow(ctx)
	if err != nil {
		return CheckReport{}, err
	}
	r := CheckReport{Frames: found.frames, Problems: found.problems}
	if len(r.Problems) > 0 {
		return r, nil
	}
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func() error {
		err := guard(func() error { return s.cur.db.View(checkPages) })
		if err != nil {
			r.Problems = append(r.Problems, err.Error())
			_ = s.noted(err)
		}
		return nil
	}})
	return r, err
}

// verifyNow walks the open file in a read transaction, without bbolt's own reading.
func (s *Store) verifyNow(ctx context.Context) (findings, error) {
	f, err := s.acquire()
	if err != nil {
		return findings{}, err
	}
	defer s.release(f)
	var found findings
	err = guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) (err error) {
			page := f.db.Info().PageSize
			p := &pages{r: f.handle, size: tx.Size(), page: page, high: uint64(tx.Size()) / uint64(page)}
			found, _, err = p.verify(ctx, uint64(tx.Cursor().Bucket().Root()))
			return err
		})
	})
	if err == nil && len(found.problems) > 0 {
		_ = s.noted(corrupt("%s", found.problems[0]))
	}
	return found, err
}

// scrub verifies a file that was opened on the word of its seal, once and later, so that damage to a page that nobody
// reads, or to a key, does not stay hidden for long.
func (s *Store) scrub() {
	timer := time.NewTimer(scrubAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.life.Done():
		return
	}
	if _, err := s.verifyNow(s.life); err != nil && s.life.Err() == nil {
		s.log.Warn("verify state file", "path", s.path, "err", err)
	}
}
