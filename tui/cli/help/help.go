// Package help has the topics of 'limpet help TOPIC': markdown that is part of the program.
package help

import (
	"embed"
	"path"
	"strings"
)

//go:embed topics/*.md
var files embed.FS

// Topic is one page. Its text is markdown of a small kind: headings, paragraphs, lists and fenced blocks.
type Topic struct {
	Name  string // as in 'limpet help exit-codes'
	Title string // one line
	Text  string // without the title
}

// Topics returns all topics, ordered by name.
func Topics() []Topic {
	entries, err := files.ReadDir("topics")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var topics []Topic
	for _, e := range entries {
		data, err := files.ReadFile(path.Join("topics", e.Name()))
		if err != nil {
			panic(err)
		}
		title, text, _ := strings.Cut(string(data), "\n")
		topics = append(topics, Topic{
			Name:  strings.TrimSuffix(e.Name(), ".md"),
			Title: strings.TrimPrefix(title, "# "),
			Text:  strings.TrimSpace(text),
		})
	}
	return topics
}

// Find returns the topic of that name; ok = false when there is none.
func Find(name string) (t Topic, ok bool) {
	for _, t := range Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return Topic{}, false
}

// BlockKind is what a part of a topic is.
type BlockKind int

// The kinds of blocks.
const (
	Paragraph BlockKind = iota
	Heading
	Item // of a list; Marker is "-" or "1."
	Code // its lines are kept as they are
)

// Block is one part of a topic.
type Block struct {
	Kind     BlockKind
	Marker   string // of an Item
	Language string // of Code: "sh" can be run as it stands, "text" and "yaml" are only shown
	Text     string // the lines of a paragraph or item are joined by blanks, those of Code by newlines
}

// Blocks parses the text.
func (t Topic) Blocks() []Block {
	var blocks []Block
	open := false // the last block takes further lines
	lines := strings.Split(t.Text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		marker, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasPrefix(line, "```"):
			b := Block{Kind: Code, Language: strings.TrimPrefix(line, "```")}
			var code []string
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				code = append(code, lines[i])
			}
			b.Text = strings.Join(code, "\n")
			blocks, open = append(blocks, b), false
		case strings.HasPrefix(line, "## "):
			blocks, open = append(blocks, Block{Kind: Heading, Text: strings.TrimPrefix(line, "## ")}), false
		case line == "":
			open = false
		case !strings.HasPrefix(line, " ") && (marker == "-" || isNumber(marker)):
			blocks, open = append(blocks, Block{Kind: Item, Marker: marker, Text: strings.TrimSpace(rest)}), true
		case open:
			last := &blocks[len(blocks)-1]
			last.Text += " " + strings.TrimSpace(line)
		default:
			blocks, open = append(blocks, Block{Kind: Paragraph, Text: strings.TrimSpace(line)}), true
		}
	}
	return blocks
}

// isNumber reports whether a word is the marker of a numbered item, such as "1.".
func isNumber(word string) bool {
	digits := strings.TrimSuffix(word, ".")
	return digits != word && digits != "" && strings.Trim(digits, "0123456789") == ""
}
