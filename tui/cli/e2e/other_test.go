//go:build !linux

package e2e

import (
	"os/exec"
)

// tied is for Linux; elsewhere agents may outlive tests that are killed.
func tied(cmd *exec.Cmd) *exec.Cmd { return cmd }

// onSmallDisks: only Linux has mounts that are seen by one process.
func onSmallDisks() bool { return false }
