package screen

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"limpet/sync/snapshot"
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
	// Run are the words of a command line to start, which ends one that runs; Stop interrupts it, Type is for its stdin.
	Run  []string
	Stop bool
	Type string
	// Edit opens the editor on the text of an object, or on a text that was edited before; EditLine is the command that
	// does the same, for where there is no editor.
	Edit     *snapshot.Edit
	EditLine string
}

func (c command) here(s *State) bool {
	return (len(c.on) == 0 || slices.Contains(c.on, s.screen)) && !slices.Contains(c.not, s.screen)
}

func (s *State) bound(key string) (command, bool) {
	for _, b := range bindings {
		if b.here(s) && slices.Contains(strings.Fields(b.press), key) {
			return b, true
		}
	}
	return command{}, false
}

// bindings is the key table, from which help, hints and the palette are derived. It refers to functions that use it.
var bindings []command

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

// plain returns the command line of limpet with these words.
func plain(words string) func(*State) string { return func(s *State) string { return s.limpet(words) } }

func keyTable() []command {
	const (
		move = "MOVE"
		view = "VIEW"
		act  = "ACT"
		app  = "APP"
	)
	atSources, atJob, atDiff := []screenID{screenSources, screenSource}, []screenID{screenDetail}, []screenID{screenDiff}
	atFiles := []screenID{screenRepos, screenRepo, screenFiles}
	repoRefusal := func(s *State) string { return oneRefusal(s.onRepos(s.selected), "no repository is under the cursor") }
	withJob := []screenID{screenOverview, screenJobs, screenRepos, screenHistory, screenRepo, screenDetail}
	panes := unless(func(s *State) bool { return s.panes() != nil }, "this screen has one pane")
	rows := unless(func(s *State) bool { return s.hasLists() && len(s.list().keys) > 0 }, "there is nothing under the cursor")
	table := []command{
		{press: "up k", words: "row up", group: move},
		{press: "down j", words: "row down", group: move},
		{press: "pgup ctrl+u", words: "page up", group: move},
		{press: "pgdown ctrl+d", words: "page down", group: move},
		{press: "home g", words: "first row", group: move},
		{press: "end G", words: "last row", group: move},
		{press: "enter", words: "open", group: view, do: (*State).open, refuses: unless(func(s *State) bool {
			_, ok := s.at(s.screen).(opener)
			return ok
		}, "nothing opens from this screen")},
		{press: "esc backspace", words: "back", group: view, do: (*State).goBack},
		{press: "[", words: "previous place", group: view, do: func(s *State) { s.walk(&s.back, &s.forwards) },
			refuses: unless(func(s *State) bool { return len(s.back) > 0 }, "this is the first place")},
		{press: "]", words: "next place", group: view, do: func(s *State) { s.walk(&s.forwards, &s.back) },
			refuses: unless(func(s *State) bool { return len(s.forwards) > 0 }, "this is the last place")},
	}
	for i := range table[:6] {
		by := steps[strings.Fields(table[i].press)[0]]
		table[i].do = func(s *State) { s.move(by) }
	}
	for _, id := range tabs {
		table = append(table, command{press: screens[id].key, words: screens[id].name, group: view, do: func(s *State) { s.goTo(id) },
			refuses: unless(func(s *State) bool { return s.available(id) }, "no Flux sources here")})
	}
	table = append(table, []command{
		{press: "tab", words: "other pane", group: view, do: func(s *State) { s.panes().turn(1) }, refuses: panes},
		{press: "shift+tab", words: "previous pane", group: view, do: func(s *State) { s.panes().turn(-1) }, refuses: panes},
		{press: "z", words: "zoom pane", group: view, do: func(s *State) { s.panes().zoom() }, refuses: panes},
		{press: "space", words: "mark", group: move, do: func(s *State) { s.showToast(s.list().mark()) }, refuses: rows},
		{press: "*", words: "mark all", group: move, do: func(s *State) { s.showToast(s.list().markAll()) }, refuses: rows},
		{press: "o", words: "sort", group: view, do: openSort, refuses: listRefusal},
		{press: "d", words: "changes", group: view, on: withJob, do: openChanges, refuses: changesRefusal},
		{press: "l", words: "log", group: view, on: withJob, do: openLog, refuses: logRefusal},
		{press: "d", words: "changes", group: view, on: atSources, do: openSourceChanges, refuses: func(s *State) string {
			o, ok := s.one()
			if !ok {
				return "no source is under the cursor"
			}
			return s.sourceChangesRefusal(*o.source)
		}},
		{press: "l", words: "log", group: view, on: atSources, do: openSourceLog,
			refuses: unless(func(s *State) bool { _, ok := s.one(); return ok }, "no source is under the cursor")},
		{press: "f", words: "pause log", group: view, on: atJob, do: func(s *State) { s.detail.pauseLog(s) }},
		{press: "f", words: "files", group: view, on: atFiles, do: openFiles, refuses: repoRefusal},
		{press: "F", words: "drift", group: view, on: atFiles, do: openDrift, refuses: repoRefusal},
		{press: "n", words: "next change", group: move, on: atDiff, do: func(s *State) { s.diff.nextHunk(s, false) }},
		{press: "N", words: "previous change", group: move, on: atDiff, do: func(s *State) { s.diff.nextHunk(s, true) }},
		{press: "w", words: "wide, wrapped", group: view, do: widen, refuses: func(s *State) string {
			return widget.When(!s.widens() && s.screen != screenDetail && s.screen != screenDiff,
				"w widens the names of a list of jobs or repositories, or wraps a log or a diff: none is here")
		}},
		{press: "/", words: "filter", group: view, do: func(s *State) { s.filterLine.typing = true }, refuses: unless((*State).filterable,
			"there is nothing to filter on this screen")},
		{press: "h", words: "its history", group: view, not: atSources, do: openHistory, line: (*State).historyLine},
		{press: "p", words: "pull changes", group: act, not: atSources, verb: snapshot.Pull},
		{press: "P", words: "full pull", group: act, not: atSources, asks: true, verb: snapshot.PullFull},
		{press: "A", words: "new job", group: act, not: atSources, do: openJobs, refuses: func(s *State) string {
			return cmp.Or(s.notSentReason(), oneRefusal(s.onRepos(s.selected), "no repository is under the cursor"))
		}},
		{press: "x", words: "cancel", group: act, not: atSources, asks: true, verb: snapshot.Cancel},
		{press: "r", words: "retry", group: act, not: atSources, asks: true, verb: snapshot.Retry},
		{press: "s", words: "suspend", group: act, not: atSources, asks: true, verb: snapshot.Suspend},
		{press: "p", words: "reconcile", group: act, on: atSources, verb: snapshot.Reconcile},
		{press: "s", words: "suspend", group: act, on: atSources, asks: true, verb: snapshot.SuspendSource},
		{press: "t", words: "test", group: act, do: func(s *State) { openPopup(s, s.testable()[0], true) }, refuses: (*State).testRefusal,
			line: func(s *State) string { return s.popupLine(s.testable(), true) }},
		{press: "y", words: "show as YAML", group: act, do: func(s *State) { openPopup(s, s.showable()[0], false) },
			refuses: (*State).showRefusal, line: func(s *State) string { return s.popupLine(s.showable(), false) }},
		{press: "E", words: "edit", group: act, line: (*State).editLine, refuses: (*State).editRefusal,
			do: func(s *State) { s.edit(snapshot.Edit{Subject: s.testable()[0].Subject}) }},
		{press: "Y", words: "copy command", group: act, do: func(s *State) { s.copied(s.shownBy()) },
			refuses: unless(func(s *State) bool { return s.shownBy() != "" }, "there is nothing under the cursor")},
		{press: "u", words: "copy address", group: act, do: copyLink,
			refuses: unless(func(s *State) bool { return len(s.links()) > 0 }, "no web address is known here")},
		{press: "c", words: "copy commit", group: act, do: func(s *State) { s.copied(s.commit()) },
			refuses: unless(func(s *State) bool { return s.commit() != "" }, "no commit is known here")},
		{press: "e", words: "errors", group: view, do: openIssues,
			refuses: unless(func(s *State) bool { return len(s.issues.list) > 0 }, "no errors so far")},
		{press: "a", words: "ASCII on/off", group: app, do: func(s *State) {
			s.Caps.ASCII = !s.Caps.ASCII
			s.showToast(map[bool]string{true: "ASCII alone", false: "glyphs"}[s.Caps.ASCII], false)
		}},
		{press: "T", words: "next theme", group: app, refuses: colourRefusal,
			do: func(s *State) { setTheme(s, (s.Caps.Theme+1)%len(widget.Coloured)) }},
		{press: "R", words: "refresh", group: app, do: refresh},
		{press: "D", words: "doctor", group: app, line: plain("doctor"), do: func(s *State) { s.run("doctor") }},
		{press: ": ctrl+p", words: "command", group: app, do: openPalette},
		{press: "?", words: "this help", group: app, do: openHelp},
		{press: "q ctrl+c", words: "quit", group: app, do: quit},
	}...)
	short := strings.NewReplacer(" backspace", "", " ctrl+c", "", "ctrl+", "^", "pgdown", "pgdn", "shift+tab", "backtab")
	for i := range table {
		b := &table[i]
		b.label = short.Replace(b.press)
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
	s.toastEnd = s.Now.Add(toastAge)
	s.press(name, text)
	s.update()
	return s, s.out
}

func (s *State) press(name, typed string) {
	switch b, ok := s.bound(name); {
	case s.tooSmall(): // nothing is seen, so nothing acts
		s.out.Quit = name == "q" || name == "ctrl+c"
	case name == "ctrl+c" && s.console.stops(s):
	case name == "ctrl+c":
		if q, ok := s.overlay.(confirm); ok && q.quit {
			s.out.Quit = true // pressed twice: quit without a confirmation
			return
		}
		s.overlay, s.filterLine.typing, s.out.Stop = nil, false, true
		quit(s)
	case s.overlay != nil:
		s.overlay.key(s, name, typed)
	case s.filterLine.typing:
		s.filterLine.key(&s.filters[s.screen], s.fieldValues(s.filterFields()), name, typed)
	case ok:
		s.overview.touched = true
		s.perform(b)
	default:
		s.showToast(keyName(name)+" does nothing on this screen; ? lists the keys", true)
	}
}

// Paste returns the state after text was pasted. It goes to the focused input line. Without one
// it is ignored; it never answers a confirmation.
func (s State) Paste(text string) State {
	if s.tooSmall() {
		return s
	}
	_, types := s.overlay.(chooser)
	_, fills := s.overlay.(form)
	q, asks := s.overlay.(confirm)
	if types || fills || asks && q.name != "" || s.overlay == nil && s.filterLine.typing {
		s, _ = s.Key("paste", text)
	}
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

// open shows the object under the cursor. On the first screen of a fresh limpet it starts the setup.
func (s *State) open() {
	if s.screen == screenOverview && s.firstRun() && s.SetUp {
		s.out.SetUp = true
	} else if o, ok := s.at(s.screen).(opener); ok {
		o.open(s)
	}
}

// widen gives names in lists their full width, or wraps long lines of text.
func widen(s *State) {
	if s.widens() {
		s.wide = !s.wide
	} else {
		s.wraps = !s.wraps
	}
}

// widens reports whether w acts on the names of a list.
func (s *navigation) widens() bool { return s.hasLists() || s.screen == screenRepo }

func (s *navigation) hasLists() bool {
	return slices.Contains([]screenID{screenOverview, screenJobs, screenRepos, screenSources}, s.screen)
}

var (
	listRefusal   = unless(func(s *State) bool { return s.hasLists() }, "this screen has no list that is sorted")
	colourRefusal = unless(func(s *State) bool { return !s.Caps.Mono }, "no colours here: NO_COLOR, --color never or a terminal without")
)

func setTheme(s *State, i int) {
	s.Caps.Theme = i
	s.showToast("theme "+widget.Themes[i], false)
}

// refresh redraws the screen, which another program may have written to, and retries an unavailable source now.
func refresh(s *State) {
	s.out.Refresh = true
	if s.Gone == "" && !s.Snap.At.IsZero() && !s.Snap.API.Up && s.readOnlyReason() == "" {
		s.out.Actions = []Action{{Verb: snapshot.Hurry}}
	}
	s.showToast("asked again", false)
}

func openHistory(s *State) {
	of := s.onRepos(s.selected)
	s.goTo(screenHistory)
	if len(of) == 1 {
		s.setFilter("repo:" + of[0].Name + " ")
	}
}

// keyName returns the name of a key for a message. A terminal may have no glyph for what its keyboard sends.
func keyName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "this key"
	}
	return text.Clean(name)
}
