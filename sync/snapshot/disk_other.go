//go:build !linux

package snapshot

// diskSpace is not known here.
func diskSpace(string) (free, size int64) { return -1, -1 }
