package tui

import "limpet/sync/view"

// Outcome is what a key leads to besides the next state.
type Outcome struct {
	Quit   bool
	Action *Action
}

// binding is one line of the key table. The help screen and the hint line are
// made from it, so they cannot promise what no key does.
type binding struct {
	keys  []string
	label string // shown in help
	text  string
	group string // MOVE, VIEW, ACT, APP
	do    func(State) (State, Outcome)
}

var bindings []binding

func init() {
	same := func(f func(State) State) func(State) (State, Outcome) {
		return func(s State) (State, Outcome) { return f(s), Outcome{} }
	}
	bindings = []binding{
		{[]string{"up", "k"}, "up k", "row up", "MOVE", same(func(s State) State { return s.move(-1) })},
		{[]string{"down", "j"}, "down j", "row down", "MOVE", same(func(s State) State { return s.move(1) })},
		{[]string{"pgup", "ctrl+u"}, "pgup ^u", "page up", "MOVE", same(func(s State) State { return s.move(-10) })},
		{[]string{"pgdown", "ctrl+d"}, "pgdn ^d", "page down", "MOVE", same(func(s State) State { return s.move(10) })},
		{[]string{"home", "g"}, "home g", "first row", "MOVE", same(func(s State) State { return s.move(-1 << 30) })},
		{[]string{"end", "G", "shift+g"}, "end G", "last row", "MOVE", same(func(s State) State { return s.move(1 << 30) })},
		{[]string{"enter"}, "enter", "open", "VIEW", same(State.open)},
		{[]string{"esc", "backspace"}, "esc", "back", "VIEW", same(State.leave)},
		{[]string{"1"}, "1", "overview", "VIEW", same(func(s State) State { s.screen = screenOverview; return s })},
		{[]string{"2"}, "2", "jobs", "VIEW", same(func(s State) State { s.screen, s.focus = screenJobs, paneJobs; return s })},
		{[]string{"3"}, "3", "repositories", "VIEW", same(func(s State) State { s.screen, s.focus = screenRepos, paneRepos; return s })},
		{[]string{"tab", "shift+tab"}, "tab", "other pane", "VIEW", same(State.switchPane)},
		{[]string{"/"}, "/", "filter", "VIEW", same(func(s State) State { s.typing = true; return s })},
		{[]string{"p"}, "p", "pull what changed", "ACT", State.pull},
		{[]string{"P", "shift+p"}, "P", "pull everything (asks)", "ACT", State.pullFull},
		{[]string{"x"}, "x", "cancel the job (asks)", "ACT", State.cancel},
		{[]string{"r"}, "r", "retry the job (asks)", "ACT", State.retry},
		{[]string{"s"}, "s", "suspend (asks), resume", "ACT", State.suspend},
		{[]string{"a"}, "a", "ASCII or glyphs", "APP", same(func(s State) State { s.Caps.ASCII = !s.Caps.ASCII; return s })},
		{[]string{"T", "shift+t"}, "T", "next theme", "APP", same(func(s State) State { s.Caps.Theme++; return s })},
		{[]string{"?"}, "?", "this help", "APP", same(func(s State) State { s.help = true; return s })},
		{[]string{"q", "ctrl+c"}, "q", "quit", "APP", State.quit},
	}
}

// Key returns the state after a key press. It is pure. The name of a key is
// that of Bubble Tea: "enter", "ctrl+d", "G"; text is what it types, if it does.
func (s State) Key(name, text string) (State, Outcome) {
	s.toast = ""
	switch {
	case name == "ctrl+c" && s.ask != nil && s.ask.quit:
		return s, Outcome{Quit: true} // twice: no more questions
	case name == "ctrl+c":
		s.ask, s.help, s.typing = nil, false, false
		return s.quit()
	case s.ask != nil:
		return s.answer(name)
	case s.help:
		s.help = false
		return s, Outcome{}
	case s.typing:
		return s.typeFilter(name, text), Outcome{}
	}
	for _, b := range bindings {
		for _, k := range b.keys {
			if k == name {
				return b.do(s)
			}
		}
	}
	return s, Outcome{}
}

// answer takes y for yes and everything but Enter for no.
func (s State) answer(name string) (State, Outcome) {
	switch name {
	case "enter":
		return s, Outcome{}
	case "y", "Y", "shift+y":
		asked := *s.ask
		s.ask = nil
		if asked.quit {
			return s, Outcome{Quit: true}
		}
		return s.say(asked.done, false), Outcome{Action: &asked.action}
	}
	s.ask = nil
	return s, Outcome{}
}

func (s State) typeFilter(name, text string) State {
	before := s
	switch name {
	case "enter":
		s.typing = false
	case "esc":
		s.typing, s.filter = false, ""
	case "backspace":
		if r := []rune(s.filter); len(r) > 0 {
			s.filter = string(r[:len(r)-1])
		}
	default:
		s.filter += view.Clean(text)
	}
	s.jobUID = follow(s.jobUID, keysOf(before.jobs(), jobKey), keysOf(s.jobs(), jobKey))
	s.repoKey = follow(s.repoKey, keysOf(before.repos(), repoKey), keysOf(s.repos(), repoKey))
	return s
}

func (s State) move(by int) State {
	switch {
	case s.screen == screenRepo: // there is one
	case s.screen == screenDetail:
		j, _ := s.job()
		s.scroll = min(max(s.scroll-by, 0), max(len(j.Log)-1, 0))
	case s.listed() == paneRepos:
		s.repoKey = step(s.repoKey, keysOf(s.repos(), repoKey), by)
	default:
		s.jobUID = step(s.jobUID, keysOf(s.jobs(), jobKey), by)
	}
	return s
}

func step(cursor string, keys []string, by int) string {
	if len(keys) == 0 {
		return ""
	}
	at := 0
	for i, k := range keys {
		if k == cursor {
			at = i
		}
	}
	return keys[min(max(at+by, 0), len(keys)-1)]
}

// listed is the list that keys move in.
func (s State) listed() pane {
	switch s.screen {
	case screenJobs:
		return paneJobs
	case screenRepos, screenRepo:
		return paneRepos
	}
	return s.focus
}

func (s State) switchPane() State {
	switch s.screen {
	case screenOverview:
		s.focus = 1 - s.focus
	case screenJobs:
		s.screen, s.focus = screenRepos, paneRepos
	case screenRepos:
		s.screen, s.focus = screenJobs, paneJobs
	}
	return s
}

// open shows what is under the cursor; in the detail of a repository, its present
// job.
func (s State) open() State {
	uid := s.jobUID
	switch {
	case s.screen == screenRepo:
		if uid = s.jobOf(s.repoSeen); uid == "" {
			return s.say("this repository has no job now; p starts a pull", false)
		}
	case s.screen != screenDetail && s.listed() == paneRepos:
		for _, r := range s.repos() {
			if repoKey(r) == s.repoKey {
				s.repoBack, s.screen, s.repoSeen = s.screen, screenRepo, r
			}
		}
		return s
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == uid && s.screen != screenDetail {
			s.back, s.screen, s.detail, s.last, s.scroll = s.screen, screenDetail, uid, j, 0
		}
	}
	return s
}

// jobOf is the UID of the present job of a repository, "" when there is none.
func (s State) jobOf(r view.Repo) string {
	for _, j := range s.Snap.Jobs {
		if j.Namespace == r.Namespace && j.Repository == r.Name {
			return j.UID
		}
	}
	return ""
}

// leave undoes one thing: the filter first, then the screen.
func (s State) leave() State {
	switch {
	case s.screen == screenDetail:
		s.screen = s.back
	case s.screen == screenRepo:
		s.screen = s.repoBack
	case s.filter != "":
		s.filter = ""
		s = s.Show(s.Snap)
	default:
		s.screen = screenOverview
	}
	return s
}
