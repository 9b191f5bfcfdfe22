package daemon

import (
	"io"
	"testing"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
	"limpet/tui/cli/repo"
	"limpet/tui/cli/status"
)

// testTree has the commands that the tests call.
type testTree struct {
	command.Flags

	Daemon Command             `cmd:"" default:"withargs" hidden:""`
	Repo   repo.Command        `cmd:""`
	Get    object.GetCommand   `cmd:""`
	Drain  status.DrainCommand `cmd:""`
}

func newTree() command.Tree { return new(testTree) }

// site is a directory with a state file for commands of the tests.
type site struct{ *clitest.Site }

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{clitest.New(t, func(args []string, in io.Reader, out, errs io.Writer, lookup func(string) (string, bool)) int {
		return command.Run(args, command.Streams{In: in, Out: out, Err: errs, Lookup: lookup}, newTree)
	})}
}
