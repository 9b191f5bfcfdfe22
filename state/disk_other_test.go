//go:build !linux

package state

import (
	"fmt"
	"testing"
)

// childHere has no further kinds of processes on this system.
func childHere(mode, _ string) error { return fmt.Errorf("unknown child %q", mode) }

// faultInMap stands for a memory fault where the map cannot be made with the standard library alone.
func faultInMap(*testing.T) func() error {
	return func() error { var p *int; *p = 1; return nil }
}

// quickDir is a directory in memory on systems that have one at a known place.
func quickDir(t testing.TB) string { return t.TempDir() }
