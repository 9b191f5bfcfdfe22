package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"limpet/state/frame"

	"go.etcd.io/bbolt"
)

func TestMain(m *testing.M) {
	if RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// TestProbeIsStopped: a signal that goes to the child as well, as Ctrl-C in a terminal and the stop
// of a systemd unit do, says nothing about the file. Death by a fault is damage.
func TestProbeIsStopped(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL, syscall.SIGSEGV} {
		if signal.Ignored(sig) {
			continue // as SIGHUP below nohup: it stops neither of them
		}
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			// A pipe that nobody writes to keeps the child where it is.
			path := filepath.Join(t.TempDir(), "limpet.db")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := startProbe(t.Context(), path, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			err = c.verdict()
			if damage := sig == syscall.SIGSEGV; errors.Is(err, frame.ErrCorrupt) != damage || errors.Is(err, ErrNoChild) == damage {
				t.Errorf("the verdict is %v", err)
			}
		})
	}
}

// newFile writes a bbolt file with n records in every bucket and a meta record that counts them.
func newFile(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	m := frame.NewMeta(1, 0, time.UnixMilli(1_700_000_000_000))
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range frame.DataBuckets {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			c := m.Counters[name]
			for i := range n {
				key := fmt.Appendf(nil, "key-%06d", i)
				raw := frame.Encode(name, key, bytes.Repeat([]byte{'x'}, rng.IntN(900)), uint64(i))
				c.Add(key, raw)
				if err := b.Put(key, raw); err != nil {
					return err
				}
			}
			m.Counters[name] = c
		}
		b, err := tx.CreateBucket([]byte(frame.MetaBucket))
		if err != nil {
			return err
		}
		raw, err := m.Encode(time.UnixMilli(1_700_000_000_000))
		if err != nil {
			return err
		}
		return b.Put(frame.MetaKey, raw)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWalkMeetsWhatBboltMeets holds our reading of the pages against bbolt's own.
func TestWalkMeetsWhatBboltMeets(t *testing.T) {
	t.Parallel()
	path := newFile(t, 1000)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var want, got [][2]string
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				want = append(want, [2]string{string(name) + "/" + string(k), string(v)})
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(data)
	head := ReadHeads(r)[0]
	w := NewWalk(&Pages{R: r, Size: int64(len(data)), Page: head.Page, High: head.High}, func(b frame.Bucket, k, v []byte) error {
		got = append(got, [2]string{string(b) + "/" + string(k), string(v)})
		return nil
	})
	if err := w.Run(head.Root); err != nil {
		t.Fatal(err)
	}
	if len(w.problems) > 0 {
		t.Errorf("problems in a sound file: %v", w.problems)
	}
	if !slices.Equal(got, want) {
		t.Errorf("walk met %d records, bbolt %d", len(got), len(want))
	}
}

// TestOrphansAreNotHeldInMemory: a large file without its root is salvaged in the memory of its
// keys.
func TestOrphansAreNotHeldInMemory(t *testing.T) {
	const n, limit = 4000, 8 << 20
	path := newFile(t, n) // 12 MB
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := ReadHeads(f)[0]
	if _, err := f.WriteAt(make([]byte, head.Page), int64(head.Root)*int64(head.Page)); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools keep what they have for one round
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, found := heap(), 0
	_, err = Salvage(t.Context(), path, func(Record) error {
		if found++; found == 1 {
			if held := heap() - before; held > limit {
				t.Errorf("%d bytes are held at the first record, want %d at most", held, limit)
			}
		}
		return nil
	})
	if want := n * (len(frame.DataBuckets) - 1); err != nil || found != want { // without the index
		t.Errorf("%d records, want %d: %v", found, want, err)
	}
}

// FuzzPages patches a sound file; no patch may make the reader fault, panic or run without end.
func FuzzPages(f *testing.F) {
	data, err := os.ReadFile(newFile(f, 10))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{1, 2, 3}, uint32(4096), []byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Add(uint32(3*4096+10), []byte{0xFF, 0xFF, 0xFF}, uint32(2*4096+8), []byte{1})
	f.Add(uint32(5*4096+16), []byte{0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, uint32(0), []byte(nil))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, at2 uint32, patch2 []byte) {
		spoilt := slices.Clone(data)
		copy(spoilt[int(at)%len(spoilt):], patch)
		copy(spoilt[int(at2)%len(spoilt):], patch2)
		r := bytes.NewReader(spoilt)
		p := &Pages{R: r, Size: int64(len(spoilt)), Page: 4096, High: uint64(len(spoilt) / 4096)}
		for _, m := range ReadHeads(r) {
			p.Page, p.High = m.Page, m.High
			found, w, err := p.Verify(context.Background(), m.Root)
			if err != nil {
				t.Fatal(err)
			}
			if m.Freelist != NoFreelist {
				p.verifyFree(m.Freelist, w.Seen, &found)
			}
		}
		s := newSalvage(r, int64(len(spoilt)), func(Record) error { return nil })
		if _, err := s.run(); err != nil {
			t.Fatal(err)
		}
	})
}
