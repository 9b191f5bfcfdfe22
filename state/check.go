package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/atomicfile"
	"limpet/state/frame"
	"limpet/state/repair"
)

// CheckReport is what Check found. No problems means that pages, frames and counters are right.
type CheckReport struct {
	Frames   int      `json:"frames"` // records that were read and are sound
	Problems []string `json:"problems"`
}

// Check verifies the structure of the file, every frame and the counters, then lets bbolt check its pages; writers wait
// for that last part only. What is found does not change the file: it is rebuilt at the next start. The error is that of
// a check that could not be done, ErrClosed or the context's.
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

// verifyLater verifies a file whose seal was trusted at open, once, in the background, so that damage to a page that nothing
// reads, or to a key, does not stay hidden for long.
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

// Info describes the file.
type Info struct {
	Path      string    `json:"path"`
	Bytes     int64     `json:"bytes"`     // size of the file
	FreeBytes int64     `json:"freeBytes"` // of them free for new records
	Schema    int       `json:"schema"`
	Created   time.Time `json:"created"` // when the file was first made, or rebuilt after damage
	Claims    int       `json:"claims"`  // jobs that this agent wants, holds or completes
	Resting   int       `json:"resting"` // jobs that it has given back and remembers
	History   int       `json:"history"`

	HistoryBytes int64 `json:"historyBytes"` // of the records with their keys and frames

	Objects  int       `json:"objects"`
	Facts    int       `json:"facts"`
	Secrets  int       `json:"secrets"`
	Oldest   time.Time `json:"oldest,omitzero"` // finish of the oldest record of the history; zero when there is none
	Newest   time.Time `json:"newest,omitzero"`
	Revision uint64    `json:"revision"`
}

// Info returns counts and sizes without reading more records than those of claims, which are few.
func (s *Store) Info(ctx context.Context) (Info, error) {
	i := Info{Path: s.path}
	err := s.view(ctx, func(v view) error {
		m, err := v.meta()
		if err != nil {
			return err
		}
		i.Schema, i.Created, i.Revision = m.Schema, m.Created, m.Revision
		i.Resting = v.countResting(ctx)
		i.Claims = m.Counters[frame.Claims].N - i.Resting
		i.History, i.HistoryBytes = m.Counters[frame.History].N, m.Counters[frame.History].Bytes
		i.Objects, i.Facts, i.Secrets = m.Counters[frame.Objects].N, m.Counters[frame.Facts].N, m.Counters[frame.Secrets].N
		i.FreeBytes = (&file{db: v.tx.DB()}).free()
		c := v.bucket(frame.History).Cursor()
		first, _ := c.First()
		last, _ := c.Last()
		i.Oldest, i.Newest = finishOf(first), finishOf(last)
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	if st, err := os.Stat(s.path); err == nil {
		i.Bytes = st.Size()
	}
	return i, nil
}

// countResting counts the claims that are none any more. A damaged one ends the count: to find damage is the duty of others.
func (v view) countResting(ctx context.Context) (n int) {
	_ = v.scan(ctx, frame.Claims, nil, nil, func(_ []byte, f frame.Frame) (bool, error) {
		var c Claim
		if json.Unmarshal(f.Body, &c) == nil && c.Phase == PhaseResting {
			n++
		}
		return true, nil
	})
	return n
}

// finishOf reads the time of a history key.
func finishOf(key []byte) time.Time {
	if len(key) < 8 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(key)))
}

// Compact rewrites the file without its free space and returns the sizes before and after, in bytes. Writers wait,
// readers do not. The new file is durable before it takes the place of the old one by rename, so that a power cut
// leaves one or the other.
func (s *Store) Compact(ctx context.Context) (before, after int64, err error) {
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func() error {
		if s.readOnly {
			return ErrReadOnly
		}
		old := s.cur
		fresh, err := compactInto(ctx, old, s.path, s.maxSize, true)
		if err != nil {
			return fmt.Errorf("compact state: %w", err)
		}
		before, after = old.size(), fresh.size()
		if fresh == old {
			return nil
		}
		s.files.Add(1)
		s.mu.Lock()
		s.cur = fresh
		s.mu.Unlock()
		s.release(old)
		return nil
	}})
	return before, after, err
}

// compactInto writes the records of src into a new file that takes the place of the one at path, and returns it open.
// src stays open and must not be written to meanwhile. With smaller it returns src where the new file is not smaller.
func compactInto(ctx context.Context, src *file, path string, maxSize int64, smaller bool) (*file, error) {
	name := path + suffixCompacting
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, frame.Classify(err)
	}
	dst, err := openBolt(name, boltOptions(maxSize))
	if err == nil {
		err = src.copyTo(ctx, dst)
		if err == nil && smaller && dst.size() >= src.size() {
			return src, errors.Join(dst.close(), os.Remove(name))
		}
		if err == nil {
			err = frame.Classify(os.Rename(name, path))
		}
		if err != nil {
			err = errors.Join(err, dst.close())
		}
	}
	if err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	// With the rename the new file is the one, also when its directory cannot be synced: what is written to the old one
	// from here on would be lost for sure, not only after a power cut.
	_ = atomicfile.SyncDir(filepath.Dir(path))
	return dst, nil
}

// copyTo copies all records, verifying each frame and counter.
func (f *file) copyTo(ctx context.Context, dst *file) error {
	return repair.Guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			v := view{tx: tx}
			m, err := v.meta()
			if err != nil {
				return err
			}
			b := newBuilder(dst, m)
			for _, name := range frame.DataBuckets {
				err := v.scanVerified(ctx, name, func(k []byte, f frame.Frame) error { return b.add(name, k, f) })
				if err != nil {
					return errors.Join(err, b.abort())
				}
			}
			return b.finish()
		})
	})
}

// size of the file in bytes.
func (f *file) size() int64 {
	info, err := f.handle.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// free is how many bytes of the file are pages without records.
func (f *file) free() int64 {
	stats := f.db.Stats()
	return int64(stats.FreePageN+stats.PendingPageN) * int64(f.db.Info().PageSize)
}

// replaceFile renames a durable file over another and makes the rename durable.
func replaceFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return frame.Classify(err)
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// Backup writes a consistent copy of the file to w and returns its size in bytes. Neither writers nor Compact are held
// up by a slow w; Close waits for it.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var n int64
	out := &copyWriter{ctx: ctx, w: w}
	err := s.view(ctx, func(v view) (err error) {
		n, err = v.tx.WriteTo(&headPlacer{w: out})
		return err
	})
	if out.err != nil {
		// bbolt flattens the writer's error into text.
		err = out.err
	}
	if err != nil {
		return n, fmt.Errorf("back up state: %w", err)
	}
	return n, nil
}

// copyWriter ends a long copy with its context.
type copyWriter struct {
	ctx context.Context // of the one call that copies
	w   io.Writer
	err error // first one
}

func (c *copyWriter) Write(p []byte) (n int, err error) {
	if c.err = context.Cause(c.ctx); c.err == nil {
		n, c.err = c.w.Write(p)
	}
	return n, c.err
}

// headPlacer passes a copy by bbolt on with its heads in their slots. bbolt writes each of the two pages at once.
type headPlacer struct {
	w      io.Writer
	first  []byte // the first page, kept until the second is there
	placed bool
}

func (h *headPlacer) Write(p []byte) (int, error) {
	if h.placed {
		return h.w.Write(p)
	}
	if h.first == nil {
		h.first = bytes.Clone(p)
		return len(p), nil
	}
	h.placed = true
	_, err := h.w.Write(repair.PlaceHeads(h.first, p))
	return len(p), err
}
