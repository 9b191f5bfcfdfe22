package cli

import (
	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
)

// Commands lists the commands of limpet as they are called, without the program,
// and says of each whether it changes anything.
func Commands() (map[string]bool, error) {
	_, call, err := command.Parse(command.World{Lookup: func(string) (string, bool) { return "", false }},
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
