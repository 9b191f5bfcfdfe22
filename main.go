// limpet is an edge agent for Git sync: it watches a Kubernetes-style API,
// claims jobs under a lease, does their work with Git, keeps its state in one
// file, and shows all of it live.
package main

import (
	"os"
	"runtime/debug"

	"limpet/state"
	"limpet/tui/cli"
	"limpet/tui/cli/command"
)

func main() {
	// The first look into a state file after an unclean stop happens in a
	// child process, which is this binary again: damage may crash the reader.
	if state.RunProbe() {
		return
	}
	if os.Getenv("GOGC") == "" {
		// Memory is scarcer than processor time on the boards this is for: the
		// heap may grow by half before it is collected, not by its whole.
		debug.SetGCPercent(50)
	}
	os.Exit(cli.Main(os.Args[1:], command.System()))
}
