//go:build failpoints

package state

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"limpet/state/frame"
)

// A binary for crash tests writes down, in the directory that this variable names, what each of its
// transactions has written: the records, and the pages of the file that became others by it.
const journalEnv = "LIMPET_STATE_JOURNAL"

// As long as the file that one of these variables names exists, transactions fail as they do on a
// file system that an error of its disk has made read-only, or on one without space for the pages
// of any transaction.
var diskFaults = map[string]error{"LIMPET_STATE_READONLY": syscall.EROFS, "LIMPET_STATE_FULL": syscall.ENOSPC}

// Names and members of these types are the form of the journal.
type (
	// journalEntry is one transaction.
	journalEntry struct {
		Inode uint64 // another one: the file was replaced
		Size  int
		Pages []journalPage
		Ops   []journalOp
	}
	journalPage struct {
		At   int
		Data []byte
	}
	journalOp struct {
		Bucket string
		Key    []byte
		Body   []byte
		Gone   bool
	}
)

// journal is what one transaction writes.
type journal struct{ ops *[]journalOp }

func (*journal) begin() error {
	for name, fails := range diskFaults {
		if file := os.Getenv(name); file != "" {
			if _, err := os.Stat(file); err == nil {
				return fails
			}
		}
	}
	return nil
}

func (j *journal) put(b frame.Bucket, key, body []byte) {
	j.add(journalOp{string(b), bytes.Clone(key), bytes.Clone(body), false})
}
func (j *journal) remove(b frame.Bucket, key []byte) {
	j.add(journalOp{string(b), bytes.Clone(key), nil, true})
}

func (j *journal) add(op journalOp) {
	if j.ops == nil {
		j.ops = new([]journalOp)
	}
	*j.ops = append(*j.ops, op)
}

var journalFile struct {
	mu    sync.Mutex // guards what follows
	out   *gob.Encoder
	inode uint64
	last  []byte
}

// commit writes the entry of a transaction that is durable and not yet acknowledged.
func (j *journal) commit(path string) error {
	dir := os.Getenv(journalEnv)
	if dir == "" {
		return nil
	}
	w := &journalFile
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	e := journalEntry{Inode: info.Sys().(*syscall.Stat_t).Ino, Size: len(data)}
	if j.ops != nil {
		e.Ops = *j.ops
	}
	if e.Inode != w.inode {
		w.last = nil
	}
	const page = 4096
	for at := 0; at < len(data); at += page {
		end := min(at+page, len(data))
		if end > len(w.last) || !bytes.Equal(data[at:end], w.last[at:end]) {
			e.Pages = append(e.Pages, journalPage{at, data[at:end]})
		}
	}
	w.inode, w.last = e.Inode, data
	if w.out == nil {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d-%d", time.Now().UnixNano(), os.Getpid())))
		if err != nil {
			return err
		}
		w.out = gob.NewEncoder(f)
	}
	return w.out.Encode(e)
}
