package state

import (
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
)

// Pages of the file that were read through the memory map count as memory of this process until
// they are released: after one full read that is the size of the file, and a write reads the pages
// that its records go to. They are released now and then while reading and writing. The page cache keeps what it has memory for, and a later access maps it again
// without a read from disk.

const (
	// releaseAfter is how many bytes of records are read between two releases. Reading one maps its
	// page and those around it in the file, which are those of any other records: 16 pages on Linux.
	// So this is 2 MiB of the map.
	releaseAfter = 128 << 10
	// pageOfRecord is what a single record, or a write of one, counts for.
	pageOfRecord = 4 << 10
)

// touched counts what was read or written through a memory map since the last release. A nil one counts
// nothing.
type touched struct{ bytes atomic.Int64 }

// add counts n bytes and gives the map of tx back when it is time to.
func (t *touched) add(tx *bbolt.Tx, n int) {
	if t == nil {
		return
	}
	if seen := t.bytes.Add(int64(n)); seen < releaseAfter || !t.bytes.CompareAndSwap(seen, 0) {
		return
	}
	// The map cannot move while tx is open. A system that does not do it changes nothing.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
}
