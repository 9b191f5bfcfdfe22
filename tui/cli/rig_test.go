package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// site is a place for commands of the whole command line.
type site struct {
	*clitest.Site
	newTree func() command.Tree
}

func newSite(t *testing.T) *site {
	t.Helper()
	newTree := func() command.Tree { return new(cli) }
	return &site{newTree: newTree, Site: clitest.New(t, func(args []string, in io.Reader, out, errs io.Writer,
		lookup func(string) (string, bool)) int {
		return command.Run(args, command.Streams{In: in, Out: out, Err: errs, Lookup: lookup}, newTree)
	})}
}

func (s *site) streams(in string, out, errs io.Writer) command.Streams {
	return command.Streams{In: strings.NewReader(in), Out: out, Err: errs, Lookup: s.Lookup}
}

// main runs one command with streams of the test.
func (s *site) main(args []string, streams command.Streams) int {
	return command.Run(args, streams, s.newTree)
}

// parse parses the arguments of a command and runs nothing.
func (s *site) parse(args ...string) (*command.Env, *kong.Context, error) {
	return command.Parse(s.streams("", io.Discard, io.Discard), s.newTree, args...)
}

// Commands lists the commands of limpet as they are called, without the program,
// and says of each whether it changes anything.
func Commands() (map[string]bool, error) {
	_, call, err := command.Parse(command.Streams{Lookup: func(string) (string, bool) { return "", false }},
		func() command.Tree { return new(cli) }, "status")
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	var walk func(path string, n *kong.Node)
	walk = func(path string, n *kong.Node) {
		for _, child := range n.Children {
			walk(path+child.Name+" ", child)
		}
		if len(n.Children) == 0 {
			out[path[:len(path)-1]] = n.Tag.Has("writes")
		}
	}
	walk("", call.Model.Node)
	return out, nil
}
