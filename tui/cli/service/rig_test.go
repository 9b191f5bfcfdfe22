package service

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// testTree has the commands that the tests call.
type testTree struct {
	command.Flags

	Service Command   `cmd:""`
	Daemon  daemonCmd `cmd:"" default:"withargs" hidden:""`
}

// daemonCmd takes the flags of the agent.
type daemonCmd struct {
	Daemon bool
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

// parse parses the arguments of a command and runs nothing.
func (s *site) parse(args ...string) (*command.Env, *kong.Context, error) {
	return command.Parse(s.streams("", io.Discard, io.Discard), newTree, args...)
}
