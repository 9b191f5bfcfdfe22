package state

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"limpet/state/frame"
)

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
		i.Schema = m.Schema
		i.Created = m.Created
		i.Revision = m.Revision
		i.Resting = v.countResting(ctx)
		i.Claims = m.Counters[frame.Claims].N - i.Resting
		i.History, i.HistoryBytes = m.Counters[frame.History].N, m.Counters[frame.History].Bytes
		i.Objects = m.Counters[frame.Objects].N
		i.Facts = m.Counters[frame.Facts].N
		i.Secrets = m.Counters[frame.Secrets].N
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

// countResting counts the claims that are none any more. A damaged one ends the count: to find
// damage is the duty of others.
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

// SpaceError is the error for objects that the size cap does not allow. It is an ErrFull.
type SpaceError struct {
	Objects    int
	Need, Left int64 // bytes, the first one estimated
	Most       int64 // the size cap
}

func (e *SpaceError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("%d new objects need about %d MiB of the state file, which has %d MiB left of %d MiB", e.Objects,
		(e.Need+mib-1)/mib, e.Left/mib, e.Most/mib)
}

func (e *SpaceError) Unwrap() error { return ErrFull }

// SpaceFor returns a *SpaceError if n more objects like those of a sample do not fit below the size
// cap. sample reads it, and is called only where objects of frequent sizes might not fit.
func (s *Store) SpaceFor(ctx context.Context, n int, sample func(context.Context) ([][]byte, error)) error {
	const frequent = 64 << 10 // what large dashboards take, compressed
	i, err := s.Info(ctx)
	if err != nil {
		return err
	}
	left := s.maxSize - (i.Bytes - i.FreeBytes)
	if n == 0 || int64(n)*frequent < left {
		return nil
	}
	objects, err := sample(ctx)
	if err != nil || len(objects) == 0 {
		return err
	}
	var need int64
	for _, data := range objects {
		stored, err := s.objects.Pack(data)
		if err != nil {
			return err
		}
		page := os.Getpagesize()
		need += int64((frame.HeaderSize + len(stored) + page - 1) / page * page)
	}
	need = need / int64(len(objects)) * int64(n)
	if need <= left {
		return nil
	}
	return &SpaceError{Objects: n, Need: need, Left: max(left, 0), Most: s.maxSize}
}
