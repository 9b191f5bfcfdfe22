package state

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// smallFile returns the bytes of a closed file with some records of all kinds.
func smallFile(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s, _, err := Open(context.Background(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	sample(t, s, rand.New(rand.NewPCG(3, 4)), 40)
	closed(t, s)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestWalkMeetsWhatBboltMeets holds our reading of the pages against bbolt's own.
func TestWalkMeetsWhatBboltMeets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	fillHistory(t, path, 3<<20)
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
	head := readMetas(r)[0]
	w := newWalk(&pages{r: r, size: int64(len(data)), page: head.page, high: head.high}, func(b bucket, k, v []byte) error {
		got = append(got, [2]string{string(b) + "/" + string(k), string(v)})
		return nil
	})
	if err := w.run(head.root); err != nil {
		t.Fatal(err)
	}
	if len(w.problems) > 0 {
		t.Errorf("problems in a sound file: %v", w.problems)
	}
	if !slices.Equal(got, want) {
		t.Errorf("walk met %d records, bbolt %d", len(got), len(want))
	}
}

// FuzzPages patches a sound file; no patch may make the reader fault, panic or run without end.
func FuzzPages(f *testing.F) {
	data := smallFile(f)
	f.Add(uint32(0), []byte{1, 2, 3}, uint32(4096), []byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Add(uint32(3*4096+10), []byte{0xFF, 0xFF, 0xFF}, uint32(2*4096+8), []byte{1})
	f.Add(uint32(5*4096+16), []byte{0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, uint32(0), []byte(nil))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, at2 uint32, patch2 []byte) {
		spoilt := slices.Clone(data)
		copy(spoilt[int(at)%len(spoilt):], patch)
		copy(spoilt[int(at2)%len(spoilt):], patch2)
		r := bytes.NewReader(spoilt)
		p := &pages{r: r, size: int64(len(spoilt)), page: 4096, high: uint64(len(spoilt) / 4096)}
		for _, m := range readMetas(r) {
			p.page, p.high = m.page, m.high
			found, w, err := p.verify(context.Background(), m.root)
			if err != nil {
				t.Fatal(err)
			}
			if m.freelist != noFreelist {
				p.verifyFree(m.freelist, w.seen, &found)
			}
		}
		s := newSalvage(r, int64(len(spoilt)), func(salvaged) error { return nil })
		if _, err := s.run(); err != nil {
			t.Fatal(err)
		}
	})
}
