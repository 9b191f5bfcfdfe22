package tui

import (
	"fmt"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

var diffFace = screen{
	under: screenJobs, draw: (*view).diff, fetch: State.fetchDiff,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.g.up + p.g.down, "scroll"}, {"n", "next change"}, {"w", "wrap"}, {"/", "find"}, {"esc", "back"}}
	},
	move: State.moveDiff,
	open: func(s State) State {
		if s.changes.file.err != "" {
			s.changes.file = new(compared)
		}
		return s
	},
	found: func(s State) string {
		of := 0
		if t := s.changes.file.Text; t != nil {
			of = len(t.Lines)
		}
		return fmt.Sprintf("%d of %s", len(s.diffLines()), text.Plural(of, "line"))
	},
	command: State.detailCommand,
}

// diffShown is what of the file is on the screen: its own, not that of one before.
func (s State) diffShown() (compared, bool) {
	q, _ := s.changeQuery()
	q.Path = s.changes.path
	return *s.changes.file, s.changes.file.of == q
}

// diffLines are the lines of the file that the filter lets through.
func (s State) diffLines() []snapshot.TextLine {
	c, ok := s.diffShown()
	if !ok || c.Text == nil {
		return nil
	}
	filter := s.filters[screenDiff]
	if filter == "" {
		return c.Text.Lines
	}
	var out []snapshot.TextLine
	for _, l := range c.Text.Lines {
		if l.Op != "@" && matches(filter, l.Text) {
			out = append(out, l)
		}
	}
	return out
}

// diffBody are the lines as they are laid out in w cells.
func (p *view) diffBody(w int) (out []textLine) {
	for _, l := range p.s.diffLines() {
		txt, r := l.Op+l.Text, rolePlain
		switch l.Op {
		case "@":
			txt, r = l.Text, roleHead
		case "+":
			r = roleGood
		case "-":
			r = roleBad
		}
		out = append(out, p.foldLine(r, txt, w, p.s.wraps)...)
	}
	if c, _ := p.s.diffShown(); c.Text != nil && c.Text.More > 0 {
		out = append(out, textLine{roleDim, fmt.Sprintf("%s %s more lines are not shown", p.g.more, text.Thousands(c.Text.More))})
	}
	return out
}

// diffTop is the first line of the screen, for as many as there are, and how many
// fit.
func (s State) diffTop(lines, h int) (top, room int) {
	room = max(h-3, 1) // the edges, and the line of what was compared
	return min(max(s.changes.scroll, 0), max(lines-room, 0)), room
}

// layout is a painter for what keys have to know of the lines of the screen.
func (s State) layout() (p *view, w, h int) {
	w, h = s.size()
	return &view{painter: newPainter(0, 0, s.Caps), s: s}, w, h - frameRows
}

func (s State) moveDiff(by int) State {
	p, w, h := s.layout()
	lines := len(p.diffBody(w - 4))
	top, _ := s.diffTop(lines, h)
	s.changes.scroll = max(top+by, 0)
	s.changes.scroll, _ = s.diffTop(lines, h)
	return s
}

// nextPiece scrolls to the next piece of the file, or with back to the one before.
func (s State) nextPiece(back bool) State {
	p, w, h := s.layout()
	body := p.diffBody(w - 4)
	top, _ := s.diffTop(len(body), h)
	found := -1
	for i, l := range body {
		if l.role != roleHead {
			continue
		}
		if back && i < top {
			found = i
		}
		if !back && i > top {
			found = i
			break
		}
	}
	if found < 0 {
		return s.say("there is no further change", false)
	}
	return s.moveDiff(found - top)
}

// diff is one file old against new.
func (p *view) diff(x, y, w, h int) {
	c, ok := p.s.diffShown()
	body := p.diffBody(w - 4)
	top, room := p.s.diffTop(len(body), h)
	note, foot := "", ""
	if ok && c.Text != nil {
		note = fmt.Sprintf("+%d -%d lines", c.Text.Added, c.Text.Deleted)
	}
	if len(body) > room {
		foot = fmt.Sprintf("%d-%d of %d", top+1, min(top+room, len(body)), len(body))
	}
	p.box(p.g, x, y, w, h, fileTitle(p.s.changes.path, w-len(note)-10, p.g.more), note, foot, true)
	if why := p.noDiff(c, ok, body); why != nil {
		p.empty(x, y, w, h, why)
		return
	}
	q, _ := p.s.changeQuery()
	head := fmt.Sprintf("%s, %s %s %s", c.Text.Form, text.OrDash(text.ShortRef(q.From)), p.g.arrow, text.ShortRef(q.To))
	p.put(x+2, y+1, w-4, roleDim, cut(head, w-4, p.g.more))
	for i, l := range body[top:min(top+room, len(body))] {
		p.put(x+2, y+2+i, w-4, l.role, l.text)
	}
}

// fileTitle is a path in w cells; its end tells more than its beginning.
func fileTitle(path string, w int, more string) string {
	for cut(path, w, "") != path {
		_, rest, ok := strings.Cut(strings.TrimPrefix(path, more), "/")
		if !ok {
			return cut(path, w, more)
		}
		path = more + rest
	}
	return path
}

// noDiff says why there is nothing to be seen; nil = there is.
func (p *view) noDiff(c compared, ok bool, body []textLine) []string {
	if why := changesRefusal(p.s); why != "" {
		return []string{why + "."}
	}
	switch {
	case ok && c.err != "":
		return []string{"It cannot be told what has changed: " + c.err, "Enter asks again."}
	case !ok || c.Text == nil:
		return []string{"Looking" + p.g.more}
	case len(c.Text.Lines) == 0:
		return []string{c.Text.Form + "."}
	case len(body) == 0:
		return []string{fmt.Sprintf("No line has %q. Esc clears the filter.", p.s.filters[screenDiff])}
	}
	return nil
}
