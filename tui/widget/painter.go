package widget

import (
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// Painter draws parts of a frame on a canvas with the glyphs and capabilities of the terminal.
type Painter struct {
	*Canvas
	G    glyphs
	caps Caps
	// OnRow, when set, is called with the area of each row of the next list.
	OnRow func(row, x, y, w int)
}

// NewPainter returns a painter of w by h cells.
func NewPainter(w, h int, caps Caps) *Painter {
	return &Painter{Canvas: newCanvas(w, h), G: caps.Glyphs(), caps: caps}
}

// TextLine is a line of the screen.
type TextLine struct {
	Role Role
	Text string
}

// Dialog clears a box of w by h cells in the middle and returns its corner.
func (p *Painter) Dialog(w, h int) (x, y int) {
	x, y = max((p.W-w)/2, 0), max((p.H-h)/2, 0)
	for row := y; row < y+h && row < p.H; row++ {
		p.Fill(x, row, min(x+w, p.W), RolePlain, " ")
	}
	return x, y
}

// PutLines puts lines into a box. When they do not fit, the last line counts the missing ones,
// unless it would be the only one.
func (p *Painter) PutLines(x, y, w, h int, lines []TextLine) {
	for i, l := range lines[:min(len(lines), max(h-2, 0))] {
		if rest := len(lines) - i; i == h-3 && i > 0 && rest > 1 {
			l = TextLine{RoleDim, fmt.Sprintf("%s %d more lines", p.G.More, rest)}
		}
		p.Put(x+2, y+1+i, w-4, l.Role, Cut(l.Text, w-4, p.G.More))
	}
}

// factWidth is the width of the name of a fact, in cells.
const factWidth = 11

// Fact is a text with a name.
type Fact struct {
	Role       Role
	Name, Text string
}

func (p *Painter) Empty(x, y, w, h int, txt []string) {
	row := y + 1
	for _, t := range txt {
		for _, l := range Wrap(t, w-4) {
			if row < y+h-1 {
				p.Put(x+2, row, w-4, RoleDim, l)
			}
			row++
		}
	}
}

// FoldLine cuts a text to w cells, or wraps it when wraps is set.
func (p *Painter) FoldLine(r Role, txt string, w int, wraps bool) []TextLine {
	if !wraps {
		return []TextLine{{r, Cut(txt, w, p.G.More)}}
	}
	var out []TextLine
	for {
		head := Cut(txt, w, "")
		if head == "" || head == txt {
			return append(out, TextLine{r, txt})
		}
		out, txt = append(out, TextLine{r, head}), txt[len(head):]
	}
}

func (p *Painter) cell(x, y, w int, right bool, r Role, text string) {
	text = Cut(text, w, p.G.More)
	if right {
		p.Right(x, x+w, y, r, text)
		return
	}
	p.Put(x, y, w, r, text)
}

// Bar returns a progress bar of w cells; a percentage below 0 is unknown.
func (p *Painter) Bar(w int, percent float64) string {
	out := make([]byte, 0, w*3)
	full := 0
	if percent > 0 {
		full = min(int(percent/100*float64(w)+0.5), w)
	}
	for i := range w {
		if i < full {
			out = append(out, p.G.full...)
		} else {
			out = append(out, p.G.rest...)
		}
	}
	return string(out)
}

// Heights draws values as columns of each cells. The largest value has the full height, zero is
// a blank, and every other value is visible.
func (p *Painter) Heights(values []int64, each int) string {
	var most int64
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		glyph := " "
		if v > 0 {
			steps := p.G.heights
			glyph = steps[min(int(float64(v)/float64(most)*float64(len(steps))), len(steps)-1)]
		}
		b.WriteString(strings.Repeat(glyph, each))
	}
	return b.String()
}

// Spark draws the last 24 hours. A cell that stands for several hours shows the worst.
func (p *Painter) Spark(runs string, w int) string {
	if runs == "" {
		return strings.Repeat(p.G.spark['.'], min(w, 24))
	}
	worst := map[byte]int{'.': 0, 'c': 1, 's': 2, 'w': 3, 'e': 4}
	w = min(w, len(runs))
	var b strings.Builder
	for i := range w {
		best := byte('.')
		for k := i * len(runs) / w; k < (i+1)*len(runs)/w; k++ {
			if worst[runs[k]] > worst[best] {
				best = runs[k]
			}
		}
		b.WriteString(p.G.spark[best])
	}
	return b.String()
}

// Stretch draws a period as a part of a line of w cells. The part has at least one cell.
func (p *Painter) Stretch(w int, from, took, whole time.Duration) string {
	cell := func(d time.Duration) int {
		if whole <= 0 {
			return 0
		}
		return min(max(int(float64(w)*d.Seconds()/whole.Seconds()+0.5), 0), w)
	}
	begin := min(cell(from), w-1)
	return strings.Repeat(" ", begin) + strings.Repeat(p.G.full, max(cell(from+took)-begin, 1))
}

// TableLine returns a name followed by figures of five cells each, in w cells. Longer figures
// shorten the name.
func TableLine(name string, w int, more string, figures ...int64) string {
	txt := ""
	for _, n := range figures {
		txt += fmt.Sprintf("%5d", n)
	}
	room := max(w-len(txt), 4)
	return Cut(name, room, more) + fmt.Sprintf("%*s", max(w-displaywidth.String(Cut(name, room, more)), 0), txt)
}

// HintWidth returns the width of a line of hints in cells.
func HintWidth(hints [][2]string) int {
	w := -2
	for _, h := range hints {
		w += displaywidth.String(h[0]) + 1 + displaywidth.String(h[1]) + 2
	}
	return w
}

// FactLines lays facts out on lines of w cells; a long one continues below its text.
func (p *Painter) FactLines(facts []Fact, w int) (out []TextLine) {
	for _, f := range facts {
		for i, l := range Wrap(f.Text, w-factWidth) {
			if i > 0 {
				f.Name = ""
			}
			out = append(out, TextLine{f.Role, fmt.Sprintf("%-*s%s", factWidth, Cut(f.Name, factWidth-1, p.G.More), l)})
		}
	}
	return out
}

// MarkedLines wraps text to lines of w cells behind the glyph of a state.
func (p *Painter) MarkedLines(r Role, state, text string, w int) (out []TextLine) {
	mark := p.G.State[state] + " "
	for _, l := range Wrap(text, w-2) {
		out = append(out, TextLine{r, mark + l})
		mark = "  "
	}
	return out
}

// Styled returns a line of text in a role.
func Styled(r Role, text string) TextLine { return TextLine{Role: r, Text: text} }

// NewFact returns a fact in a role.
func NewFact(r Role, name, text string) Fact { return Fact{Role: r, Name: name, Text: text} }
