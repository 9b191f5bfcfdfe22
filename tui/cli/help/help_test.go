package help

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestRender: headings are set off, code is indented and whole, marks are gone, and no line of
// prose is wider than a small terminal.
func TestRender(t *testing.T) {
	t.Parallel()
	topic := Topic{Text: "**one**\n\n## Head\n- a\n  b\n```sh\nlimpet x **\n\n## y\n```\nend"}
	heading := func(s string) string { return "<" + s + ">" }
	if got, want := topic.Render(heading), "one\n\n<Head>\n- a\n  b\n    limpet x **\n\n    ## y\nend\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, topic := range Topics() {
		for line := range strings.Lines(topic.Render(heading)) {
			if utf8.RuneCountInString(line) > 81 && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "|") {
				t.Errorf("%s: %q has %d columns", topic.Name, line, utf8.RuneCountInString(line))
			}
		}
	}
}
