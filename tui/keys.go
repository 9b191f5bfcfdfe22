package tui

import (
	"fmt"
	"time"

	"limpet/sync/view"
)

// Verb names what a person asks the agent for.
type Verb string

// Verbs of the dashboard.
const (
	Pull     Verb = "pull"      // incremental; cheap and harmless when repeated
	PullFull Verb = "pull-full" // looks at everything
	Cancel   Verb = "cancel"    // stops a job, or deletes one that waits
	Retry    Verb = "retry"     // ends the rest of a job, or runs a finished one again
	Suspend  Verb = "suspend"   // has this agent leave a repository alone for SuspendFor
	Resume   Verb = "resume"    // ends that
)

// SuspendFor is how long a repository is left alone: a day, so that one that was
// forgotten comes back by itself.
const SuspendFor = 24 * time.Hour

// Action is one request to the agent, sent once.
type Action struct {
	Verb      Verb
	Namespace string
	Name      string // of the repository or the job
	UID       string // of what Name means; that may be another's by now. "" for pulls
}

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

// target is the repository that p, P and s mean.
func (s State) target() (namespace, name string, ok bool) {
	if s.screen == screenRepo {
		r, ok := s.repo()
		return r.Namespace, r.Name, ok
	}
	if s.screen == screenDetail {
		j, _ := s.job()
		return j.Namespace, j.Repository, j.Repository != ""
	}
	if s.listed() == paneRepos {
		for _, r := range s.repos() {
			if repoKey(r) == s.repoKey {
				return r.Namespace, r.Name, true
			}
		}
		return "", "", false
	}
	j, ok := s.selected()
	return j.Namespace, j.Repository, ok
}

// selected is the job under the cursor.
func (s State) selected() (view.Job, bool) {
	if s.screen == screenDetail {
		return s.job()
	}
	if s.listed() == paneJobs {
		for _, j := range s.jobs() {
			if j.UID == s.jobUID {
				return j, true
			}
		}
	}
	return view.Job{}, false
}

func (s State) pull() (State, Outcome) {
	namespace, name, ok := s.target()
	if why := s.refuse(ok); why != "" {
		return s.say(why, true), Outcome{}
	}
	return s.say("pull of "+name+" asked for", false), Outcome{Action: &Action{Verb: Pull, Namespace: namespace, Name: name}}
}

func (s State) pullFull() (State, Outcome) {
	namespace, name, ok := s.target()
	if why := s.refuse(ok); why != "" {
		return s.say(why, true), Outcome{}
	}
	s.ask = &question{text: "Pull everything of " + name + "? Each object is compared, what differs is written.",
		action: Action{Verb: PullFull, Namespace: namespace, Name: name}, done: "full pull of " + name + " asked for"}
	return s, Outcome{}
}

// suspend has the agent leave a repository alone, or take it up again.
func (s State) suspend() (State, Outcome) {
	namespace, name, ok := s.target()
	var repo view.Repo
	for _, r := range s.Snap.Repos {
		if r.Namespace == namespace && r.Name == name {
			repo = r
		}
	}
	if why := s.refuse(ok && repo.UID != ""); why != "" {
		return s.say(why, true), Outcome{}
	}
	act := Action{Verb: Suspend, Namespace: namespace, Name: name, UID: repo.UID}
	if repo.Suspended {
		act.Verb = Resume
		return s.say("resume of "+name+" asked for", false), Outcome{Action: &act}
	}
	s.ask = &question{text: fmt.Sprintf("Suspend %s on this agent for %s? Until then, or until s is pressed again, it is not checked and not pulled, neither by its interval nor by a webhook. Jobs that somebody makes are run.", name, view.Age(SuspendFor)),
		action: act, done: "suspension of " + name + " asked for"}
	return s, Outcome{}
}

func (s State) cancel() (State, Outcome) {
	j, ok := s.selected()
	why := s.refuse(ok)
	switch {
	case why != "":
	case !j.Finished.IsZero() || !j.Unsent.IsZero():
		why = "this job has ended"
	}
	if why != "" {
		return s.say(why, true), Outcome{}
	}
	text := "Cancel " + j.Name + "? What it has written stays."
	if j.Owner == "other" {
		text = "Cancel " + j.Name + ", which another agent runs? It is asked to stop; what it has written stays."
	}
	s.ask = &question{text: text, action: Action{Verb: Cancel, Namespace: j.Namespace, Name: j.Name, UID: j.UID}, done: "cancel of " + j.Name + " asked for"}
	return s, Outcome{}
}

func (s State) retry() (State, Outcome) {
	j, ok := s.repeatable()
	why := s.refuse(ok)
	text := ""
	switch {
	case why != "":
	case !j.Finished.IsZero():
		text = fmt.Sprintf("Run %s again? It has ended (%s); a new job is made of it.", j.Name, j.State)
	case !j.Unsent.IsZero():
		why = "this job is done; its result is sent when the API takes it"
	case j.Owner != "":
		why = "this job runs now; it can be tried again when it has ended"
	case !s.rests(j):
		why = "this job is queued already"
	default:
		text = fmt.Sprintf("Try %s now? It would rest for another %s.", j.Name, view.Age(j.RestsUntil.Sub(s.Now)))
	}
	if why != "" {
		return s.say(why, true), Outcome{}
	}
	s.ask = &question{text: text, action: Action{Verb: Retry, Namespace: j.Namespace, Name: j.Name, UID: j.UID}, done: "retry of " + j.Name + " asked for"}
	return s, Outcome{}
}

// rests says that a job waits for its next attempt.
func (s State) rests(j view.Job) bool {
	return j.Owner == "" && j.Finished.IsZero() && j.Unsent.IsZero() && j.RestsUntil.After(s.Now)
}

// repeatable is the job that r means: the one under the cursor, and in the
// detail also one that has ended so long ago that it is on no list any more.
func (s State) repeatable() (view.Job, bool) {
	j, ok := s.selected()
	return j, ok || s.screen == screenDetail && !j.Finished.IsZero()
}

// retryable says that r has a use on that job.
func (s State) retryable() bool {
	j, ok := s.repeatable()
	return ok && !s.offline() && (!j.Finished.IsZero() || s.rests(j))
}

// quit leaves at once, unless jobs run in this process: they would be cut off.
func (s State) quit() (State, Outcome) {
	if s.Source != Standalone || s.Snap.Agent.Claims == 0 {
		return s, Outcome{Quit: true}
	}
	s.ask = &question{quit: true, text: view.Plural(s.Snap.Agent.Claims, "job") + " running in this process. Quit? What is running is given back and goes on at the next start, here or elsewhere."}
	return s, Outcome{}
}

// refuse says why nothing can be asked for now; "" means it can.
func (s State) refuse(selected bool) string {
	switch {
	case s.offline():
		return "the API is away: nothing is sent, and nothing is queued for later"
	case !selected:
		return "nothing is selected"
	}
	return ""
}

func (s State) say(text string, bad bool) State {
	s.toast, s.toastBad = text, bad
	return s
}
