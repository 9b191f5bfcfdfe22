package ptytest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hinshun/vt10x"
)

// The size of a cell of a picture and the letters in it, in pixels.
const (
	cellWidth, cellHeight = 8, 17
	letterSize            = 13
	margin                = 12
)

// Colours are the sixteen of the terminal in a picture, then the letters and the
// ground where a program chooses none.
var colours = [...]string{
	"#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
	"#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
	"#c9d1d9", "#0d1117",
}

// colour is the number of a colour in colours. What is none of the sixteen is shown
// as plain: the dashboard uses no other.
func colour(c vt10x.Color, plain int) int {
	switch {
	case c < 16:
		return int(c)
	case c == vt10x.DefaultBG:
		return 17
	case c == vt10x.DefaultFG:
		return 16
	}
	return plain
}

// bold is the bit of it in the mode of a glyph of vt10x, which does not export it.
const bold = 1 << 2

// SVG is the screen as a picture that needs no program to be looked at. Each line
// may be changed before, by a text of as many letters: what differs from one day to
// the next makes no other picture then.
func (tt *Terminal) SVG(title string, change func(line string) string) ([]byte, error) {
	var screen [][]vt10x.Glyph
	tt.Cells(func(x, y int, g vt10x.Glyph) {
		if x == 0 {
			screen = append(screen, nil)
		}
		screen[y] = append(screen[y], g)
	})
	return draw(title, screen, change)
}

func draw(title string, screen [][]vt10x.Glyph, change func(line string) string) ([]byte, error) {
	w, h := len(screen[0])*cellWidth+2*margin, len(screen)*cellHeight+2*margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" xml:space="preserve">`+
		"\n<title>%s</title>\n<style>text{font:%dpx ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}.b{font-weight:700}",
		w, h, w, h, escaped(title), letterSize)
	for i, c := range colours {
		fmt.Fprintf(&b, ".c%d{fill:%s}", i, c)
	}
	fmt.Fprintf(&b, "</style>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" class=\"c17\"/>\n", w, h)
	for y, line := range screen {
		if err := drawLine(&b, y, line, change); err != nil {
			return nil, err
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// drawLine draws the runs of a line that look the same. A run says how wide it is,
// so that columns stand below each other with any font.
func drawLine(b *bytes.Buffer, y int, line []vt10x.Glyph, change func(string) string) error {
	letters := make([]rune, len(line))
	for x, g := range line {
		if letters[x] = g.Char; g.Char == 0 {
			letters[x] = ' '
		}
	}
	text := change(string(letters))
	if utf8.RuneCountInString(text) != len(line) {
		return fmt.Errorf("line %d was changed to one of another length: %q", y, text)
	}
	letters = []rune(text)
	top := margin + y*cellHeight
	for from := 0; from < len(line); {
		g, to := line[from], from+1
		for to < len(line) && line[to].FG == g.FG && line[to].BG == g.BG && line[to].Mode&bold == g.Mode&bold {
			to++
		}
		x, wide := margin+from*cellWidth, (to-from)*cellWidth
		if ground := colour(g.BG, 17); ground != 17 {
			fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" class="c%d"/>`+"\n", x, top, wide, cellHeight, ground)
		}
		run := string(letters[from:to])
		left := len(run) - len(strings.TrimLeft(run, " "))
		run = strings.TrimRight(run[left:], " ")
		if n := utf8.RuneCountInString(run); n > 0 {
			class := fmt.Sprintf("c%d", colour(g.FG, 16))
			if g.Mode&bold != 0 {
				class += " b"
			}
			fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d" class="%s">%s</text>`+"\n", x+left*cellWidth, top+letterSize, n*cellWidth, class,
				escaped(run))
		}
		from = to
	}
	return nil
}

// escaped is text as XML takes it: what it may not have becomes U+FFFD.
func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}
