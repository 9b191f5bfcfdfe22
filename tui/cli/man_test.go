package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
)

// escaped is a text as the page has it.
func escaped(s string) string { return strings.ReplaceAll(s, "-", `\-`) }

// TestManPage: the page names every command, argument and flag that a person is
// shown, and groff has nothing to say against it.
func TestManPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	page, errs := s.Must(t, 0, "man")
	if errs != "" || strings.ContainsRune(page, '\x1b') {
		t.Errorf("%q", errs)
	}
	_, call, err := s.parse("status")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		words := []string{}
		if n.Leaf() {
			words = append(words, `\fB`+escaped(command.CallText(n))+`\fR`)
		}
		for _, f := range n.Flags {
			if f.Tag.Negatable == "" && !f.Hidden {
				words = append(words, `\fB`+escaped("--"+f.Name)+`\fR`)
			}
		}
		for _, arg := range n.Positional {
			words = append(words, ".TP\n\\fI"+escaped(arg.Name)+"\\fR\n")
		}
		for _, word := range words {
			if told++; !strings.Contains(page, word) && !n.Hidden {
				t.Errorf("the page lacks %q", word)
			}
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(call.Model.Node)
	if told < 150 {
		t.Errorf("only %d words were looked for", told)
	}
	if !strings.Contains(page, "\n10: \\-\\-timeout passed") || !strings.Contains(page, `\fB\-\-daemon\fR`) {
		t.Error("exit code 10, or --daemon, is not told")
	}
	tool, err := exec.LookPath("groff")
	if err != nil {
		t.Log("groff is not installed: nobody has judged the page")
		return
	}
	cmd := exec.Command(tool, "-man", "-Tutf8", "-ww", "-z", "-")
	cmd.Stdin = strings.NewReader(page)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("groff: %v\n%s", err, said)
	}
}
