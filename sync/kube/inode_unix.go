//go:build unix

package kube

import (
	"io/fs"
	"syscall"
)

// inode tells a file from another that was renamed over it.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino) // 32 bits wide on some systems
	}
	return 0
}
