package command

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/clitest"
)

// testTree has commands that do nothing.
type testTree struct {
	Flags

	Status testCmd `cmd:""`
	Demo   testCmd `cmd:""`
	API    testCmd `cmd:"" name:"api"`
	Job    struct {
		List testCmd `cmd:""`
	} `cmd:""`
}

type testCmd struct{}

func (testCmd) Run() error { return nil }

func newTree() Tree { return new(testTree) }

// site is a directory with a state file for commands of the tests.
type site struct{ *clitest.Site }

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{clitest.New(t, func(args []string, in io.Reader, out, errs io.Writer, lookup func(string) (string, bool)) int {
		return Run(args, Streams{In: in, Out: out, Err: errs, Lookup: lookup}, newTree)
	})}
}

func (s *site) streams(in string, out, errs io.Writer) Streams {
	return Streams{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.Lookup}
}

// parse parses the arguments of a command and runs nothing.
func (s *site) parse(args ...string) (*Env, *kong.Context, error) {
	return Parse(s.streams("", io.Discard, io.Discard), newTree, args...)
}
