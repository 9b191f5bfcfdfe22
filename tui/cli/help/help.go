// Package help has the topics of 'limpet help TOPIC' and the details and examples of the commands:
// text that is part of the program.
package help

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed topics/*.md details.txt examples.txt
var files embed.FS

// Topic is one page: markdown of a small kind, with headings, paragraphs, lists and fenced blocks,
// in lines of at most 80 columns.
type Topic struct {
	Name  string // as in 'limpet help exit-codes'
	Title string // one line
	Text  string // without the title
}

// read returns a file, which is part of the program.
func read(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Topics returns all topics, ordered by name.
func Topics() []Topic {
	entries, err := files.ReadDir("topics")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var topics []Topic
	for _, e := range entries {
		title, text, _ := strings.Cut(read(path.Join("topics", e.Name())), "\n")
		topics = append(topics, Topic{strings.TrimSuffix(e.Name(), ".md"), strings.TrimPrefix(title, "# "), strings.TrimSpace(text)})
	}
	return topics
}

// Render returns the text without marks of markdown: headings as heading makes them, code indented.
func (t Topic) Render(heading func(string) string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(t.Text + "\n") {
		title, isTitle := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "## ")
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code && line != "\n":
			out.WriteString("    " + line)
		case isTitle && !code:
			out.WriteString(heading(title) + "\n")
		default:
			out.WriteString(strings.ReplaceAll(line, "**", ""))
		}
	}
	return out.String()
}

// Detail returns what the help of a command, such as "repo test", says besides its summary; "" for nothing.
func Detail(command string) string {
	return strings.ReplaceAll(paragraph("details.txt", command), "\n", " ")
}

// Examples returns the example calls of a command; none for a command without any.
func Examples(command string) []string {
	return strings.FieldsFunc(paragraph("examples.txt", command), func(r rune) bool { return r == '\n' })
}

// paragraph returns the lines of a file below the name of a command, which others may share; "" without one.
func paragraph(file, command string) string {
	for one := range strings.SplitSeq(strings.TrimSpace(read(file)), "\n\n") {
		if names, lines, _ := strings.Cut(one, "\n"); slices.Contains(strings.Split(names, ", "), command) {
			return lines
		}
	}
	return ""
}
