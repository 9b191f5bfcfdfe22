package tui

import "github.com/clipperhouse/displaywidth"

// overlay is a box before the screen. While it is there all keys are its own;
// only Ctrl-C comes first. Its methods are pure, as State's are.
type overlay interface {
	// key returns the state after a key press; s.over is this overlay, and stays
	// unless it is changed.
	key(s State, name, text string) (State, Outcome)
	draw(p *painter)
	// hints are its keys, each with a word, for the last line of the screen.
	hints(p *painter) [][2]string
}

// dialog clears a box of w by h cells in the middle and returns its corner.
func (p *painter) dialog(w, h int) (x, y int) {
	x, y = max((p.w-w)/2, 0), max((p.h-h)/2, 0)
	for row := y; row < y+h && row < p.h; row++ {
		p.fill(x, row, min(x+w, p.w), rolePlain, " ")
	}
	return x, y
}

// hintWidth is the width of a line of hints in cells.
func hintWidth(hints [][2]string) int {
	w := -2
	for _, h := range hints {
		w += displaywidth.String(h[0]) + 1 + displaywidth.String(h[1]) + 2
	}
	return w
}
