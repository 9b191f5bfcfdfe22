package doctor

import (
	"io"
	"strings"
	"testing"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
	"limpet/tui/cli/repo"
)

// testTree has the commands that the tests call.
type testTree struct {
	command.Flags

	Doctor Command             `cmd:""`
	Repo   repo.Command        `cmd:""`
	Apply  object.ApplyCommand `cmd:""`
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

func (s *site) streams(in string, out, errs io.Writer) command.Streams {
	return command.Streams{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.Lookup}
}
