package state

import (
	"crypto/rand"
	"errors"
	"os"
	"syscall"
	"time"
)

// A full disk must not keep the store from getting smaller: bbolt writes new pages even for a
// delete. The reserve is a file of real blocks beside the state file, `<path>.reserve`. When a
// transaction that does not grow the records fails for want of space, the writer gives the reserve
// up and tries once more; later, when there is space again, it is made again. Transactions that
// grow never touch it.

const (
	reserve = ".reserve"

	// reserveSize is enough for the pages of a delete in the largest file, and small for the smallest
	// disk.
	reserveSize = 512 << 10

	// reserveRetry is the least time between two attempts to make the reserve again.
	reserveRetry = time.Minute
)

// reserveFile is the writer's view of the reserve. Only the writer, and Open before it, use it.
type reserveFile struct {
	name string
	have bool
	next time.Time // of the next attempt to make it
}

// newReserve finds the reserve of a state file. It is made after the first write.
func newReserve(path string) *reserveFile {
	b := &reserveFile{name: path + reserve}
	info, err := os.Lstat(b.name)
	b.have = err == nil && info.Size() == reserveSize
	return b
}

// release gives the blocks of the reserve to the file system and reports whether there were any.
func (b *reserveFile) release(at time.Time) bool {
	b.next = at.Add(reserveRetry)
	if !b.have {
		return false
	}
	b.have = false
	return os.Remove(b.name) == nil
}

// restore makes the reserve when it is time and there is space. Without one the store works, only
// not as long.
func (b *reserveFile) restore(at time.Time) {
	if b.have || at.Before(b.next) {
		return
	}
	b.next = at.Add(reserveRetry)
	if err := b.write(); err != nil {
		_ = os.Remove(b.name)
		return
	}
	b.have = true
}

func (b *reserveFile) write() (err error) {
	f, err := os.OpenFile(b.name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	noise := make([]byte, reserveSize) // because some file systems keep no blocks for zeros
	_, _ = rand.Read(noise)            // never fails
	_, err = f.Write(noise)
	return errors.Join(err, f.Sync(), f.Close())
}
