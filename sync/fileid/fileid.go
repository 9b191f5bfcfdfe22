// Package fileid reads the files that people name, and what the disk says of a file beside its
// fs.FileInfo, which each system calls by other names.
package fileid

import (
	"io/fs"
	"syscall"
)

// Of returns the number of a file and when it changed last, in nanoseconds, which a rename does
// and a copy with its times does not keep. ok is false for a file that is on no disk.
func Of(info fs.FileInfo) (number uint64, changed int64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	t := changeTime(s)
	return s.Ino, t.Nano(), true
}
