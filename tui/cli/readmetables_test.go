package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"limpet/tui/cli/command"
)

// TestReadmeTables: README names every command and every exit code of the program,
// and no row of a table stands there twice.
func TestReadmeTables(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, call, err := newSite(t).parse("status")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(text, "\n## Commands\n")
	commands, _, _ = strings.Cut(commands, "\n## ")
	for _, n := range call.Model.Leaves(true) {
		words := strings.Fields(command.CallText(n))[1:]
		line := regexp.MustCompile(`(?m)\| ` + words[0] + ` [A-Z]|\blimpet ` + words[0] + `\b.*\b` + words[len(words)-1] + `\b|\blimpet ` +
			strings.Join(words, " ") + `\b`)
		if !line.MatchString(commands) && words[0] != "demo" && words[0] != "version" { // one has its own section, the other says nothing new
			t.Errorf("README's commands lack 'limpet %s'", strings.Join(words, " "))
		}
	}
	for line := range strings.Lines(command.ExitCodes) {
		code, _, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if ok && strings.Count(commands, "\n| "+code+" | ") != 1 {
			t.Errorf("README's table lacks exit code %s, or has it twice", code)
		}
	}
	rows := map[string]bool{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "|") {
			clear(rows)
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
		if first = strings.TrimSpace(first); first != "" && rows[first] {
			t.Errorf("README has the row %q twice", first)
		}
		rows[first] = true
	}
}

// TestReadmeDependencies: each module that go.mod asks for by itself has its row.
func TestReadmeDependencies(t *testing.T) {
	t.Parallel()
	var texts [2]string
	for i, name := range []string{"README.md", "go.mod"} {
		data, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(data)
	}
	_, section, _ := strings.Cut(texts[0], "\n## Dependencies\n")
	var cells []string
	for line := range strings.Lines(section) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			cells = append(cells, first)
		}
	}
	table := strings.Join(cells, "\n")
	modules := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(texts[1], -1)
	for _, m := range modules {
		name := regexp.MustCompile(`/v\d+$`).ReplaceAllString(m[1], "")
		if !strings.Contains(table, name) && !strings.Contains(table, strings.TrimPrefix(name, "k8s.io/")) &&
			!strings.Contains(table, ", "+filepath.Base(name)) {
			t.Errorf("README's table of dependencies lacks %s", m[1])
		}
	}
	if len(modules) < 20 {
		t.Errorf("go.mod has %d modules", len(modules))
	}
}
