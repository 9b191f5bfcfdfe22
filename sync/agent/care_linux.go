package agent

import "golang.org/x/sys/unix"

// diskRoom is what is free for this process on the disk of a directory, and how
// large that disk is, in bytes; -1 where it cannot be told.
func diskRoom(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1, -1
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize)
}
