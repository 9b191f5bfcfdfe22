// limpet is an edge agent for Git sync: it watches a Kubernetes-style API,
// claims jobs under a lease, does their work with Git, keeps its state in one
// file, and shows all of it live.
package main

import (
	"os"

	"limpet/state"
	"limpet/tui/cli"
)

func main() {
	// The first look into a state file after an unclean stop happens in a
	// child process, which is this binary again: damage may crash the reader.
	if state.RunProbe() {
		return
	}
	os.Exit(cli.Main(os.Args[1:], cli.System()))
}
