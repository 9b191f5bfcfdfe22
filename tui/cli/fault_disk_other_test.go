//go:build !linux

package cli_test

// onSmallDisks: only Linux has mounts that are seen by one process.
func onSmallDisks() bool { return false }
