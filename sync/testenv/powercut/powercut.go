// Package powercut makes, for tests, what a power cut leaves of a state file.
//
// What is modelled is a disk that keeps its word: what was synced is there, of
// what was not any set of sectors of 512 bytes, in any order, and a growing file
// may be longer or not. A disk that says it has written what it has not is not
// modelled: no file survives that.
package powercut

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Transaction is one entry of the journal that a binary with failpoints keeps:
// see journal_on.go in package state.
type Transaction struct {
	Inode uint64 // of the file; another one when the file was replaced
	Size  int
	Pages []Page
	Ops   []Op
}

// Page is a part of the file that became another one.
type Page struct {
	At   int
	Data []byte
}

// Op is one record that was written or deleted.
type Op struct {
	Bucket    string
	Key, Body []byte
	Gone      bool
}

// Read returns what the processes that kept a journal in dir have written, in
// order. The last entry of one that was killed may be cut off.
func Read(dir string) (all []Transaction, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for dec := gob.NewDecoder(bytes.NewReader(data)); ; {
			var t Transaction
			err := dec.Decode(&t)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read journal %s: %w", name, err)
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// Draw returns which transactions are cut, by their places in all: n of them, never the first one,
// or all others where there are fewer.
func Draw(rng *rand.Rand, all []Transaction, n int) map[int]bool {
	drawn := map[int]bool{}
	for _, at := range rng.Perm(len(all) - 1) {
		if len(drawn) < n {
			drawn[1+at] = true
		}
	}
	return drawn
}

// After returns the file after the transaction; before is nil where it is
// another file.
func (t Transaction) After(before []byte) []byte {
	data := make([]byte, t.Size)
	copy(data, before)
	for _, p := range t.Pages {
		copy(data[p.At:], p.Data)
	}
	return data
}

// Tear returns what a power cut between two states of one file can leave: bbolt
// writes its pages in any order and waits for the disk, then writes one head. So
// either some sectors of the pages are new and both heads are old, or all is new,
// which whole says.
func Tear(rng *rand.Rand, before, after []byte) (data []byte, whole bool) {
	if rng.IntN(4) == 0 {
		return after, true
	}
	data = slices.Clone(before)
	if len(after) > len(data) && rng.IntN(2) == 0 {
		data = append(data, make([]byte, len(after)-len(data))...)
	}
	const heads, sector = 2 * 4096, 512
	for at := heads; at+sector <= min(len(data), len(after)); at += sector {
		if rng.IntN(2) == 0 {
			copy(data[at:at+sector], after[at:])
		}
	}
	return data, false
}
