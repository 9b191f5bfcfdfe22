package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// site is a place for commands of the whole command line.
type site struct {
	*baseSite
	newTree func() tree
}

func newSite(t *testing.T) *site {
	t.Helper()
	newTree := func() tree { return new(cli) }
	return &site{newTree: newTree, baseSite: newBaseSite(t, func(args []string, in io.Reader, out, errs io.Writer, lookup func(string) (string, bool)) int {
		return mainOf(args, World{In: in, Out: out, Err: errs, Lookup: lookup}, newTree)
	})}
}

func (s *site) world(in string, out, errs io.Writer) World {
	return World{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.lookup}
}

// main runs one command in a world of the test.
func (s *site) main(args []string, world World) int { return mainOf(args, world, s.newTree) }

// parse parses the arguments of a command and runs nothing.
func (s *site) parse(args ...string) (*run, *kong.Context, error) {
	return parsed(s.world("", io.Discard, io.Discard), s.newTree, args...)
}
