package screen

import (
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/tui/widget"
)

// overlay is a box over the screen. While it is open it handles all keys but Ctrl-C. It is a
// value: key stores its next state in s.overlay.
type overlay interface {
	key(s *State, name, text string)
	draw(p *view)
	// hints returns its keys for the last line of the screen.
	hints(p *view) []widget.Hint
}

// menu is a list of rows in a box.
type menu struct {
	widget.Box
	w       int // of the box, when the screen is as wide
	columns int
	most    int    // lines of rows, when the screen is as high
	input   string // the typed line with its prompt; "" = none
	rows    []menuRow
	at      int
	empty   string // instead of rows
	last    string // below the rows; "" = none
}

// menuRow is a row of a menu, or the head of some rows.
type menuRow struct {
	mark, key, text string
	note, label     string // in the middle, and at the right
	head, off       bool
}

// keyWidth is the width of the keys at the left of a menu.
const keyWidth = 9

func (p *view) menu(m menu) {
	w, around := min(m.w, p.W), 2
	if m.input != "" {
		around++
	}
	if m.last != "" {
		around++
	}
	lines := min(max((len(m.rows)+m.columns-1)/m.columns, 1), m.most, max(p.H-2-around, 1))
	at := p.Dialog(w, lines+around)
	m.Focused = true
	p.Canvas.Box(at, m.Box)
	x, y, inner := at.X+2, at.Y+1, w-4
	if m.input != "" {
		text := m.input
		for displaywidth.String(text) > inner-1 { // the end is where the user types
			text = text[len(string([]rune(text)[:1])):]
		}
		p.Put(p.Put(x, y, inner, widget.RoleKey, text), y, 1, widget.RoleCursor, " ")
		y++
	}
	if len(m.rows) == 0 {
		p.PutCut(x+2, y, inner-2, widget.RoleDim, m.empty)
	}
	from := widget.Window(m.at, len(m.rows), lines)
	if page := lines * m.columns; m.columns > 1 { // the page with the cursor
		from = m.at / page * page
	}
	column := inner / m.columns
	for i := from; i < min(from+lines*m.columns, len(m.rows)); i++ {
		p.menuRow(m.rows[i], x+(i-from)/lines*column, y+(i-from)%lines, column, i == m.at)
	}
	if m.last != "" {
		p.PutCut(x, y+lines, inner, widget.RoleDim, m.last)
	}
}

func (p *view) menuRow(row menuRow, x, y, w int, cursor bool) {
	if row.head {
		p.Put(x+1, y, w-2, widget.RoleTitle, row.text)
		return
	}
	key, plain, text, end := widget.RoleKey, widget.RolePlain, x+1, x+w-1
	if row.off {
		key, plain = widget.RoleDim, widget.RoleDim
	}
	p.Put(x, y, 1, widget.RoleKey, row.mark)
	if row.key != "" {
		p.Put(x+1, y, keyWidth-1, key, row.key)
		text = x + keyWidth
	}
	room := end - text
	if row.note+row.label != "" && w >= 56 {
		room = w/2 - 2
		p.PutCut(text+room+1, y, end-6-text-room-2, widget.RoleDim, row.note)
		p.Right(end-6, end, y, widget.RoleKey, row.label)
	}
	p.PutCut(text, y, room, plain, row.text)
	if cursor {
		p.Cursor(x, y, end, true)
	}
}

// confirm is a confirmation dialog. Enter does nothing, because a habitual Enter is no decision.
// Every other unknown key means no.
type confirm struct {
	title   string
	lines   []string // the consequences of a yes, with figures
	yes     string   // the answer that sends the actions
	choices []choice
	quit    bool // confirms the end of the dashboard
	// name, if set, must be typed before Enter takes the first choice. It protects actions that
	// take long to undo.
	name, typed string
}

// choice is one answer.
type choice struct {
	key, text string
	do        func(*State)
}

const goBackText = "No, go back"

func (q confirm) key(s *State, name, txt string) {
	switch {
	case name == "enter" && q.name != "" && q.typed == q.name:
		s.overlay = nil
		q.choices[0].do(s)
	case name == "enter":
	case name == "esc" || q.name == "":
		s.overlay = nil
		for _, c := range q.choices {
			if strings.EqualFold(name, c.key) {
				c.do(s)
				return
			}
		}
	default:
		q.typed = widget.Edit(q.typed, name, txt)
		s.overlay = q
	}
}

func (q confirm) hints(*view) []widget.Hint {
	if q.name != "" {
		return []widget.Hint{{Key: "enter", Text: "when the name is typed"}, {Key: "esc", Text: "no"}}
	}
	var out []widget.Hint
	for _, c := range q.choices {
		out = append(out, widget.Hint{Key: c.key, Text: c.text})
	}
	return append(out, widget.Hint{Key: "n", Text: goBackText})
}

func (q confirm) draw(p *view) {
	w := min(72, p.W-2)
	inner := w - 4
	box := widget.Box{Title: q.title, Note: "default: No", Focused: true}
	var lines []string
	if displaywidth.String(q.title) > w-8 {
		box.Title = "Sure?"
		lines = widget.Wrap(q.title, inner)
	}
	if displaywidth.String(box.Title+box.Note) > w-8 {
		box.Note = ""
	}
	for _, l := range q.lines {
		lines = append(lines, widget.Wrap(l, inner)...)
	}
	answers := q.answers(inner)
	if room := p.H - 2 - len(answers) - 1; len(lines) > room {
		lines = append(lines[:max(room-1, 0):max(room-1, 0)], p.G.More)
	}
	at := p.Dialog(w, len(lines)+len(answers)+3)
	p.Canvas.Box(at, box)
	for i, l := range lines {
		p.Put(at.X+2, at.Y+1+i, inner, widget.RolePlain, l)
	}
	for i, row := range answers {
		p.Canvas.Hints(at.X+2, at.Y+2+len(lines)+i, at.X+w-2, widget.RolePlain, row)
	}
}

// answers returns the choices in rows, as many in a row as fit.
func (q confirm) answers(w int) [][]widget.Hint {
	if q.name != "" {
		return [][]widget.Hint{{{Key: "type", Text: q.name}}, {{Key: ">", Text: q.typed + "_"}},
			{{Key: "enter", Text: q.choices[0].text}, {Key: "esc", Text: goBackText}}}
	}
	rows := [][]widget.Hint{{{Key: "n", Text: goBackText}}}
	for _, c := range q.choices {
		last, hint := len(rows)-1, widget.Hint{Key: c.key, Text: c.text}
		if row := append(rows[last : last+1 : last+1][0], hint); widget.HintWidth(row) <= w {
			rows[last] = row
		} else {
			rows = append(rows, []widget.Hint{hint})
		}
	}
	return rows
}

// sortMenu selects the order of the focused list.
type sortMenu struct{ at int }

func (s *State) openSort() { s.overlay = sortMenu{at: s.list().order.by} }

func (m sortMenu) key(s *State, name, _ string) {
	l := s.list()
	by, moves := steps[name]
	switch o := &l.order; {
	case moves:
		m.at = min(max(m.at+by, 0), len(l.sorts)-1)
		s.overlay = m
		return
	case name == "enter" && o.by == m.at:
		o.reverse = !o.reverse
	case name == "enter":
		*o = order{by: m.at}
	}
	s.overlay = nil
}

func (m sortMenu) hints(p *view) []widget.Hint {
	return []widget.Hint{p.arrows("move"), {Key: "enter", Text: "sort, again reverses"}, {Key: "esc", Text: "close"}}
}

func (m sortMenu) draw(p *view) {
	l := p.s.list()
	var rows []menuRow
	for i, name := range l.sorts {
		if i == l.order.by && l.order != (order{}) {
			name += " " + p.arrow(l.order)
		}
		rows = append(rows, menuRow{text: " " + name})
	}
	p.menu(menu{Box: widget.Box{Title: "Sort by", Foot: "enter, again reverses"}, w: 36, columns: 1, most: p.H, rows: rows, at: m.at})
}

// arrow returns the direction of an order.
func (p *view) arrow(o order) string {
	if o.reverse {
		return p.G.Down
	}
	return p.G.Up
}

// help lists the keys of the present screen by group. Typed text filters it; Enter runs the key
// under the cursor. Disabled keys are marked with a dash; the reason is shown for that under the
// cursor and on Enter.
type help struct {
	text string
	at   int
}

// found returns the keys that match the text, group by group.
func (h help) found(s *State) (out []binding) {
	for _, group := range []string{"MOVE", "VIEW", "ACT", "APP"} {
		for _, b := range bindings {
			if b.group == group && b.here(s) && widget.ContainsWords(h.text, b.label, b.text, group) {
				out = append(out, b)
			}
		}
	}
	return out
}

func (h help) key(s *State, name, text string) {
	found := h.found(s)
	s.overlay = nil
	switch {
	case name == "esc" && h.text != "":
		h = help{}
	case name == "esc", name == "?" && h.text == "":
		return
	case name == "enter":
		if h.at < len(found) {
			s.run(found[h.at].refusal(s), found[h.at].do)
		}
		return
	case name == "up" || name == "down":
		h.at = max(min(h.at+steps[name], len(found)-1), 0)
	default:
		h.text, h.at = widget.Edit(h.text, name, text), 0
	}
	s.overlay = h
}

func (h help) hints(p *view) []widget.Hint {
	return []widget.Hint{p.arrows("move"), {Key: "enter", Text: "do it"}, {Key: "letters", Text: "search"}, {Key: "esc", Text: "close"}}
}

func (h help) draw(p *view) {
	m := menu{most: p.H, at: -1, last: "(y) asks first   - does nothing now", empty: "no key does that; Esc shows all",
		Box: widget.Box{Title: "Help", Note: "esc closes", Foot: "type to search, enter runs"}}
	if name := screens[p.s.screen].name; name != "" {
		m.Title += ": " + strings.ToUpper(name[:1]) + name[1:]
	}
	m.columns = min(max((p.W-4)/25, 1), 4)
	m.w = m.columns*25 + 3
	if h.text != "" {
		m.input = "/ " + h.text
	}
	group := ""
	for i, b := range h.found(p.s) {
		if b.group != group {
			if group != "" {
				m.rows = append(m.rows, menuRow{head: true})
			}
			group = b.group
			m.rows = append(m.rows, menuRow{head: true, text: group})
		}
		why := b.refusal(p.s)
		row := menuRow{mark: " ", key: b.label, text: b.text, off: why != ""}
		if row.off {
			row.mark = "-"
		}
		if b.asks {
			row.text += " (y)"
		}
		if i == h.at {
			m.at = len(m.rows)
			if row.off {
				m.last = why
			}
		}
		m.rows = append(m.rows, row)
	}
	m.at = max(m.at, 0)
	p.menu(m)
}
