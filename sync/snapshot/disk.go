package snapshot

import "golang.org/x/sys/unix"

// diskSpace returns the free bytes and the size of the disk of a directory, -1 where they cannot be read.
func diskSpace(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1, -1
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize)
}
