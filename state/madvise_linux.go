package state

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// releaseMap unmaps the pages of the file for the moment. The map cannot move while tx is open. A system that does not
// do it changes nothing.
func releaseMap(tx *bbolt.Tx) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
}
