package tui

import "github.com/clipperhouse/displaywidth"

// overlay is a box before the screen. While it is there all keys are its own;
// only Ctrl-C comes first. Its methods are pure, as State's are.
type overlay interface {
	// key returns the state after a key press; s.over is this overlay, and stays
	// unless it is changed.
	key(s State, name, text string) (State, Outcome)
	draw(p *painter)
}

// question is an action that waits for a yes. Enter does nothing: a person who
// hits it by habit has decided nothing.
type question struct {
	text   string
	action Action
	done   string // what is said of the yes
	quit   bool   // the yes means to quit; there is no action
}

// ask opens a question.
func (s State) ask(q question) State { s.over = q; return s }

// asked is the question that is open.
func (s State) asked() (question, bool) { q, ok := s.over.(question); return q, ok }

// key takes y for yes and everything but Enter for no.
func (q question) key(s State, name, _ string) (State, Outcome) {
	switch name {
	case "enter":
		return s, Outcome{}
	case "y", "Y", "shift+y":
		s.over = nil
		if q.quit {
			return s, Outcome{Quit: true}
		}
		return s.say(q.done, false), Outcome{Action: &q.action}
	}
	s.over = nil
	return s, Outcome{}
}

func (q question) draw(p *painter) {
	lines := wrap(q.text, min(60, p.w-6))
	w, h := min(64, p.w-2), len(lines)+4
	x, y := p.dialog(w, h)
	p.box(p.g, x, y, w, h, "Sure?", "", "", true)
	for i, l := range lines {
		p.put(x+2, y+1+i, w-4, rolePlain, l)
	}
	at := p.put(x+2, y+h-2, w-4, roleKey, "y")
	at = p.put(at+1, y+h-2, w-6, rolePlain, "yes    ")
	at = p.put(at, y+h-2, w-12, roleKey, "n")
	p.put(at+1, y+h-2, w-14, rolePlain, "no, and any other key; Enter does nothing")
}

// help lists the key table in columns by group.
type help struct{}

func (help) key(s State, _, _ string) (State, Outcome) { s.over = nil; return s, Outcome{} }

func (help) draw(p *painter) {
	var lines [][2]string
	for i, g := range groups {
		if i > 0 {
			lines = append(lines, [2]string{})
		}
		lines = append(lines, [2]string{g})
		for _, b := range bindings {
			if b.group == g && b.here(p.s) {
				lines = append(lines, [2]string{b.label, b.text})
			}
		}
	}
	per := len(lines)
	columns := 1
	for per+2 > p.h-4 && columns < 3 {
		columns++
		per = (len(lines) + columns - 1) / columns
	}
	const column = 34
	w, h := min(columns*column+4, p.w), min(per+2, p.h)
	x, y := p.dialog(w, h)
	p.box(p.g, x, y, w, h, "Help", "", "any key closes", true)
	for i, l := range lines {
		cx, cy := x+2+i/per*column, y+1+i%per
		if cy >= y+h-1 || cx+10 > x+w {
			continue
		}
		if l[1] == "" {
			p.put(cx, cy, w, roleTitle, l[0])
			continue
		}
		p.put(cx, cy, 10, roleKey, l[0])
		p.put(cx+10, cy, min(column-11, x+w-cx-11), rolePlain, l[1])
	}
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
