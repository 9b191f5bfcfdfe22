package tui

import (
	"strings"
)

// help lists the keys of the present screen by group. What is typed narrows it,
// Enter does what the key under the cursor does. What does nothing now has a dash
// before it, and says why when the cursor is on it or it is pressed.
type help struct {
	text string
	at   int
}

// groups are the heads of the help, in their order.
var groups = []string{"MOVE", "VIEW", "ACT", "APP"}

// found are the keys that the text lets through, group by group.
func (h help) found(s State) (out []binding) {
	for _, g := range groups {
		for _, b := range bindings {
			if b.group == g && b.here(s) && matches(h.text, b.label, b.text, g) {
				out = append(out, b)
			}
		}
	}
	return out
}

func (h help) key(s State, name, text string) (State, Outcome) {
	found := h.found(s)
	switch {
	case name == "esc" && h.text != "":
		h.text, h.at = "", 0
	case name == "esc", name == "?" && h.text == "":
		s.overlay = nil
		return s, Outcome{}
	case name == "enter":
		s.overlay = nil
		if h.at < len(found) {
			return s.run(found[h.at])
		}
		return s, Outcome{}
	case name == "up":
		h.at = max(h.at-1, 0)
	case name == "down":
		h.at = max(min(h.at+1, len(found)-1), 0)
	default:
		h.text, h.at = edit(h.text, name, text), 0
	}
	s.overlay = h
	return s, Outcome{}
}

// helpLine is a line of the help: the head of a group, a key, or nothing.
type helpLine struct {
	head string
	at   int // of the key; -1 = this line has none
}

func (h help) lines(found []binding) (out []helpLine) {
	group := ""
	for i, b := range found {
		if b.group != group {
			if group != "" {
				out = append(out, helpLine{at: -1})
			}
			group = b.group
			out = append(out, helpLine{head: group, at: -1})
		}
		out = append(out, helpLine{at: i})
	}
	return out
}

// helpColumn is the room for a key in cells: mark, label, text and (y).
const helpColumn = 25

func (h help) hints(p *view) [][2]string {
	return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "do it"}, {"letters", "search"}, {"esc", "close"}}
}

func (h help) draw(p *view) {
	found := h.found(p.s)
	lines := h.lines(found)
	columns := min(max((p.w-4)/helpColumn, 1), 4)
	w := min(columns*helpColumn+3, p.w)
	rows := min(max((len(lines)+columns-1)/columns, 1), p.h-5)
	// Where not all of it fits, the page with the cursor is shown.
	page, from := columns*rows, 0
	for i, l := range lines {
		if l.at == h.at {
			from = i / page * page
		}
	}
	x, y := p.dialog(w, rows+4)
	p.box(p.g, x, y, w, rows+4, p.helpTitle(), "esc closes", "type to search, enter runs", true)
	for i, l := range lines[from:min(from+page, len(lines))] {
		cx, cy := x+2+i/rows*helpColumn, y+1+i%rows
		if l.at < 0 {
			p.put(cx+1, cy, helpColumn-2, roleTitle, l.head)
			continue
		}
		b := found[l.at]
		mark, key, plain := " ", roleKey, rolePlain
		if b.refusal(p.s) != "" {
			mark, key, plain = "-", roleDim, roleDim
		}
		if l.at == h.at {
			mark = p.g.cursor
		}
		text := b.text
		if b.asks {
			text += " (y)"
		}
		end := min(cx+helpColumn-1, x+w-1)
		p.put(cx, cy, 1, roleKey, mark)
		p.put(cx+1, cy, 8, key, b.label)
		p.put(cx+9, cy, end-cx-9, plain, cut(text, end-cx-9, p.g.more))
		if l.at == h.at {
			p.paintRow(cx+1, cy, end, roleCursor)
		}
	}
	note := "(y) asks first   - does nothing now"
	switch {
	case len(found) == 0:
		note = "no key does that; Esc shows all"
	case found[min(h.at, len(found)-1)].refusal(p.s) != "":
		note = found[min(h.at, len(found)-1)].refusal(p.s)
	}
	at := x + 2
	if h.text != "" {
		at = p.put(at, y+rows+2, w-6, roleKey, "/ "+h.text)
		at = p.put(at, y+rows+2, 1, roleCursor, " ") + 1
	}
	p.put(at, y+rows+2, x+w-1-at, roleDim, cut(note, x+w-1-at, p.g.more))
}

// helpTitle names the screen where there is room for it.
func (p *view) helpTitle() string {
	title := "Help"
	if name := screens[p.s.screen].name; name != "" {
		title += ": " + strings.ToUpper(name[:1]) + name[1:]
	}
	return cut(title, max(p.w-30, 4), "")
}
