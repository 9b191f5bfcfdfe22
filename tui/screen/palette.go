package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/tui/widget"
)

// command is a key with what it does, or an entry of the palette.
type command struct {
	words string // what it is called: "pull team-dash --full"
	note  string // a description, when the words do not explain it
	label string // the keys in short
	typed bool   // a command of the command line: what is typed behind its words belongs to it

	act     string   // what it does; "" = nothing
	by      int      // rows that it moves by, a theme, or an order
	screen  screenID // that it shows
	object  object   // that it acts on; without a kind the selection
	verb    Verb     // of a request
	request *request // to send
	action  string   // of a job to create; a context
	spec    string   // of the job

	// Of a key.
	press string     // the keys, with blanks between them
	group string     // in help
	at    []screenID // the screens where it works; empty = everywhere
	not   []screenID // the screens where it does not
	asks  bool       // a confirmation comes first
}

// chooser is a list of commands: the palette, the keys of the screen, or the orders of a list.
// Typed text searches it; Enter runs the command under the cursor. It keeps the commands of the
// time when it was opened; each of them looks up its target again.
type chooser struct {
	title   string
	legend  string // the last line, unless the command under the cursor has one
	w, most int    // cells, and lines of commands
	grid    bool   // columns with the keys
	all     []command
	found   []command
	count   int // number of all matches
	text    string
	at      int
}

const (
	// paletteFound bounds the listed commands; more letters narrow the search.
	paletteFound = 50
	// keyWidth and gridWidth are the widths of a key and of a column of help.
	keyWidth, gridWidth = 9, 25
)

func palette(all []command) chooser {
	return chooser{title: "Command", legend: "only in the dashboard", w: 76, most: 10, all: all}.search("")
}

// help lists the keys of a screen.
func help(at screenID) chooser {
	c := chooser{title: "Help", legend: "(y) asks first   - does nothing now", most: 99, grid: true}
	if name := screens[at].name; name != "" {
		c.title += ": " + name
	}
	for _, group := range []string{"MOVE", "VIEW", "ACT", "APP"} {
		for _, b := range bindings {
			if b.group == group && b.here(at) {
				b.words += widget.When(b.asks, " (y)")
				c.all = append(c.all, b)
			}
		}
	}
	return c.search("")
}

// sortChooser lists the orders of a list.
func sortChooser(l position) chooser {
	c := chooser{title: "Sort by", legend: "enter, again reverses", w: 36, most: len(l.sorts)}
	for i, name := range l.sorts {
		label := ""
		if i == l.order.by && l.order != (order{}) {
			label = map[bool]string{true: "desc", false: "asc"}[l.order.reverse]
		}
		c.all = append(c.all, command{press: name, words: name, label: label, act: "order", by: i})
	}
	c = c.search("")
	c.at = l.order.by
	return c
}

// search finds the commands that match the words, the best matches first.
func (c chooser) search(text string) chooser {
	type hit struct{ rank, at int }
	var hits []hit
	typed := strings.ToLower(text)
	for i := range c.all {
		words := strings.ToLower(c.all[i].words)
		if c.grid {
			words += " " + c.all[i].label
		}
		if c.all[i].typed && strings.HasPrefix(typed, words+" ") {
			hits = append(hits, hit{-1, i})
		} else if rank, ok := match(words, typed); ok {
			hits = append(hits, hit{rank, i})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.rank, b.rank) })
	c.text, c.at = text, 0
	c.found, c.count = nil, len(hits)
	for _, h := range hits[:min(len(hits), paletteFound)] {
		c.found = append(c.found, c.all[h.at])
	}
	return c
}

// match ranks a match, 0 best: a prefix, prefixes of words, substrings, letters in order.
func match(words, typed string) (rank int, ok bool) {
	if strings.HasPrefix(words, typed) {
		return 0, true
	}
	begins, occurs := true, true
	rest := " " + words
	for _, f := range strings.Fields(typed) {
		if i := strings.Index(rest, " "+f); i >= 0 {
			rest = rest[i+1:]
		} else {
			begins = false
		}
		occurs = occurs && strings.Contains(words, f)
	}
	switch {
	case begins:
		return 1, true
	case occurs:
		return 2, true
	}
	for _, r := range strings.ReplaceAll(typed, " ", "") {
		i := strings.IndexRune(words, r)
		if i < 0 {
			return 0, false
		}
		words = words[i+len(string(r)):]
	}
	return 3, true
}

func (c chooser) key(s *State, name, text string) {
	s.overlay = nil
	chosen := c.at < len(c.found)
	switch {
	case name == "esc" && c.grid && c.text != "":
		c = c.search("")
	case name == "esc", name == "ctrl+p", name == "?" && c.grid:
		return
	case name == "enter" && !c.grid && c.call() != "" && (!chosen || c.found[c.at].typed):
		s.run(c.call())
		return
	case name == "enter" && chosen:
		s.perform(c.found[c.at])
		return
	case name == "tab" && chosen:
		words := c.found[c.at].words
		if line := c.call(); len(line) > len(words) {
			words = line
		}
		c = c.search(words + widget.When(c.found[c.at].typed, " "))
	case name == "up", name == "down":
		c.at = max(min(c.at+steps[name], len(c.found)-1), 0)
	default:
		if next := widget.Edit(c.text, name, text); next != c.text {
			c = c.search(next)
		}
	}
	s.overlay = c
}

// call returns the command line under the cursor, with what is typed behind its words; else what is
// typed.
func (c chooser) call() string {
	typed := strings.TrimSpace(c.text)
	if c.at >= len(c.found) {
		return typed
	}
	words := c.found[c.at].words
	if c.at == 0 && c.found[0].typed && strings.HasPrefix(words, strings.ToLower(typed)+" ") { // a group lists its commands
		return strings.ToLower(typed)
	}
	if strings.HasPrefix(strings.ToLower(c.text), words+" ") {
		words += typed[len(words):]
	}
	return words
}

func (c chooser) hints(*scene) string {
	return "^v move|tab complete|enter run|letters search|esc close"
}

func (c chooser) draw(p *view) overlay {
	var rows []command // those without a key are heads
	at := 0            // the row of the cursor
	w, columns := min(c.w, p.c.W-2), 1
	if c.grid {
		columns = min(max((p.c.W-4)/gridWidth, 1), 4)
		w = columns*gridWidth + 3
	}
	for i, of := range c.found {
		if c.grid && c.text == "" && (i == 0 || of.group != c.found[i-1].group) {
			rows = append(rows, make([]command, min(i, 1))...)
			rows = append(rows, command{words: of.group})
		}
		if i == c.at {
			at = len(rows)
		}
		rows = append(rows, of)
	}
	lines := min(max((len(rows)+columns-1)/columns, 1), c.most, max(p.c.H-6, 1))
	box := widget.Box{Title: c.title, Note: "esc closes", Foot: "type to search, enter runs", Focused: true}
	if more := c.count - lines; columns == 1 && more > 0 {
		box.Note = fmt.Sprintf("%d more, esc closes", more)
	}
	area := p.c.Dialog(w, lines+4)
	p.c.Box(area, box)
	x, y := area.X+2, area.Y+2
	inner := w - 4
	input := ": " + c.text
	for displaywidth.String(input) > inner-1 { // the end is where the user types
		input = input[len(string([]rune(input)[:1])):]
	}
	p.c.Put(p.c.Put(x, area.Y+1, inner, widget.RoleKey, input), area.Y+1, 1, widget.RoleCursor, " ")
	if len(rows) == 0 {
		p.c.PutCut(x+2, y, inner-2, widget.RoleDim, widget.When(c.grid, "no such key")+widget.When(!c.grid, "Enter runs: limpet "+c.text))
	}
	from := widget.Window(at, len(rows), lines)
	if page := lines * columns; columns > 1 { // the page with the cursor
		from = at / page * page
	}
	for i := from; i < min(from+lines*columns, len(rows)); i++ {
		c.drawRow(p, rows[i], p.commands.refusal(rows[i]) == "", x+(i-from)/lines*(inner/columns), y+(i-from)%lines, inner/columns, i == at)
	}
	p.c.PutCut(x, y+lines, inner, widget.RoleDim, c.last(p))
	return c
}

func (c chooser) drawRow(p *view, of command, enabled bool, x, y, w int, cursor bool) {
	if of.act == "" && !of.typed {
		p.c.Put(x+1, y, w-2, widget.RoleTitle, of.words)
		return
	}
	key, plain := widget.RoleKey, widget.RolePlain
	words, end := x+2, x+w-1
	if !enabled {
		key, plain = widget.RoleDim, widget.RoleDim
		p.c.Put(x, y, 1, widget.RoleKey, "-")
	}
	room := end - words
	if c.grid {
		p.c.Put(x+1, y, keyWidth-1, key, of.label)
		words, room = x+keyWidth, end-x-keyWidth
	} else if of.note+of.label != "" && w >= 56 {
		room = w/2 - 2
		p.c.PutCut(words+room+1, y, end-words-room-9, widget.RoleDim, of.note)
		p.c.Right(end-6, end, y, widget.RoleKey, of.label)
	}
	p.c.PutCut(words, y, room, plain, of.words)
	if cursor {
		p.c.Cursor(x, y, end)
	}
}

// last returns the last line: why the command under the cursor is disabled, or the equivalent
// command line.
func (c chooser) last(p *view) string {
	if c.at >= len(c.found) {
		return ""
	}
	of := c.found[c.at]
	if why := p.commands.refusal(of); why != "" {
		return why
	}
	if of.typed {
		return "limpet " + c.call()
	}
	if line := p.commands.line(of); line != "" && !c.grid {
		return "same as: " + line
	}
	return c.legend
}

// commands returns the commands of the keys, the themes, the agent, and each object of the
// snapshot.
func allCommands(s *State) []command {
	out := keyCommands(&s.scene)
	for i, name := range widget.Themes {
		out = append(out, command{words: "theme " + name, label: "T", act: "theme", by: i})
	}
	for _, site := range s.Contexts {
		out = append(out, command{words: "ctx " + site.Words, note: site.Help, act: "context", action: site.Words})
	}
	for _, kind := range []string{onRepo, onSource, onJob} {
		for o := range s.objects(kind) {
			out = append(out, command{words: "go " + kind + " " + o.Name, label: "enter", act: "go", object: o})
		}
	}
	var line []Entry
	if s.Commands != nil {
		line = s.Commands()
	}
	for _, e := range line {
		if e.Words != "doctor" { // the key D
			out = append(out, command{words: e.Words, note: e.Help, typed: true})
		}
	}
	return out
}

// keyCommands returns the commands of the keys that act, then those that change the view, then the
// others.
func keyCommands(s *scene) (out []command) {
	for _, group := range []string{"ACT", "VIEW", "APP"} {
		for _, c := range bindings {
			if c.group != group || !c.here(s.screen) || slices.Contains([]string{"enter", "esc", ": ^p"}, c.label) {
				continue
			}
			if c.act == "screen" {
				c.words = "go " + c.words
			}
			if c.verb != "" {
				c.note = "of the row"
				switch r, _ := requestFor(&s.facts, c.verb, s.selected); {
				case len(r.on) > 1:
					c.note = fmt.Sprintf("of the %d that are marked", len(r.on))
				case len(r.on) == 1: // only this one, though the cursor moves with the snapshot
					c.note = r.on[0].Name
					c.verb, c.object = r.verb, r.on[0]
				}
			}
			c.press = ""
			out = append(out, c)
		}
	}
	return out
}
