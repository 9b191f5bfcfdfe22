package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// painter draws parts of a frame on a canvas: it has the glyphs and the abilities of the
// terminal.
type painter struct {
	*canvas
	g    glyphs
	caps Caps
	// onRow, when set, is called with the area of each row of the next list.
	onRow func(row, x, y, w int)
}

// newPainter is a painter of w by h cells.
func newPainter(w, h int, caps Caps) *painter {
	return &painter{canvas: newCanvas(w, h), g: caps.glyphs(), caps: caps}
}

// textLine is a line of the screen.
type textLine struct {
	role role
	text string
}

// dialog clears a box of w by h cells in the middle and returns its corner.
func (p *painter) dialog(w, h int) (x, y int) {
	x, y = max((p.w-w)/2, 0), max((p.h-h)/2, 0)
	for row := y; row < y+h && row < p.h; row++ {
		p.fill(x, row, min(x+w, p.w), rolePlain, " ")
	}
	return x, y
}

// putLines puts lines into a box; where there is no room for all it says how many more
// there are, unless that were all it says.
func (p *painter) putLines(x, y, w, h int, lines []textLine) {
	for i, l := range lines[:min(len(lines), max(h-2, 0))] {
		if rest := len(lines) - i; i == h-3 && i > 0 && rest > 1 {
			l = textLine{roleDim, fmt.Sprintf("%s %d more lines", p.g.more, rest)}
		}
		p.put(x+2, y+1+i, w-4, l.role, cut(l.text, w-4, p.g.more))
	}
}

// factWidth is the room for the name of a fact, in cells.
const factWidth = 11

// fact is one thing that is said under a name.
type fact struct {
	role       role
	name, text string
}

func (p *painter) empty(x, y, w, h int, txt []string) {
	row := y + 1
	for _, t := range txt {
		for _, l := range wrap(t, w-4) {
			if row < y+h-1 {
				p.put(x+2, row, w-4, roleDim, l)
			}
			row++
		}
	}
}

// foldLine is a line of a text in w cells: cut, or with w its rest below.
func (p *painter) foldLine(r role, txt string, w int, wraps bool) []textLine {
	if !wraps {
		return []textLine{{r, cut(txt, w, p.g.more)}}
	}
	var out []textLine
	for {
		head := cut(txt, w, "")
		if head == "" || head == txt {
			return append(out, textLine{r, txt})
		}
		out, txt = append(out, textLine{r, head}), txt[len(head):]
	}
}

func (p *painter) cell(x, y, w int, right bool, r role, text string) {
	text = cut(text, w, p.g.more)
	if right {
		p.right(x, x+w, y, r, text)
		return
	}
	p.put(x, y, w, r, text)
}

// bar is a progress bar of w cells; a share below 0 is unknown.
func (p *painter) bar(w int, percent float64) string {
	out := make([]byte, 0, w*3)
	full := 0
	if percent > 0 {
		full = min(int(percent/100*float64(w)+0.5), w)
	}
	for i := range w {
		if i < full {
			out = append(out, p.g.full...)
		} else {
			out = append(out, p.g.rest...)
		}
	}
	return string(out)
}

// heights draws values as columns of so many cells; the largest is as high as a
// line, nothing is a blank, and anything is more than nothing.
func (p *painter) heights(values []int64, each int) string {
	var most int64
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		glyph := " "
		if v > 0 {
			steps := p.g.heights
			glyph = steps[min(int(float64(v)/float64(most)*float64(len(steps))), len(steps)-1)]
		}
		b.WriteString(strings.Repeat(glyph, each))
	}
	return b.String()
}

// spark is the line of the last 24 hours, the worst of several where there is
// less room than hours.
func (p *painter) spark(runs string, w int) string {
	if runs == "" {
		return strings.Repeat(p.g.spark['.'], min(w, 24))
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
		b.WriteString(p.g.spark[best])
	}
	return b.String()
}

// stretch is a line of w cells for a time, with a part of it drawn where it was; however
// short, that has a cell.
func (p *painter) stretch(w int, from, took, whole time.Duration) string {
	cell := func(d time.Duration) int {
		if whole <= 0 {
			return 0
		}
		return min(max(int(float64(w)*d.Seconds()/whole.Seconds()+0.5), 0), w)
	}
	begin := min(cell(from), w-1)
	return strings.Repeat(" ", begin) + strings.Repeat(p.g.full, max(cell(from+took)-begin, 1))
}

// tableLine is a name and figures behind it, five cells each, in w cells; figures
// that are longer take of the room of the name.
func tableLine(name string, w int, more string, figures ...int64) string {
	txt := ""
	for _, n := range figures {
		txt += fmt.Sprintf("%5d", n)
	}
	room := max(w-len(txt), 4)
	return cut(name, room, more) + fmt.Sprintf("%*s", max(w-displaywidth.String(cut(name, room, more)), 0), txt)
}

// hintWidth is the width of a line of hints in cells.
func hintWidth(hints [][2]string) int {
	w := -2
	for _, h := range hints {
		w += displaywidth.String(h[0]) + 1 + displaywidth.String(h[1]) + 2
	}
	return w
}

// factLines lays facts out on lines of w cells; a long one continues below its text.
func (p *painter) factLines(facts []fact, w int) (out []textLine) {
	for _, f := range facts {
		for i, l := range wrap(f.text, w-factWidth) {
			if i > 0 {
				f.name = ""
			}
			out = append(out, textLine{f.role, fmt.Sprintf("%-*s%s", factWidth, cut(f.name, factWidth-1, p.g.more), l)})
		}
	}
	return out
}

// markedLines wraps text to lines of w cells behind the glyph of a state.
func (p *painter) markedLines(r role, state, text string, w int) (out []textLine) {
	mark := p.g.state[state] + " "
	for _, l := range wrap(text, w-2) {
		out = append(out, textLine{r, mark + l})
		mark = "  "
	}
	return out
}
