package screen

import (
	"cmp"
	"fmt"
	"slices"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// perform carries out a command, or says why it is disabled.
func (s *State) perform(c command) {
	if why := s.refusal(c); why != "" {
		s.showToast(why, true)
		return
	}
	s.act(c)
}

// act carries out a command that is enabled.
func (s *State) act(c command) {
	switch c.act {
	case "request":
		s.request(requested(&s.scene, c))
	case "send":
		s.send(*c.request)
	case "create":
		openForm(s, c.action, c.object)
	case "submit":
		s.out.Actions = []Action{{Verb: snapshot.CreateJob, Namespace: c.object.Namespace, Name: c.object.Name, Spec: c.spec}}
		s.showToast(c.action+" requested: "+c.object.Name, false)
	case "move":
		if sc, ok := s.at(s.screen).(scroller); ok {
			sc.scroll(c.by)
		} else if l := s.list(); l != nil {
			l.move(c.by)
		}
	case "open":
		s.open()
	case "back":
		s.goBack()
	case "previous place":
		s.walk(&s.back, &s.forwards)
	case "next place":
		s.walk(&s.forwards, &s.back)
	case "screen":
		s.goTo(c.screen)
	case "go":
		s.goObject(c.object)
	case "other pane":
		s.panes().turn(1)
	case "previous pane":
		s.panes().turn(-1)
	case "zoom pane":
		s.panes().zoom()
	case "mark":
		s.showToast(s.list().mark())
	case "mark all":
		s.showToast(s.list().markAll(), false)
	case "sort":
		s.overlay = sortChooser(*s.list())
	case "order":
		l := s.list()
		l.order = order{c.by, c.by == l.order.by && !l.order.reverse}
	case "changes":
		openChanges(s)
	case "log":
		openLog(s)
	case "pause log":
		s.showToast(s.detail.pauseLog(), false)
	case "files":
		openFiles(s, false)
	case "drift":
		openFiles(s, true)
	case "next change":
		s.showToast(s.diff.nextHunk(false), false)
	case "previous change":
		s.showToast(s.diff.nextHunk(true), false)
	case "wide, wrapped":
		if s.widens() {
			s.wide = !s.wide
		} else {
			s.wraps = !s.wraps
		}
	case "filter":
		s.filterLine.typing = true
	case "its history":
		of := onRepos(&s.facts, s.selected)
		s.goTo(screenHistory)
		if len(of) == 1 {
			s.setFilter("repo:" + of[0].Name + " ")
		}
	case "new job":
		s.overlay = jobChooser(onRepos(&s.facts, s.selected)[0])
	case "test":
		openPopup(s, popup{popupKey: popupKey{of: s.testable()[0].Subject, test: true}, command: popupLine(&s.facts, s.testable(), true)})
	case "show as YAML":
		openPopup(s, popup{popupKey: popupKey{of: s.showable()[0].Subject}, command: popupLine(&s.facts, s.showable(), false)})
	case "edit":
		s.edit(snapshot.Edit{Subject: s.testable()[0].Subject})
	case "copy command":
		s.copied(shownBy(s))
	case "copy address":
		copyLink(s)
	case "copy commit":
		s.copied(commitHere(s))
	case "errors":
		openIssues(s)
	case "ASCII on/off":
		s.Caps.ASCII = !s.Caps.ASCII
		s.showToast(map[bool]string{true: "ASCII alone", false: "glyphs"}[s.Caps.ASCII], false)
	case "context":
		s.out.Context = c.action
	case "next theme":
		s.act(command{act: "theme", by: (s.Caps.Theme + 1) % len(widget.Coloured)})
	case "theme":
		s.Caps.Theme = c.by
		s.showToast("theme "+widget.Themes[c.by], false)
	case "refresh":
		refresh(s)
	case "doctor":
		s.run("doctor")
	case "command":
		s.overlay = palette(allCommands(s))
	case "this help":
		s.overlay = help(s.screen)
	case "quit":
		quit(s)
	case "quit now":
		s.out.Quit = true
	case "stay":
		stay(s)
	case "finish first":
		finishFirst(s)
	}
}

// requested returns the request of a command: for its object, wherever the cursor is now, else for
// the selection.
func requested(s *scene, c command) (request, string) {
	if c.object.Kind != "" {
		return requestNow(&s.facts, c.verb, c.object)
	}
	return requestFor(&s.facts, c.verb, s.selected)
}

// refusal returns why a command is disabled, "" when it is enabled.
func (s *State) refusal(c command) string {
	switch c.act {
	case "request":
		_, why := requested(&s.scene, c)
		return why
	case "create", "submit":
		return createRefusal(&s.facts, c.action, c.object)
	case "open":
		_, opens := s.at(s.screen).(opener)
		return widget.When(!opens, "nothing opens from this screen")
	case "previous place":
		return widget.When(len(s.back) == 0, "this is the first place")
	case "next place":
		return widget.When(len(s.forwards) == 0, "this is the last place")
	case "screen":
		return widget.When(!available(&s.facts, c.screen, s.tab()), "no Flux sources here")
	case "go":
		return missing(&s.scene, c.object)
	case "other pane", "previous pane", "zoom pane":
		return widget.When(s.panes() == nil, "this screen has one pane")
	case "mark", "mark all":
		return widget.When(!s.hasLists() || len(s.list().keys) == 0, "there is nothing under the cursor")
	case "sort":
		return widget.When(!s.hasLists(), "this screen has no list that is sorted")
	case "changes":
		return changesRefusal(s)
	case "log":
		return logRefusal(s)
	case "files", "drift":
		return oneRefusal(onRepos(&s.facts, s.selected), "no repository is under the cursor")
	case "wide, wrapped":
		return widget.When(!s.widens() && s.screen != screenDetail && s.screen != screenDiff,
			"w widens the names of a list of jobs or repositories, or wraps a log or a diff: none is here")
	case "filter":
		_, found := s.at(s.screen).(finder)
		return widget.When(!found && s.filterFields() == nil, "there is nothing to filter on this screen")
	case "new job":
		return cmp.Or(s.notSentReason(), oneRefusal(onRepos(&s.facts, s.selected), "no repository is under the cursor"))
	case "test":
		return testRefusal(&s.scene)
	case "show as YAML":
		return showRefusal(&s.scene)
	case "edit":
		return cmp.Or(s.notSentReason(), oneRefusal(s.testable(), "no repository or source is under the cursor"))
	case "copy command":
		return widget.When(shownBy(s) == "", "there is nothing under the cursor")
	case "copy address":
		return widget.When(len(s.links) == 0, "no web address is known here")
	case "copy commit":
		return widget.When(commitHere(s) == "", "no commit is known here")
	case "errors":
		return widget.When(len(s.issues.list) == 0, "no errors so far")
	case "theme", "next theme":
		return widget.When(s.Caps.Mono, "no colours here: NO_COLOR, --color never or a terminal without")
	}
	return ""
}

// line returns the command line that does the same; "" = there is none.
func (s *State) line(c command) string {
	switch c.act {
	case "request":
		if c.object.Kind != "" {
			return requestLine(&s.facts, c.verb, c.object)
		}
	case "create":
		return createLine(&s.facts, c.action, c.object, nil)
	case "screen":
		return s.limpet(screens[c.screen].command)
	case "go":
		return commandLine(&s.facts, "show", c.object)
	case "its history":
		return historyLine(&s.scene)
	case "test":
		return popupLine(&s.facts, s.testable(), true)
	case "show as YAML":
		return popupLine(&s.facts, s.showable(), false)
	case "edit":
		return editLine(&s.scene)
	case "doctor":
		return s.limpet("doctor")
	case "context":
		return "limpet --context " + c.action
	}
	return ""
}

// open shows what is under the cursor. On the first screen of a fresh limpet it starts the setup.
func (s *State) open() {
	o, ok := s.at(s.screen).(opener)
	switch {
	case s.screen == screenOverview && s.firstRun() && s.SetUp:
		s.out.SetUp = true
		return
	case !ok:
		return
	}
	switch next := o.open(&s.scene); {
	case next.toast != "":
		s.showToast(next.toast, false)
	case next.file != "":
		openFile(s, next.file)
	case next.changes:
		openChanges(s)
	case next.popup != nil:
		openPopup(s, *next.popup)
	case next.object.Kind != "":
		s.goObject(next.object)
	}
}

// widens reports whether w acts on the names of a list.
func (s *scene) widens() bool { return s.hasLists() || s.screen == screenRepo }

func (s *scene) hasLists() bool {
	return slices.Contains([]screenID{screenOverview, screenJobs, screenRepos, screenSources}, s.screen)
}

// refresh redraws the screen, which another program may have written to, and retries an unavailable
// source now.
func refresh(s *State) {
	s.out.Refresh = true
	if s.Gone == "" && !s.Snap.At.IsZero() && !s.Snap.API.Up && s.readOnlyReason() == "" {
		s.out.Actions = []Action{{Verb: snapshot.Hurry}}
	}
	s.showToast("asked again", false)
}

// quit leaves at once. While jobs run in this process, it asks first what to do with them.
func quit(s *State) {
	a := s.Snap.Agent
	if s.Source != Standalone || a.Claims == 0 {
		s.out.Quit = true
		return
	}
	q := confirm{quit: true, title: "Quit?", choices: []choice{{"y", "Yes, release them", command{act: "quit now"}}},
		lines: []string{fmt.Sprintf("%s here. Released jobs resume at the next start, here or on another agent.",
			text.Plural(a.Claims, "running job"))}}
	switch {
	case s.whenIdle:
		q.title = "Quit now?"
		q.lines = append(q.lines, "limpet ends by itself when no job runs. Stay: claim jobs again.")
		q.choices = append(q.choices, choice{"s", "Stay", command{act: "stay"}})
	case s.readOnlyReason() == "":
		q.lines = append(q.lines, "Finish first: claim no new jobs, quit when none runs.")
		q.choices = append(q.choices, choice{"f", "Finish first", command{act: "finish first"}})
	}
	s.overlay = q
}

// finishFirst drains the agent, unless it is drained already, and quits when no job runs.
func finishFirst(s *State) {
	s.whenIdle = true
	if s.drained = s.Snap.Agent.Draining.IsZero(); s.drained {
		s.out.Actions = []Action{{Verb: snapshot.Drain}}
	}
	s.showToast("draining: quits when no job runs (q: now)", false)
}

func stay(s *State) {
	if s.drained {
		s.out.Actions = []Action{{Verb: snapshot.Undrain}}
		s.showToast("claims jobs again", false)
	}
	s.whenIdle, s.drained = false, false
}

// Ended reports whether a quit was requested for the end of all jobs, and no job runs any more.
func (s State) Ended() bool {
	return s.whenIdle && !s.Snap.Agent.Draining.IsZero() && s.Snap.Agent.Busy == 0
}
