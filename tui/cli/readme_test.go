package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
	"limpet/tui/cli/help"
)

// readmeLines and readmeBytes bound README: it is read whole, the rest is in 'limpet help'.
const (
	readmeLines = 250
	readmeBytes = 20_000
)

func readme(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReadme: README is short; its commands are those of the program, all of them, and its topics
// too.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := readme(t)
	if lines := strings.Count(text, "\n"); lines > readmeLines || len(text) > readmeBytes {
		t.Errorf("README has %d lines and %d bytes", lines, len(text))
	}
	_, call, err := newSite(t).parse("status")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(text, "\n## Commands\n")
	commands, _, _ = strings.Cut(commands, "\n## ")
	leaves := map[string]bool{}
	for _, n := range call.Model.Leaves(true) {
		words := strings.Fields(command.CallText(n))[1:]
		leaves[strings.Join(words, " ")] = true
		if !regexp.MustCompile(`(?m)^limpet `+words[0]+`\b.*\b`+words[len(words)-1]+`\b`).MatchString(commands) &&
			!strings.Contains(text, "limpet "+words[0]) {
			t.Errorf("README lacks 'limpet %s'", strings.Join(words, " "))
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^limpet ([a-z]+)(.*)`).FindAllStringSubmatch(commands, -1) {
		calls, _, _ := strings.Cut(line[2], "      ")
		for call := range strings.SplitSeq(calls, "|") {
			verb, _, _ := strings.Cut(strings.TrimSpace(call), " ")
			if !leaves[line[1]] && !leaves[line[1]+" "+verb] {
				t.Errorf("README names 'limpet %s %s', which does not exist", line[1], verb)
			}
		}
	}
	for _, topic := range help.Topics() {
		if !strings.Contains(text, "`"+topic.Name+"`") {
			t.Errorf("README lacks the topic %s", topic.Name)
		}
	}
}

// TestNamedFlags: README and the topics of help name only flags that exist, and their calls can be
// parsed.
func TestNamedFlags(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, call, err := s.parse("status")
	if err != nil {
		t.Fatal(err)
	}
	known := command.FlagsOf(call.Model.Node)
	texts := map[string]string{"README": readme(t)}
	var calls []string
	for _, topic := range help.Topics() {
		texts[topic.Name] = topic.Text
		for _, block := range regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(topic.Text, -1) {
			calls = append(calls, strings.Split(strings.ReplaceAll(block[2], "\\\n", ""), "\n")...)
		}
	}
	for name, text := range texts {
		text = regexp.MustCompile(`(?m)^(crane|curl|kubectl|sha256sum) .*$`).ReplaceAllString(text, "")
		for _, flag := range regexp.MustCompile(`(^|[\s(\[`+"`"+`])--([a-z][a-z-]*[a-z])`).FindAllStringSubmatch(text, -1) {
			if known[flag[2]] == nil && flag[2] != "unix-socket" && flag[2] != "feature-gates" { // of curl and of Flux
				t.Errorf("%s names --%s, which does not exist", name, flag[2])
			}
		}
	}
	for _, n := range call.Model.Leaves(true) {
		path := strings.TrimPrefix(command.CallText(n), "limpet ")
		examples := help.Examples(path)
		if len(examples) == 0 {
			t.Errorf("'limpet %s' has no example", path)
		}
		for _, example := range examples {
			if !strings.Contains(example, "limpet "+path) {
				t.Errorf("%q is no example of 'limpet %s'", example, path)
			}
		}
		calls = append(calls, examples...)
	}
	for _, line := range calls {
		line, _, _ = strings.Cut(line, " > ")
		if _, piped, ok := strings.Cut(line, "| limpet "); ok {
			line = "limpet " + piped
		}
		line, _, _ = strings.Cut(line, " | ")
		words := shellWords(line)
		if len(words) == 0 || words[0] != "limpet" || len(words) > 1 && words[1] == "help" {
			continue
		}
		if _, _, err := s.parse(words[1:]...); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// shellWords splits a call at blanks; quotes keep them.
func shellWords(line string) []string {
	var words []string
	for _, word := range regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, `'"`))
	}
	return words
}

// TestReadmeDependencies: each module that go.mod asks for by itself has its row.
func TestReadmeDependencies(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(readme(t), "\n## Dependencies\n")
	modules := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1)
	for _, m := range modules {
		name := regexp.MustCompile(`/v\d+$`).ReplaceAllString(m[1], "")
		short := strings.TrimPrefix(name, "golang.org/")
		if !strings.Contains(section, name) && !strings.Contains(section, short) && !strings.Contains(section, ", "+filepath.Base(name)) {
			t.Errorf("README's table of dependencies lacks %s", m[1])
		}
	}
	if len(modules) < 20 {
		t.Errorf("go.mod has %d modules", len(modules))
	}
}

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
	if !strings.Contains(page, "\n\\- 10: \\-\\-timeout passed") || !strings.Contains(page, `\fB\-\-daemon\fR`) {
		t.Error("exit code 10, or --daemon, is not told")
	}
	tool, err := exec.LookPath("groff")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool, "-man", "-Tutf8", "-ww", "-z", "-")
	cmd.Stdin = strings.NewReader(page)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("groff: %v\n%s", err, said)
	}
}
