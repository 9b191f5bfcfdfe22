//go:build !linux

package cli_test

import "os/exec"

// tied is for Linux; elsewhere agents may outlive tests that are killed.
func tied(cmd *exec.Cmd) *exec.Cmd { return cmd }
