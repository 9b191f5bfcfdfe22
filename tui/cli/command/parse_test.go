package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestUnnamed: of a call only the commands that it names and the default one are built, and all for
// help and for a command that reads the tree.
func TestUnnamed(t *testing.T) {
	t.Parallel()
	type none struct{}
	type tree struct {
		Tree
		Dashboard none `cmd:"" default:"withargs"`
		Job       none `cmd:""`
		Settings  none `cmd:"" name:"config" whole:""`
		API       none `cmd:"" name:"api"`
		Drain     none `cmd:""`
	}
	for call, want := range map[string]string{
		"":                      `^tree\.(Job|Settings|API)$`,
		"--state job api":       `^tree\.(Settings)$`,
		"api --http-port 1":     `^tree\.(Job|Settings)$`,
		"config show":           "",
		"job --help=true":       "",
		"-h":                    "",
		"job -Ah":               "",
		"job config api":        "",
		"Job --daemon Settings": `^tree\.(Job|Settings|API)$`,
	} {
		if got := unnamedCommands(&tree{}, strings.Fields(call)); got != want {
			t.Errorf("limpet %s: without %q, want %q", call, got, want)
		}
	}
}

// TestFlagsOfNamed: the flags of all commands are those of the whole tree.
func TestFlagsOfNamed(t *testing.T) {
	t.Parallel()
	type none struct{}
	type tree struct {
		Flags
		Job   none `cmd:""`
		Drain none `cmd:""`
	}
	flags := func(options ...kong.Option) (names []string) {
		parser, err := kong.New(new(tree), options...)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range parser.Model.Flags {
			names = append(names, f.Name)
		}
		return names
	}
	others := unnamedCommands(new(tree), nil)
	if got, want := flags(kong.IgnoreFields(others)), flags(); others == "" || !slices.Equal(got, want) {
		t.Errorf("without %q the flags are\n%q, want\n%q", others, got, want)
	}
}
