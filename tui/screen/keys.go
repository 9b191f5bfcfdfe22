package screen

import (
	"context"
	"slices"
	"strings"

	"limpet/tui/widget"
)

// Outcome is the effect of a key press besides the next state.
type Outcome struct {
	Quit    bool
	SetUp   bool     // leave, and start the setup
	Actions []Action // sent one after the other
	Refresh bool     // redraw the screen, and request a snapshot now
	Copy    string   // for the clipboard of the terminal
}

// Lookup fetches data that the snapshot does not contain. It runs concurrently with the screen.
// ctx ends with the dashboard, after LookupTimeout, and when another lookup starts. The returned
// function applies the result to the present state, which may have changed since.
type Lookup func(ctx context.Context, src Source) func(State) State

// binding is one row of the key table. Help, hints and the palette are derived from it, so they
// list only keys that work.
type binding struct {
	keys      []string
	label     string // shown in help
	text      string
	group     string
	asks      bool // a confirmation comes first
	verb      Verb // the action that it sends; refusalOf and do are then derived from it
	do        func(State) (State, Outcome)
	on        []screenID         // the screens where it works; empty = everywhere
	there     func(State) bool   // whether it applies; nil = always
	refusalOf func(State) string // why it is disabled; "" = enabled. nil = always enabled
	line      func(State) string // the equivalent command line; nil or "" = none
}

// here reports whether the key works on the present screen.
func (b binding) here(s State) bool {
	if b.there != nil && !b.there(s) {
		return false
	}
	for _, on := range b.on {
		if on == s.nav.screen {
			return true
		}
	}
	return len(b.on) == 0
}

// refusal returns why the key is disabled, "" when it is enabled.
func (b binding) refusal(s State) string {
	if b.refusalOf == nil {
		return ""
	}
	return b.refusalOf(s)
}

// run executes the binding, or shows why it is disabled.
func (s State) run(b binding) (State, Outcome) {
	if why := b.refusal(s); why != "" {
		return s.showToast(why, true), Outcome{}
	}
	return b.do(s)
}

// bound returns the binding of a key on the present screen.
func (s State) bound(key string) (binding, bool) {
	for _, b := range bindings {
		if b.here(s) && slices.Contains(b.keys, key) {
			return b, true
		}
	}
	return binding{}, false
}

var bindings []binding

// same adapts a function without an outcome to a binding.
func same(f func(State) State) func(State) (State, Outcome) {
	return func(s State) (State, Outcome) { return f(s), Outcome{} }
}

func moves(by int) func(State) (State, Outcome) {
	return same(func(s State) State { return s.move(by) })
}

// The refusals of the keys of the frame.
func moveRefusal(s State) string {
	if screens[s.nav.screen].move == nil {
		return "nothing moves on this screen"
	}
	return ""
}

func openRefusal(s State) string {
	if screens[s.nav.screen].open == nil {
		return "nothing opens from this screen"
	}
	return ""
}

func backRefusal(s State) string {
	if len(s.nav.back) == 0 {
		return "this is the first place"
	}
	return ""
}

func forwardRefusal(s State) string {
	if len(s.nav.forwards) == 0 {
		return "this is the last place"
	}
	return ""
}

// refresh redraws the screen, for a terminal that another program has written to. It also
// retries an unavailable source now.
func refresh(s State) (State, Outcome) {
	out := Outcome{Refresh: true}
	if s.Gone == "" && !s.Snap.At.IsZero() && !s.Snap.API.Up && s.readOnlyReason() == "" {
		out.Actions = []Action{{Verb: Hurry}}
	}
	return s.showToast("asked again", false), out
}

// doctor shows the command line of limpet doctor. The doctor examines this host from outside,
// which the agent cannot do for its own defects.
func doctor(s State) (State, Outcome) {
	s, out := s.copied("limpet doctor")
	return s.showToast("in another terminal: limpet doctor", false), out
}

// keyTable returns the bindings: the keys of the frame and one for each tab.
func keyTable() []binding {
	atSources := []screenID{screenSources, screenSource}
	var elsewhere []screenID // screens whose keys act on jobs and repositories
	var present []screenID   // the same without the history
	for of := range screenCount {
		if of != screenHistory {
			present = append(present, of)
		}
		if !slices.Contains(atSources, of) {
			elsewhere = append(elsewhere, of)
		}
	}
	table := []binding{
		{keys: []string{"up", "k"}, label: "up k", text: "row up", group: "MOVE", refusalOf: moveRefusal, do: moves(-1)},
		{keys: []string{"down", "j"}, label: "down j", text: "row down", group: "MOVE", refusalOf: moveRefusal, do: moves(1)},
		{keys: []string{"pgup", "ctrl+u"}, label: "pgup ^u", text: "page up", group: "MOVE", refusalOf: moveRefusal, do: moves(-10)},
		{keys: []string{"pgdown", "ctrl+d"}, label: "pgdn ^d", text: "page down", group: "MOVE", refusalOf: moveRefusal, do: moves(10)},
		{keys: []string{"home", "g"}, label: "home g", text: "first row", group: "MOVE", refusalOf: moveRefusal, do: moves(-1 << 30)},
		{keys: []string{"end", "G", "shift+g"}, label: "end G", text: "last row", group: "MOVE", refusalOf: moveRefusal, do: moves(1 << 30)},
		{keys: []string{"enter"}, label: "enter", text: "open", group: "VIEW", refusalOf: openRefusal, do: State.openOrSetUp},
		{keys: []string{"esc", "backspace"}, label: "esc", text: "back", group: "VIEW", do: same(State.goBack)},
		{keys: []string{"["}, label: "[", text: "place before", group: "VIEW", refusalOf: backRefusal, do: same(State.previous)},
		{keys: []string{"]"}, label: "]", text: "place after", group: "VIEW", refusalOf: forwardRefusal, do: same(State.next)},
	}
	for _, of := range tabsOf() {
		table = append(table, binding{keys: []string{screens[of].tab}, label: screens[of].tab, text: screens[of].name, group: "VIEW",
			there: screens[of].available,
			do:    same(func(s State) State { return s.goTo(of) })})
	}
	table = append(table, []binding{
		{keys: []string{"tab"}, label: "tab", text: "other pane", group: "VIEW", refusalOf: paneRefusal,
			do: same(func(s State) State { return s.switchPane(1) })},
		{keys: []string{"shift+tab"}, label: "backtab", text: "pane before", group: "VIEW", refusalOf: paneRefusal,
			do: same(func(s State) State { return s.switchPane(-1) })},
		{keys: []string{"z"}, label: "z", text: "zoom pane", group: "VIEW", refusalOf: paneRefusal,
			do: same(func(s State) State { s.lists.zoomed[s.nav.screen] = !s.lists.zoomed[s.nav.screen]; return s })},
		{keys: []string{"space", " "}, label: "space", text: "mark", group: "MOVE", refusalOf: rowRefusal, do: same(State.mark)},
		{keys: []string{"*"}, label: "*", text: "mark all", group: "MOVE", refusalOf: rowRefusal, do: same(State.markAll)},
		{keys: []string{"o"}, label: "o", text: "sort", group: "VIEW", refusalOf: listRefusal, do: same(State.openSort)},
		{keys: []string{"d"}, label: "d", text: "what it changed", group: "VIEW", on: []screenID{screenDetail}, refusalOf: changesRefusal,
			do: same(State.openChanges)},
		{keys: []string{"f"}, label: "f", text: "hold the log", group: "VIEW", on: []screenID{screenDetail}, do: same(State.pauseLog)},
		{keys: []string{"n"}, label: "n", text: "next change", group: "MOVE", on: []screenID{screenDiff},
			do: same(func(s State) State { return s.nextPiece(false) })},
		{keys: []string{"N", "shift+n"}, label: "N", text: "change before", group: "MOVE", on: []screenID{screenDiff},
			do: same(func(s State) State { return s.nextPiece(true) })},
		{keys: []string{"w"}, label: "w", text: "wide, wrapped", group: "VIEW", refusalOf: widthRefusal, do: same(State.widen)},
		{keys: []string{"/"}, label: "/", text: "filter", group: "VIEW", refusalOf: filterRefusal,
			do: same(func(s State) State { s.input.typing = true; return s })},
		{keys: []string{"h"}, label: "h", text: "its history", group: "VIEW", on: elsewhere, line: historyCommand, do: same(State.openHistoryOf)},
		{keys: []string{"+"}, label: "+", text: "unfold, fold", group: "VIEW", on: []screenID{screenHistory}, do: same(State.unfold)},
		{keys: []string{"p"}, label: "p", text: "pull changes", group: "ACT", on: elsewhere, verb: Pull},
		{keys: []string{"P", "shift+p"}, label: "P", text: "full pull", group: "ACT", on: elsewhere, asks: true, verb: PullFull},
		{keys: []string{"x"}, label: "x", text: "cancel", group: "ACT", on: elsewhere, asks: true, verb: Cancel},
		{keys: []string{"r"}, label: "r", text: "retry", group: "ACT", on: elsewhere, asks: true, verb: Retry},
		{keys: []string{"s"}, label: "s", text: "suspend", group: "ACT", on: elsewhere, asks: true, verb: Suspend},
		{keys: []string{"p"}, label: "p", text: "ask for a look", group: "ACT", on: atSources, verb: Reconcile},
		{keys: []string{"s"}, label: "s", text: "suspend", group: "ACT", on: atSources, asks: true, verb: SuspendSource},
		{keys: []string{"t"}, label: "t", text: "test", group: "ACT", refusalOf: notTestable, line: testLine, do: State.openTest},
		{keys: []string{"y"}, label: "y", text: "show as YAML", group: "ACT", refusalOf: notShowable, line: yamlLine, do: State.openYAML},
		{keys: []string{"E", "shift+e"}, label: "E", text: "edit", group: "ACT", on: present, refusalOf: editRefusal, line: editLine,
			do: State.editing},
		{keys: []string{"E", "shift+e"}, label: "E", text: "export", group: "ACT", on: []screenID{screenHistory},
			refusalOf: exportRefusal, line: exportLine, do: State.exporting},
		{keys: []string{"Y", "shift+y"}, label: "Y", text: "copy command", group: "ACT", refusalOf: commandRefusal,
			do: func(s State) (State, Outcome) { return s.copied(s.command()) }},
		{keys: []string{"u"}, label: "u", text: "copy address", group: "ACT", refusalOf: linkRefusal, do: State.copyLink},
		{keys: []string{"c"}, label: "c", text: "copy commit", group: "ACT", refusalOf: commitRefusal,
			do: func(s State) (State, Outcome) { return s.copied(s.commit()) }},
		{keys: []string{"e"}, label: "e", text: "errors", group: "VIEW", refusalOf: issuesRefusal, do: same(State.openErrors)},
		{keys: []string{"a"}, label: "a", text: "ASCII on/off", group: "APP", do: same(State.switchASCII)},
		{keys: []string{"T", "shift+t"}, label: "T", text: "next theme", group: "APP", refusalOf: colourRefusal, do: same(State.nextTheme)},
		{keys: []string{"R", "shift+r"}, label: "R", text: "refresh", group: "APP", do: refresh},
		{keys: []string{"D", "shift+d"}, label: "D", text: "doctor", group: "APP", line: plain("limpet doctor"), do: doctor},
		{keys: []string{":", "ctrl+p"}, label: ": ^p", text: "command", group: "APP", do: same(State.openPalette)},
		{keys: []string{"?"}, label: "?", text: "this help", group: "APP", do: same(func(s State) State { s.overlay = help{}; return s })},
		{keys: []string{"q", "ctrl+c"}, label: "q", text: "quit", group: "APP", do: State.quit},
	}...)
	for i := range table {
		if v := table[i].verb; v != "" {
			table[i].refusalOf, table[i].do = disabledReason(v), func(s State) (State, Outcome) { return s.request(s.targets(v)) }
		}
	}
	return table
}

// Key returns the state after a key press. It is pure. The name of a key is that of Bubble Tea:
// "enter", "ctrl+d", "G"; text is the text that it types, if any.
func (s State) Key(name, text string) (State, Outcome) {
	s, out := s.press(name, text)
	return s.cacheRows(), out
}

func (s State) press(name, text string) (State, Outcome) {
	s.toast = ""
	if name == "ctrl+c" {
		if q, ok := s.confirmOpen(); ok && q.quit {
			return s, Outcome{Quit: true} // pressed twice: quit without a confirmation
		}
		s.overlay, s.input.typing = nil, false
		return s.quit()
	}
	switch {
	case s.overlay != nil:
		return s.overlay.key(s, name, text)
	case s.input.typing:
		return s.typeFilter(name, text), Outcome{}
	}
	if b, ok := s.bound(name); ok {
		return s.run(b)
	}
	return s, Outcome{}
}

func (s State) move(by int) State {
	if f := screens[s.nav.screen].move; f != nil {
		return f(s, by)
	}
	return s
}

// moveJobs and moveRepos move the cursor of a list.
func (s State) moveJobs(by int) State {
	s.lists.job = widget.Step(s.lists.job, widget.KeysOf(s.jobs(), jobKey), by)
	return s
}

func (s State) moveRepos(by int) State {
	s.lists.repo = widget.Step(s.lists.repo, widget.KeysOf(s.repos(), repoKey), by)
	return s
}

// listed returns the list that keys move in.
func (s State) listed() pane {
	if f := screens[s.nav.screen].list; f != nil {
		return f(s)
	}
	return paneNone
}

// paneOf returns the list of a screen with one list.
func paneOf(of pane) func(State) pane { return func(State) pane { return of } }

// paneRefusal returns why there is no other pane to focus or to zoom.
func paneRefusal(s State) string {
	if screens[s.nav.screen].panes < 2 {
		return "this screen has one pane"
	}
	return ""
}

// switchPane focuses the next pane, or with -1 the previous one.
func (s State) switchPane(by int) State {
	if s.nav.screen == screenDetail {
		return s.turnSection(by)
	}
	s.lists.focus = 1 - s.lists.focus
	return s
}

// open shows the object under the cursor.
func (s State) open() State {
	if f := screens[s.nav.screen].open; f != nil {
		return f(s)
	}
	return s
}

// openJob and openRepo show the object under the cursor of a list.
func (s State) openJob() State { return s.goJob(s.lists.job) }

func (s State) goJob(uid string) State {
	for _, j := range s.Snap.Jobs {
		if j.UID == uid {
			to := s.goTo(screenDetail)
			return to.setJob(j, false)
		}
	}
	return s
}

func (s State) openRepo() State { return s.goRepo(s.lists.repo) }

func (s State) goRepo(key string) State {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == key {
			to := s.goTo(screenRepo)
			to.repoView.seen, to.repoView.top = &r, 0
			return to
		}
	}
	return s
}

// help lists the keys of the present screen by group. Typed text filters it; Enter runs the key
// under the cursor. Disabled keys are marked with a dash; the reason is shown under the cursor
// and on Enter.
type help struct {
	text string
	at   int
}

// groups are the heads of the help, in their order.
var groups = []string{"MOVE", "VIEW", "ACT", "APP"}

// found returns the keys that match the text, group by group.
func (h help) found(s State) (out []binding) {
	for _, g := range groups {
		for _, b := range bindings {
			if b.group == g && b.here(s) && widget.ContainsWords(h.text, b.label, b.text, g) {
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
		h.text, h.at = widget.Edit(h.text, name, text), 0
	}
	s.overlay = h
	return s, Outcome{}
}

// helpLine is a line of the help: the head of a group, a key, or a blank line.
type helpLine struct {
	head string
	at   int // index of the key; -1 = none
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

// helpColumn is the width of a key in cells: mark, label, text and (y).
const helpColumn = 25

func (h help) hints(p *view) [][2]string {
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "do it"}, {"letters", "search"}, {"esc", "close"}}
}

func (h help) draw(p *view) {
	found := h.found(p.s)
	lines := h.lines(found)
	columns := min(max((p.W-4)/helpColumn, 1), 4)
	w := min(columns*helpColumn+3, p.W)
	rows := min(max((len(lines)+columns-1)/columns, 1), p.H-5)
	// When the help does not fit, the page with the cursor is shown.
	page, from := columns*rows, 0
	for i, l := range lines {
		if l.at == h.at {
			from = i / page * page
		}
	}
	x, y := p.Dialog(w, rows+4)
	p.Box(p.G, x, y, w, rows+4, p.helpTitle(), "esc closes", "type to search, enter runs", true)
	for i, l := range lines[from:min(from+page, len(lines))] {
		cx, cy := x+2+i/rows*helpColumn, y+1+i%rows
		if l.at < 0 {
			p.Put(cx+1, cy, helpColumn-2, widget.RoleTitle, l.head)
			continue
		}
		b := found[l.at]
		mark, key, plain := " ", widget.RoleKey, widget.RolePlain
		if b.refusal(p.s) != "" {
			mark, key, plain = "-", widget.RoleDim, widget.RoleDim
		}
		if l.at == h.at {
			mark = p.G.Cursor
		}
		text := b.text
		if b.asks {
			text += " (y)"
		}
		end := min(cx+helpColumn-1, x+w-1)
		p.Put(cx, cy, 1, widget.RoleKey, mark)
		p.Put(cx+1, cy, 8, key, b.label)
		p.Put(cx+9, cy, end-cx-9, plain, widget.Cut(text, end-cx-9, p.G.More))
		if l.at == h.at {
			p.PaintRow(cx+1, cy, end, widget.RoleCursor)
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
		at = p.Put(at, y+rows+2, w-6, widget.RoleKey, "/ "+h.text)
		at = p.Put(at, y+rows+2, 1, widget.RoleCursor, " ") + 1
	}
	p.Put(at, y+rows+2, x+w-1-at, widget.RoleDim, widget.Cut(note, x+w-1-at, p.G.More))
}

// helpTitle returns a title with the name of the screen, if it fits.
func (p *view) helpTitle() string {
	title := "Help"
	if name := screens[p.s.nav.screen].name; name != "" {
		title += ": " + strings.ToUpper(name[:1]) + name[1:]
	}
	return widget.Cut(title, max(p.W-30, 4), "")
}
