//go:build !linux

package agent

// diskRoom is not known: systems tell it in ways of their own.
func diskRoom(string) (free, size int64) { return -1, -1 }
