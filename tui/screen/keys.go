package screen

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// Outcome is the effect of a key press besides the next state.
type Outcome struct {
	Quit    bool
	SetUp   bool     // leave, and start the setup
	Context string   // leave, and start with that context; "" = stay
	Actions []Action // sent one after the other
	Refresh bool     // redraw the screen, and request a snapshot now
	Copy    string   // for the clipboard of the terminal
	// Run are the words of a command line to start, which ends one that runs; Stop interrupts it, Type
	// is for its stdin.
	Run  []string
	Stop bool
	Type string
	// Edit opens the editor on the text of an object, or on a text that was edited before; EditLine is
	// the command that does the same, for where there is no editor.
	Edit     *snapshot.Edit
	EditLine string

	// Of a screen, for the dashboard: a notice, and what is shown next.
	toast   string
	object  object
	file    string // of the changes; "" = none
	changes bool
	popup   *popup
}

func (c command) here(at screenID) bool {
	return (len(c.at) == 0 || slices.Contains(c.at, at)) && !slices.Contains(c.not, at)
}

func boundKey(s *scene, key string) (command, bool) {
	for _, b := range bindings {
		if b.here(s.screen) && slices.Contains(strings.Fields(b.press), key) {
			return b, true
		}
	}
	return command{}, false
}

// bindings is the key table, from which help, hints and the palette are derived. What its commands
// do is in perform.go.
var bindings = keyTable()

// far is a step beyond all rows.
const far = 1 << 30

// steps are the keys that move by a number of rows.
var steps = map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "ctrl+u": -10, "pgdown": 10, "ctrl+d": 10, "home": -far,
	"g": -far, "end": far, "G": far}

func keyTable() []command {
	const (
		move = "MOVE"
		view = "VIEW"
		act  = "ACT"
		app  = "APP"
	)
	atSources, atDiff := []screenID{screenSources, screenSource}, []screenID{screenDiff}
	atFiles := []screenID{screenRepos, screenRepo, screenFiles}
	withJob := []screenID{screenOverview, screenJobs, screenRepos, screenHistory, screenRepo, screenDetail, screenSources, screenSource}
	table := []command{
		{press: "up k", words: "row up", group: move},
		{press: "down j", words: "row down", group: move},
		{press: "pgup ctrl+u", words: "page up", group: move},
		{press: "pgdown ctrl+d", words: "page down", group: move},
		{press: "home g", words: "first row", group: move},
		{press: "end G", words: "last row", group: move},
		{press: "enter", words: "open", group: view},
		{press: "esc backspace", words: "back", group: view},
		{press: "[", words: "previous place", group: view},
		{press: "]", words: "next place", group: view},
	}
	for i := range table[:6] {
		table[i].act, table[i].by = "move", steps[strings.Fields(table[i].press)[0]]
	}
	for _, id := range tabs {
		table = append(table, command{press: screens[id].key, words: screens[id].name, group: view, act: "screen", screen: id})
	}
	table = append(table, []command{
		{press: "tab", words: "other pane", group: view},
		{press: "shift+tab", words: "previous pane", group: view},
		{press: "z", words: "zoom pane", group: view},
		{press: "space", words: "mark", group: move},
		{press: "*", words: "mark all", group: move},
		{press: "o", words: "sort", group: view},
		{press: "d", words: "changes", group: view, at: withJob},
		{press: "l", words: "log", group: view, at: withJob},
		{press: "f", words: "pause log", group: view, at: []screenID{screenDetail}},
		{press: "f", words: "files", group: view, at: atFiles},
		{press: "F", words: "drift", group: view, at: atFiles},
		{press: "n", words: "next change", group: move, at: atDiff},
		{press: "N", words: "previous change", group: move, at: atDiff},
		{press: "w", words: "wide, wrapped", group: view},
		{press: "/", words: "filter", group: view},
		{press: "h", words: "its history", group: view, not: atSources},
		{press: "p", words: "pull changes", group: act, not: atSources, verb: snapshot.Pull},
		{press: "P", words: "full pull", group: act, not: atSources, asks: true, verb: snapshot.PullFull},
		{press: "A", words: "new job", group: act, not: atSources},
		{press: "x", words: "cancel", group: act, not: atSources, asks: true, verb: snapshot.Cancel},
		{press: "r", words: "retry", group: act, not: atSources, asks: true, verb: snapshot.Retry},
		{press: "s", words: "suspend", group: act, not: atSources, asks: true, verb: snapshot.Suspend},
		{press: "p", words: "reconcile", group: act, at: atSources, verb: snapshot.Reconcile},
		{press: "s", words: "suspend", group: act, at: atSources, asks: true, verb: snapshot.SuspendSource},
		{press: "t", words: "test", group: act},
		{press: "y", words: "show as YAML", group: act},
		{press: "E", words: "edit", group: act},
		{press: "Y", words: "copy command", group: act},
		{press: "u", words: "copy address", group: act},
		{press: "c", words: "copy commit", group: act},
		{press: "e", words: "errors", group: view},
		{press: "a", words: "ASCII on/off", group: app},
		{press: "T", words: "next theme", group: app},
		{press: "R", words: "refresh", group: app},
		{press: "D", words: "doctor", group: app},
		{press: ": ctrl+p", words: "command", group: app},
		{press: "?", words: "this help", group: app},
		{press: "q ctrl+c", words: "quit", group: app},
	}...)
	short := strings.NewReplacer(" backspace", "", " ctrl+c", "", "ctrl+", "^", "pgdown", "pgdn", "shift+tab", "backtab")
	for i := range table {
		b := &table[i]
		b.label = short.Replace(b.press)
		if b.verb != "" {
			b.act = "request"
		}
		b.act = cmp.Or(b.act, b.words)
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
	switch b, ok := boundKey(&s.scene, name); {
	case tooSmall(s.W, s.H): // nothing is seen, so nothing acts
		s.out.Quit = name == "q" || name == "ctrl+c"
	case name == "ctrl+c" && s.console.stops(s):
	case name == "ctrl+c":
		if q, ok := s.overlay.(confirm); ok && q.quit {
			s.out.Quit = true // pressed twice: quit without a confirmation
			return
		}
		s.overlay = nil
		s.filterLine.typing = false
		s.out.Stop = true
		quit(s)
	case s.overlay != nil:
		s.overlay.key(s, name, typed)
	case s.filterLine.typing:
		s.filterLine.key(&s.filters[s.screen], fieldValues(&s.facts, s.filterFields()), name, typed)
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
	if tooSmall(s.W, s.H) {
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

// keyName returns the name of a key for a message. A terminal may have no glyph for what its
// keyboard sends.
func keyName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "this key"
	}
	return text.Clean(name)
}
