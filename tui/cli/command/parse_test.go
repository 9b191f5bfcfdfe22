package command

import (
	"strings"
	"testing"
)

// TestUnnamed: of a call only the commands that it names and the default one are built, and all for
// help and for a command that reads the tree.
func TestUnnamed(t *testing.T) {
	t.Parallel()
	type none struct{}
	type tree struct {
		Tree
		State     string `help:"A flag."`
		Dashboard none   `cmd:"" default:"withargs"`
		Job       none   `cmd:""`
		Settings  none   `cmd:"" name:"config" whole:""`
		API       none   `cmd:"" name:"api"`
	}
	for call, want := range map[string]string{
		"":                      `^tree\.(Job|Settings|API)$`,
		"--state job api":       `^tree\.(Settings)$`,
		"api --http-port 1":     `^tree\.(Job|Settings)$`,
		"config show":           "",
		"job --help":            "",
		"-h":                    "",
		"job -Ah":               "",
		"job config api":        "",
		"Job --daemon Settings": `^tree\.(Job|Settings|API)$`,
	} {
		if got := unnamed(&tree{}, strings.Fields(call)); got != want {
			t.Errorf("limpet %s: without %q, want %q", call, got, want)
		}
	}
}
