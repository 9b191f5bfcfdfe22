package help

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestRender: a topic keeps its words on every width, and no line of prose is wider.
func TestRender(t *testing.T) {
	t.Parallel()
	for _, topic := range Topics() {
		for _, width := range []int{30, 80, 300} {
			text := topic.Render(width, true)
			plain := ansi.Strip(text)
			if plain != topic.Render(width, false) {
				t.Errorf("%s: colors change the text", topic.Name)
			}
			code := map[string]bool{}
			for _, b := range topic.Blocks() {
				if b.Kind == Code {
					for line := range strings.Lines(b.Text) {
						code["    "+strings.TrimSuffix(line, "\n")] = true
					}
					continue
				}
				for _, word := range strings.Fields(strings.ReplaceAll(b.Text, "**", "")) {
					if !strings.Contains(plain, word) {
						t.Errorf("%s at %d: %q is missing", topic.Name, width, word)
					}
				}
			}
			for line := range strings.Lines(plain) {
				line = strings.TrimSuffix(line, "\n")
				long := !strings.Contains(strings.TrimLeft(line, "- "), " ") // one word that is longer than the line
				if ansi.StringWidth(line) > width && !code[line] && !long {
					t.Errorf("%s at %d: %q has %d cells", topic.Name, width, line, ansi.StringWidth(line))
				}
			}
		}
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	topic := Topic{Text: "one\ntwo\n\n## Head\n- a\n  b\n-  0: c\n10. d\n```sh\nlimpet x\n\n  y\n```\nend"}
	want := []Block{
		{Kind: Paragraph, Text: "one two"}, {Kind: Heading, Text: "Head"}, {Kind: Item, Marker: "-", Text: "a b"},
		{Kind: Item, Marker: "-", Text: "0: c"}, {Kind: Item, Marker: "10.", Text: "d"},
		{Kind: Code, Language: "sh", Text: "limpet x\n\n  y"}, {Kind: Paragraph, Text: "end"},
	}
	got := topic.Blocks()
	if len(got) != len(want) {
		t.Fatalf("%d blocks: %v", len(got), got)
	}
	for i, b := range got {
		if b != want[i] {
			t.Errorf("block %d: %+v, want %+v", i, b, want[i])
		}
	}
}
