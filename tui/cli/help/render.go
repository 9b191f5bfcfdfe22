package help

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// maxWidth is the longest line of prose, in cells: longer ones are hard to read.
const maxWidth = 100

// Render returns the topic for a terminal of that width in cells; with color headings are bold.
func (t Topic) Render(width int, color bool) string {
	width = min(max(width, 20), maxWidth)
	bold := func(s string) string {
		if color {
			return "\x1b[1m" + s + "\x1b[0m"
		}
		return s
	}
	var out strings.Builder
	out.WriteString(bold(wrap(t.Title, width)) + "\n")
	last := Heading
	for _, b := range t.Blocks() {
		if b.Kind != Item || last != Item {
			out.WriteByte('\n')
		}
		last = b.Kind
		switch b.Kind {
		case Heading:
			out.WriteString(bold(wrap(b.Text, width)) + "\n")
		case Code:
			out.WriteString(indent(b.Text, "    ", "    ") + "\n")
		case Item:
			lead := b.Marker + " "
			out.WriteString(indent(wrap(b.Text, width-len(lead)), lead, strings.Repeat(" ", len(lead))) + "\n")
		case Paragraph:
			out.WriteString(wrap(b.Text, width) + "\n")
		}
	}
	return out.String()
}

// wrap breaks text at blanks, but not at those between backticks, and removes the stars of bold words.
func wrap(text string, width int) string {
	const hard = "\u00a0"
	parts := strings.Split(strings.ReplaceAll(text, "**", ""), "`")
	for i := 1; i < len(parts); i += 2 {
		if len(parts[i]) < width/2 {
			parts[i] = strings.ReplaceAll(parts[i], " ", hard)
		}
	}
	var out strings.Builder
	cells := 0
	for _, word := range strings.Split(strings.Join(parts, "`"), " ") {
		n := ansi.StringWidth(word)
		switch {
		case cells == 0:
		case cells+1+n > width:
			out.WriteByte('\n')
			cells = 0
		default:
			out.WriteByte(' ')
			cells++
		}
		out.WriteString(word)
		cells += n
	}
	return strings.ReplaceAll(out.String(), hard, " ")
}

// indent puts first before the first line and rest before the others.
func indent(text, first, rest string) string {
	return first + strings.ReplaceAll(text, "\n", "\n"+rest)
}
