//go:build !linux

package state

import "testing"

// faultInMap stands for a memory fault where the map cannot be made with the standard library alone.
func faultInMap(*testing.T) func() error {
	return func() error { var p *int; *p = 1; return nil }
}

// quickDir is a directory in memory on systems that have one at a known place.
func quickDir(t testing.TB) string { return t.TempDir() }
