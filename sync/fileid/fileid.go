// Package fileid reads the files that people name, and what the disk says of a file beside its
// fs.FileInfo, which each system calls by other names.
package fileid

import (
	"io/fs"
	"syscall"
	"time"
)

// Stamp is what changes with the content of a file, as in the index of Git. Two that are equal say
// that the content is the same, see Shows.
type Stamp struct {
	Size  int64
	MTime int64  // ns
	CTime int64  // ns; no program can set it, a rename changes it, and a copy with its times does too
	Inode uint64 // 0, as CTime, for a file that is on no disk
}

// Granularity is more than that of the time stamps of any file system; FAT has 2 seconds.
const Granularity = 3 * time.Second

// Of returns the stamp of a file.
func Of(info fs.FileInfo) Stamp {
	stamp := Stamp{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		ctime := changeTime(s)
		stamp.CTime, stamp.Inode = ctime.Nano(), s.Ino
	}
	return stamp
}

// Shows reports whether any change after the file was read would change its stamp: one within the
// granularity of the clock does not.
func (s Stamp) Shows(read time.Time) bool { return s.MTime < read.Add(-Granularity).UnixNano() }
