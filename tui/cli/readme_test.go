package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
)

// TestReadme: every flag and every command that README names exists.
func TestReadme(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, call, err := newSite(t).parse("status")
	if err != nil {
		t.Fatal(err)
	}
	known := command.FlagsOf(call.Model.Node)
	for _, flag := range regexp.MustCompile(`--([a-z][a-z-]*[a-z])`).FindAllStringSubmatch(string(data), -1) {
		if known[flag[1]] == nil && flag[1] != "unix-socket" { // of curl
			t.Errorf("README names --%s, which does not exist", flag[1])
		}
	}
	for _, text := range regexp.MustCompile(`(?m)^limpet ([a-z].*?)(?:  +.*)?$`).FindAllStringSubmatch(string(data), -1) {
		noun, rest, _ := strings.Cut(text[1], " ")
		node := call.Model.Node
		for _, n := range node.Children {
			if n.Name == noun {
				node = n
			}
		}
		if node == call.Model.Node {
			t.Errorf("README names 'limpet %s', which does not exist", noun)
			continue
		}
		if len(node.Children) == 0 {
			continue
		}
		for _, verb := range strings.Split(rest, "|") {
			word := strings.Fields(verb)[0]
			if !slices.ContainsFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }) {
				t.Errorf("README names 'limpet %s %s', which does not exist", noun, word)
			}
		}
	}
}

// TestReadmeNamesTests: every test that README gives as a proof exists.
func TestReadmeNamesTests(t *testing.T) {
	t.Parallel()
	top := os.DirFS(filepath.Join("..", ".."))
	tests := map[string]bool{}
	err := fs.WalkDir(top, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(top, path)
		for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(data, -1) {
			tests[string(name[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(top, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(data), -1)
	for _, name := range named {
		if !tests[name] {
			t.Errorf("README names %s, which does not exist", name)
		}
	}
	if len(named) < 30 {
		t.Errorf("README names %d tests", len(named))
	}
}
