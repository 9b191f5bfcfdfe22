package state

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/frame"
	"limpet/state/repair"
)

// CheckReport is what Check found. No problems means that pages, frames and counters are right.
type CheckReport struct {
	Frames   int      `json:"frames"` // records that were read and are sound
	Problems []string `json:"problems"`
}

// Check verifies the structure of the file, every frame and the counters, then lets bbolt check its
// pages; writers wait for that last part only. What is found does not change the file: it is
// rebuilt at the next start. The error is that of a check that could not be done, ErrClosed or the
// context's.
func (s *Store) Check(ctx context.Context) (CheckReport, error) {
	found, err := s.verifyNow(ctx)
	if err != nil {
		return CheckReport{}, err
	}
	r := CheckReport{Frames: found.Frames, Problems: found.Problems}
	if len(r.Problems) > 0 {
		return r, nil
	}
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func() error {
		err := repair.Guard(func() error { return s.cur.db.View(repair.CheckPages) })
		if err != nil {
			r.Problems = append(r.Problems, err.Error())
			_ = s.reportDamage(err)
		}
		return nil
	}})
	return r, err
}

// verifyNow walks the open file in a read transaction, without bbolt's own reading.
func (s *Store) verifyNow(ctx context.Context) (repair.Findings, error) {
	f, err := s.acquire()
	if err != nil {
		return repair.Findings{}, err
	}
	defer s.release(f)
	var found repair.Findings
	err = repair.Guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) (err error) {
			page := f.db.Info().PageSize
			p := &repair.Pages{R: f.handle, Size: tx.Size(), Page: page, High: uint64(tx.Size()) / uint64(page)}
			found, _, err = p.Verify(ctx, uint64(tx.Cursor().Bucket().Root()))
			return err
		})
	})
	if err == nil && len(found.Problems) > 0 {
		_ = s.reportDamage(frame.Corrupt("%s", found.Problems[0]))
	}
	return found, err
}

// verifyLater verifies a file whose seal was trusted at open, once, in the background, so that
// damage to a page that nothing reads, or to a key, does not stay hidden for long.
func (s *Store) verifyLater() {
	timer := time.NewTimer(verifyAfter)
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
