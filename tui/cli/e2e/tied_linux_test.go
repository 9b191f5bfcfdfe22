package e2e

import (
	"os/exec"
	"syscall"
)

// tied has a process end with the tests, also when these are killed or run out of
// time, so that no agent is left behind.
func tied(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd
}
