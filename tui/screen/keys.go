package screen

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/text"
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

// binding is one row of the key table. Help, hints and the palette are derived from it, so they
// list only keys that work.
type binding struct {
	press   string // the keys, with blanks between them
	text    string
	group   string
	do      func(*State)
	refuses func(*State) string // why it is disabled; "" = enabled. nil = always enabled
	line    func(*State) string // the equivalent command line; nil or "" = none
	on      []screenID          // the screens where it works; empty = everywhere
	not     []screenID          // the screens where it does not
	verb    Verb                // the action that it sends; do and refuses are derived from it
	asks    bool                // a confirmation comes first

	keys  []string
	label string // shown in help
}

// here reports whether the key works on the present screen.
func (b binding) here(s *State) bool {
	return (len(b.on) == 0 || slices.Contains(b.on, s.screen)) && !slices.Contains(b.not, s.screen) &&
		(b.press != "6" || s.available(screenSources))
}

// refusal returns why the key is disabled, "" when it is enabled.
func (b binding) refusal(s *State) string {
	if b.refuses == nil {
		return ""
	}
	return b.refuses(s)
}

// bound returns the binding of a key on the present screen.
func (s *State) bound(key string) (binding, bool) {
	for _, b := range bindings {
		if b.here(s) && slices.Contains(b.keys, key) {
			return b, true
		}
	}
	return binding{}, false
}

// bindings is the key table. It refers to functions that use it.
var bindings []binding

func init() { bindings = keyTable() }

// far is a step beyond all rows.
const far = 1 << 30

// steps are the keys that move by a number of rows.
var steps = map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "ctrl+u": -10, "pgdown": 10, "ctrl+d": 10, "home": -far,
	"g": -far, "end": far, "G": far}

// unless returns a refusal while a condition does not hold.
func unless(holds func(*State) bool, why string) func(*State) string {
	return func(s *State) string {
		if holds(s) {
			return ""
		}
		return why
	}
}

// plain returns a constant command line.
func plain(line string) func(*State) string { return func(*State) string { return line } }

// keyTable returns the bindings.
func keyTable() []binding {
	const (
		move = "MOVE"
		view = "VIEW"
		act  = "ACT"
		app  = "APP"
	)
	atSources, atJob, atDiff, atHistory := []screenID{screenSources, screenSource}, []screenID{screenDetail}, []screenID{screenDiff},
		[]screenID{screenHistory}
	panes := unless(func(s *State) bool { return s.screen == screenOverview || s.screen == screenDetail }, "this screen has one pane")
	rows := unless(func(s *State) bool { return s.hasLists() && len(s.list().keys) > 0 }, "there is nothing under the cursor")
	table := []binding{
		{press: "up k", text: "row up", group: move},
		{press: "down j", text: "row down", group: move},
		{press: "pgup ctrl+u", text: "page up", group: move},
		{press: "pgdown ctrl+d", text: "page down", group: move},
		{press: "home g", text: "first row", group: move},
		{press: "end G", text: "last row", group: move},
		{press: "enter", text: "open", group: view, do: (*State).open, refuses: unless(func(s *State) bool {
			_, ok := s.at(s.screen).(opener)
			return ok
		}, "nothing opens from this screen")},
		{press: "esc backspace", text: "back", group: view, do: (*State).goBack},
		{press: "[", text: "place before", group: view, do: func(s *State) { s.walk(&s.back, &s.forwards) },
			refuses: unless(func(s *State) bool { return len(s.back) > 0 }, "this is the first place")},
		{press: "]", text: "place after", group: view, do: func(s *State) { s.walk(&s.forwards, &s.back) },
			refuses: unless(func(s *State) bool { return len(s.forwards) > 0 }, "this is the last place")},
	}
	for i := range table[:6] {
		by := steps[strings.Fields(table[i].press)[0]]
		table[i].do = func(s *State) { s.move(by) }
	}
	for _, id := range tabs {
		table = append(table, binding{press: screens[id].key, text: screens[id].name, group: view, do: func(s *State) { s.goTo(id) }})
	}
	table = append(table, []binding{
		{press: "tab", text: "other pane", group: view, do: func(s *State) { s.switchPane(1) }, refuses: panes},
		{press: "shift+tab", text: "pane before", group: view, do: func(s *State) { s.switchPane(-1) }, refuses: panes},
		{press: "z", text: "zoom pane", group: view, do: (*State).zoom, refuses: panes},
		{press: "space", text: "mark", group: move, do: (*State).mark, refuses: rows},
		{press: "*", text: "mark all", group: move, do: (*State).markAll, refuses: rows},
		{press: "o", text: "sort", group: view, do: (*State).openSort, refuses: listRefusal},
		{press: "d", text: "what it changed", group: view, on: atJob, do: (*State).openChanges, refuses: (*State).changesRefusal},
		{press: "f", text: "hold the log", group: view, on: atJob, do: (*State).pauseLog},
		{press: "n", text: "next change", group: move, on: atDiff, do: func(s *State) { s.nextHunk(false) }},
		{press: "N", text: "change before", group: move, on: atDiff, do: func(s *State) { s.nextHunk(true) }},
		{press: "w", text: "wide, wrapped", group: view, do: (*State).widen, refuses: func(s *State) string {
			if s.screen == screenDetail || s.screen == screenDiff {
				return ""
			}
			return listRefusal(s)
		}},
		{press: "/", text: "filter", group: view, do: func(s *State) { s.filterLine.typing = true }, refuses: unless((*State).filters,
			"there is nothing to filter on this screen")},
		{press: "h", text: "its history", group: view, not: atSources, do: (*State).openHistory, line: (*State).historyLine},
		{press: "+", text: "unfold, fold", group: view, on: atHistory, do: (*State).unfold},
		{press: "p", text: "pull changes", group: act, not: atSources, verb: Pull},
		{press: "P", text: "full pull", group: act, not: atSources, asks: true, verb: PullFull},
		{press: "x", text: "cancel", group: act, not: atSources, asks: true, verb: Cancel},
		{press: "r", text: "retry", group: act, not: atSources, asks: true, verb: Retry},
		{press: "s", text: "suspend", group: act, not: atSources, asks: true, verb: Suspend},
		{press: "p", text: "ask for a look", group: act, on: atSources, verb: Reconcile},
		{press: "s", text: "suspend", group: act, on: atSources, asks: true, verb: SuspendSource},
		{press: "t", text: "test", group: act, do: func(s *State) { s.openPopup(s.testable()[0], true) }, refuses: (*State).testRefusal,
			line: func(s *State) string { return s.popupLine(s.testable(), true) }},
		{press: "y", text: "show as YAML", group: act, do: func(s *State) { s.openPopup(s.showable()[0], false) },
			refuses: (*State).showRefusal, line: func(s *State) string { return s.popupLine(s.showable(), false) }},
		{press: "E", text: "edit", group: act, not: atHistory, do: func(s *State) { s.copied(s.editLine()) }, line: (*State).editLine,
			refuses: unless(func(s *State) bool { return s.editLine() != "" }, "one repository or source has to be under the cursor")},
		{press: "E", text: "export", group: act, on: atHistory, do: func(s *State) { s.copied(s.exportLine()) },
			line: (*State).exportLine, refuses: (*State).exportRefusal},
		{press: "Y", text: "copy command", group: act, do: func(s *State) { s.copied(s.shownBy()) },
			refuses: unless(func(s *State) bool { return s.shownBy() != "" }, "there is nothing under the cursor")},
		{press: "u", text: "copy address", group: act, do: (*State).copyLink,
			refuses: unless(func(s *State) bool { return len(s.links()) > 0 }, "no web address is known here")},
		{press: "c", text: "copy commit", group: act, do: func(s *State) { s.copied(s.commit()) },
			refuses: unless(func(s *State) bool { return s.commit() != "" }, "no commit is known here")},
		{press: "e", text: "errors", group: view, do: (*State).openIssues,
			refuses: unless(func(s *State) bool { return len(s.issues.list) > 0 }, "no errors so far")},
		{press: "a", text: "ASCII on/off", group: app, do: (*State).switchASCII},
		{press: "T", text: "next theme", group: app, refuses: colourRefusal,
			do: func(s *State) { s.setTheme((s.Caps.Theme + 1) % len(widget.Coloured)) }},
		{press: "R", text: "refresh", group: app, do: (*State).refresh},
		{press: "D", text: "doctor", group: app, line: plain("limpet doctor"), do: func(s *State) {
			s.copied("limpet doctor") // it examines this host from outside, which the agent cannot do for its own defects
			s.showToast("in another terminal: limpet doctor", false)
		}},
		{press: ": ctrl+p", text: "command", group: app, do: (*State).openPalette},
		{press: "?", text: "this help", group: app, do: func(s *State) { s.overlay = help{} }},
		{press: "q ctrl+c", text: "quit", group: app, do: (*State).quit},
	}...)
	short := strings.NewReplacer(" backspace", "", " ctrl+c", "", "ctrl+", "^", "pgdown", "pgdn", "shift+tab", "backtab")
	for i := range table {
		b := &table[i]
		b.keys, b.label = strings.Fields(b.press), short.Replace(b.press)
		if v := b.verb; v != "" {
			b.refuses = func(s *State) string { _, why := s.requestFor(v, s.selected); return why }
			b.do = func(s *State) { s.request(s.requestFor(v, s.selected)) }
		}
	}
	return table
}

// Key returns the state after a key press. It is pure. The name of a key is that of Bubble Tea:
// "enter", "ctrl+d", "G"; text is the text that it types, if any.
func (s State) Key(name, text string) (State, Outcome) {
	if letter, ok := strings.CutPrefix(name, "shift+"); ok && len(letter) == 1 {
		name = strings.ToUpper(letter)
	} else if name == " " {
		name = "space"
	}
	s.out, s.toast = Outcome{}, ""
	s.press(name, text)
	s.update()
	return s, s.out
}

func (s *State) press(name, text string) {
	switch b, ok := s.bound(name); {
	case name == "ctrl+c":
		if q, ok := s.overlay.(confirm); ok && q.quit {
			s.out.Quit = true // pressed twice: quit without a confirmation
			return
		}
		s.overlay, s.filterLine.typing = nil, false
		s.quit()
	case s.overlay != nil:
		s.overlay.key(s, name, text)
	case s.filterLine.typing:
		s.typeFilter(name, text)
	case ok:
		s.run(b.refusal(s), b.do)
	}
}

// run executes a function, or shows why it is disabled.
func (s *State) run(why string, do func(*State)) {
	if why != "" {
		s.showToast(why, true)
		return
	}
	do(s)
}

// Paste returns the state after text was pasted. It goes to the focused input line. Without one
// it is ignored; it never answers a confirmation.
func (s State) Paste(text string) State {
	switch over := s.overlay.(type) {
	case confirm:
		if over.name == "" {
			return s
		}
	case palette, help:
	default:
		if over != nil || !s.filterLine.typing {
			return s
		}
	}
	s, _ = s.Key("paste", text)
	return s
}

// move moves the cursor, or scrolls.
func (s *State) move(by int) {
	if sc, ok := s.at(s.screen).(scroller); ok {
		sc.scroll(s, by)
	} else if l := s.list(); l != nil {
		l.move(by)
	}
}

// open shows the object under the cursor. On the first screen of a fresh limpet it starts the
// setup.
func (s *State) open() {
	if s.screen == screenOverview && s.firstRun() && s.SetUp {
		s.out.SetUp = true
	} else if o, ok := s.at(s.screen).(opener); ok {
		o.open(s)
	}
}

// switchPane focuses the next pane, or with -1 the previous one.
func (s *State) switchPane(by int) {
	if s.screen == screenDetail {
		s.detail.turn(s, by)
		return
	}
	s.overview.onRepos = !s.overview.onRepos
}

func (s *State) zoom() {
	zoomed := &s.overview.zoomed
	if s.screen == screenDetail {
		zoomed = &s.detail.zoomed
	}
	*zoomed = !*zoomed
}

// widen gives names in lists their full width, or wraps long lines of text.
func (s *State) widen() {
	if s.hasLists() {
		s.wide = !s.wide
	} else {
		s.wraps = !s.wraps
	}
}

// hasLists reports whether the screen shows lists of the snapshot.
func (s *State) hasLists() bool {
	return slices.Contains([]screenID{screenOverview, screenJobs, screenRepos, screenSources}, s.screen)
}

func listRefusal(s *State) string {
	if !s.hasLists() {
		return "there is no list of jobs or repositories on this screen"
	}
	return ""
}

// maxMarks bounds the marked rows of a list: each one is a separate request to the agent.
const maxMarks = 100

// mark toggles the mark of the row under the cursor and moves to the next row.
func (s *State) mark() {
	l := s.list()
	marks := slices.Clone(l.marks)
	switch i := slices.Index(marks, l.cursor); {
	case i >= 0:
		l.marks = slices.Delete(marks, i, i+1)
	case len(marks) == maxMarks:
		s.showToast(fmt.Sprintf("%d are marked; that is all that can be", maxMarks), true)
		return
	default:
		l.marks = append(marks, l.cursor)
	}
	l.move(1)
}

// markAll marks all displayed rows; when all are marked it removes the marks.
func (s *State) markAll() {
	l := s.list()
	all := l.keys[:min(len(l.keys), maxMarks)]
	switch {
	case slices.Equal(l.marks, all):
		l.marks = nil
		return
	case len(l.keys) > len(all):
		s.showToast(fmt.Sprintf("the first %d of %s are marked; that is all that can be", maxMarks, text.Thousands(len(l.keys))), false)
	}
	l.marks = slices.Clone(all)
}

func colourRefusal(s *State) string {
	if s.Caps.Mono {
		return "no colours here: NO_COLOR, --color never or a terminal without"
	}
	return ""
}

func (s *State) setTheme(i int) {
	s.Caps.Theme = i
	s.showToast("theme "+widget.Themes[i], false)
}

func (s *State) switchASCII() {
	s.Caps.ASCII = !s.Caps.ASCII
	s.showToast(map[bool]string{true: "ASCII alone", false: "glyphs"}[s.Caps.ASCII], false)
}

// refresh redraws the screen, for a terminal that another program has written to. It also
// retries an unavailable source now.
func (s *State) refresh() {
	s.out.Refresh = true
	if s.Gone == "" && !s.Snap.At.IsZero() && !s.Snap.API.Up && s.readOnlyReason() == "" {
		s.out.Actions = []Action{{Verb: Hurry}}
	}
	s.showToast("asked again", false)
}

// openHistory shows the history of the selected repository.
func (s *State) openHistory() {
	of := s.onRepos(s.selected)
	s.goTo(screenHistory)
	if len(of) == 1 {
		s.setFilter("repo:" + of[0].Name + " ")
	}
}

// exportRefusal returns why there is no command line for an export; "" = there is one.
func (s *State) exportRefusal() string {
	switch q, problem := s.historyQuery(); {
	case problem != "":
		return problem
	case q.Ref != "" || len(q.Words) > 0:
		return "an export is narrowed by repo, state, action, since and until alone"
	}
	return ""
}

// quit leaves at once. While jobs run in this process, it asks first what to do with them.
func (s *State) quit() {
	a := s.Snap.Agent
	if s.Source != Standalone || a.Claims == 0 {
		s.out.Quit = true
		return
	}
	q := confirm{quit: true, title: "Quit?", choices: []choice{{"y", "Yes, give them back", func(s *State) { s.out.Quit = true }}}}
	running := "1 job runs"
	if a.Claims > 1 {
		running = fmt.Sprintf("%d jobs run", a.Claims)
	}
	const back = "What is given back goes on at the next start, here or elsewhere."
	switch {
	case s.leaving.whenIdle:
		q.title = "Quit now?"
		q.lines = []string{fmt.Sprintf("%s to go; this ends by itself when nothing runs any more.", text.Plural(a.Busy, "job")),
			back + " Who stays has jobs claimed again."}
		q.choices = append(q.choices, choice{"s", "Stay", (*State).stay})
	case s.readOnlyReason() == "":
		q.lines = []string{running + " in this process. " + back + " Who finishes first claims nothing new and ends when nothing runs any " +
			"more."}
		q.choices = append(q.choices, choice{"f", "Finish first", (*State).finish})
	default:
		q.lines = []string{running + " in this process. " + back}
	}
	s.overlay = q
}

// finish claims no new jobs and quits when the running ones have finished.
func (s *State) finish() {
	s.leaving.whenIdle = true
	s.showToast("claims nothing new; this ends when nothing runs any more. q asks again", false)
	if s.Snap.Agent.Draining.IsZero() {
		s.leaving.drained = true
		s.out.Actions = []Action{{Verb: Drain}}
	}
}

// stay cancels finish.
func (s *State) stay() {
	if s.leaving.drained {
		s.out.Actions = []Action{{Verb: Undrain}}
		s.showToast("claims jobs again", false)
	}
	s.leaving = leaving{}
}

// Ended reports whether a quit was requested for the end of all jobs, and no job runs any more.
func (s State) Ended() bool {
	return s.leaving.whenIdle && !s.Snap.Agent.Draining.IsZero() && s.Snap.Agent.Busy == 0
}
