package screen

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// palette is a command line with completion. It shows the matching commands and the equivalent
// command line. It keeps the commands of the time when it was opened; each of them looks up its
// target again.
type palette struct {
	all   []command
	found []command
	count int // number of all matches
	text  string
	at    int
	back  int // position in the command history
}

const (
	// paletteFound bounds the listed commands; more letters narrow the search.
	paletteFound = 50
	// paletteKept bounds the command history.
	paletteKept = 20
)

func (s State) openPalette() State {
	p := palette{all: s.commands()}
	s.overlay = p.search(s, "")
	return s
}

// search finds the commands that match the words. Equal matches are ordered by the command
// history, then by their order.
func (c palette) search(s State, text string) palette {
	c.text, c.at = text, 0
	type hit struct {
		rank int
		of   command
	}
	var hits []hit
	typed := strings.ToLower(text)
	words := strings.Fields(typed)
	for _, of := range c.all {
		if rank, ok := match(strings.ToLower(of.words), typed, words); ok {
			rank *= 2
			if !slices.Contains(s.usedCommands, of.words) {
				rank++
			}
			hits = append(hits, hit{rank, of})
		}
	}
	sort.SliceStable(hits, func(i, j int) bool { return hits[i].rank < hits[j].rank })
	c.count, c.found = len(hits), nil
	for _, h := range hits[:min(len(hits), paletteFound)] {
		c.found = append(c.found, h.of)
	}
	return c
}

// match ranks how well words fit the typed text, 0 best: as a prefix, as prefixes of words, as
// substrings, as letters in order.
func match(words, typed string, fields []string) (rank int, ok bool) {
	if strings.HasPrefix(words, typed) {
		return 0, true
	}
	begins, occurs := true, true
	rest := " " + words
	for _, f := range fields {
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
	at := 0
	for _, r := range typed {
		if r == ' ' {
			continue
		}
		i := strings.IndexRune(words[at:], r)
		if i < 0 {
			return 0, false
		}
		at += i + len(string(r))
	}
	return 3, true
}

func (c palette) key(s State, name, text string) (State, Outcome) {
	switch name {
	case "esc", "ctrl+p":
		s.overlay = nil
		return s, Outcome{}
	case "enter":
		if c.at >= len(c.found) {
			return s, Outcome{}
		}
		s.overlay = nil
		return s.perform(c.found[c.at])
	case "tab":
		if c.at < len(c.found) {
			c = c.search(s, c.found[c.at].words)
		}
	case "up":
		if c.at > 0 {
			c.at--
		} else if c.back < len(s.usedCommands) {
			back := c.back + 1
			c = c.search(s, s.usedCommands[len(s.usedCommands)-back])
			c.back = back
		}
	case "down":
		if c.back > 0 && c.at == 0 {
			back, words := c.back-1, ""
			if back > 0 {
				words = s.usedCommands[len(s.usedCommands)-back]
			}
			c = c.search(s, words)
			c.back = back
		} else {
			c.at = max(min(c.at+1, len(c.found)-1), 0)
		}
	default:
		if next := widget.Edit(c.text, name, text); next != c.text {
			c = c.search(s, next)
			c.back = 0
		}
	}
	s.overlay = c
	return s, Outcome{}
}

// perform runs a command and adds it to the history.
func (s State) perform(c command) (State, Outcome) {
	if why := c.refusal(s); why != "" {
		return s.showToast(why, true), Outcome{}
	}
	kept := slices.DeleteFunc(slices.Clone(s.usedCommands), func(words string) bool { return words == c.words })
	s.usedCommands = append(kept[max(len(kept)-paletteKept+1, 0):], c.words)
	return c.do(s)
}

func (c palette) hints(p *view) [][2]string {
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"tab", "complete"}, {"enter", "run"}, {"esc", "close"}}
}

func (c palette) draw(p *view) {
	w := min(72, p.W-2)
	rows := min(max(len(c.found), 1), 8, p.H-7)
	h := rows + 5
	x, y := p.Dialog(w, h)
	inner := w - 4
	foot := "tab completes, enter runs, up recent"
	if w < 50 {
		foot = ""
	}
	note := "esc closes"
	if c.count > rows {
		note = fmt.Sprintf("%d more, esc closes", c.count-rows)
	}
	p.Box(p.G, x, y, w, h, "Command", note, foot, true)
	text := c.text
	for displaywidth.String(text) > inner-3 { // the end is where the user types
		text = text[len(string([]rune(text)[:1])):]
	}
	at := p.Put(x+2, y+1, inner, widget.RoleKey, ": ")
	at = p.Put(at, y+1, inner-2, widget.RolePlain, text)
	p.Put(at, y+1, 1, widget.RoleCursor, " ")
	if len(c.found) == 0 {
		p.Put(x+4, y+2, inner-2, widget.RoleDim, widget.Cut("nothing is called so; try pull, go, filter, theme", inner-2, p.G.More))
	}
	top := widget.Window(c.at, len(c.found), rows)
	name := inner - 2
	if w >= 60 {
		name = inner / 2
	}
	for i, of := range c.found[top:min(top+rows, len(c.found))] {
		ly, mark, r := y+2+i, " ", widget.RolePlain
		if of.refusal(p.s) != "" {
			mark, r = "-", widget.RoleDim
		}
		if top+i == c.at {
			mark = p.G.Cursor
		}
		p.Put(x+2, ly, 1, widget.RoleKey, mark)
		p.Put(x+4, ly, name-1, r, widget.Cut(of.words, name-1, p.G.More))
		if name < inner-2 {
			p.Put(x+4+name, ly, inner-name-8, widget.RoleDim, widget.Cut(of.note, inner-name-8, p.G.More))
			p.Right(x+w-8, x+w-2, ly, widget.RoleKey, of.label)
		}
		if top+i == c.at {
			p.PaintRow(x+3, ly, x+w-2, widget.RoleCursor)
		}
	}
	p.Fill(x+2, y+2+rows, x+2+inner, widget.RoleFrame, p.G.Horizontal)
	p.Put(x+2, y+3+rows, inner, widget.RoleDim, widget.Cut(c.same(p.s), inner, p.G.More))
}

// same returns the last line: the equivalent command line, or why the command is disabled.
func (c palette) same(s State) string {
	if c.at >= len(c.found) {
		return ""
	}
	of := c.found[c.at]
	if why := of.refusal(s); why != "" {
		return why
	}
	if of.line != nil {
		if line := of.line(s); line != "" {
			return "same as: " + line
		}
	}
	return "no command line does this"
}

// command is one entry of the palette.
type command struct {
	group string // group of the key, if it has one
	words string // the typed words: "pull team-dash --full"
	note  string // a description, when the words do not explain it
	label string // the equivalent key on the row
	// line is the equivalent command line; nil or "" = none.
	line      func(State) string
	refusalOf func(State) string
	do        func(State) (State, Outcome)
}

// plain returns a constant command line.
func plain(line string) func(State) string { return func(State) string { return line } }

// targeting returns a command that acts on the present state of its target.
func (c command) targeting(at func() target) command {
	c.line = func(s State) string { return s.lineOf(at()) }
	c.refusalOf = func(s State) string { _, why := s.targetsNow(at()); return why }
	c.do = func(s State) (State, Outcome) { return s.request(s.targetsNow(at())) }
	return c
}

func (c command) refusal(s State) string {
	if c.refusalOf == nil {
		return ""
	}
	return c.refusalOf(s)
}

// commands returns all available commands: the keys, the screens, then the actions on each
// repository and job of the snapshot.
func (s State) commands() []command {
	out := s.keyCommands()
	for i, name := range widget.Themes {
		out = append(out, command{words: "theme " + name, label: "T", refusalOf: colourRefusal, do: same(func(s State) State {
			s.Caps.Theme = i - 1
			return s.nextTheme()
		})})
	}
	out = append(out,
		command{words: "drain", note: "claim nothing new", line: plain("limpet drain"), refusalOf: drainRefusal(true),
			do: asks(Action{Verb: Drain}, "Drain this agent?",
				"What runs goes on to its end. Nothing new is claimed until somebody ends this, or the agent is started again.")},
		command{words: "drain --off", note: "claim again", line: plain("limpet drain --off"), refusalOf: drainRefusal(false),
			do: sends(Action{Verb: Undrain}, "claims jobs again")},
	)
	for _, r := range s.Snap.Repos {
		out = append(out, s.repoCommands(r)...)
	}
	for _, from := range s.Snap.Sources {
		out = append(out, s.sourceCommands(from)...)
	}
	for _, j := range s.Snap.Jobs {
		out = append(out, s.jobCommands(j)...)
	}
	return out
}

// lines are the command lines that show the contents of a screen.
var lines = map[screenID]string{screenOverview: "limpet status", screenJobs: "limpet job list", screenRepos: "limpet repo list",
	screenHistory: "limpet history list", screenAgent: "limpet status", screenSources: "limpet source list"}

func (s State) keyCommands() (out []command) {
	for _, b := range bindings {
		if b.group == "MOVE" || !b.here(s) || slices.Contains(b.keys, "enter") || slices.Contains(b.keys, "esc") || slices.Contains(b.keys, ":") {
			continue
		}
		c := command{group: b.group, words: b.text, label: b.label, refusalOf: b.refusalOf, do: b.do, line: b.line}
		if of, ok := tabOf(b.keys[0]); ok {
			c.words, c.line = "go "+b.text, plain(lines[of])
		}
		if b.verb != "" {
			c.note = "of the row"
			switch targets, _ := s.targets(b.verb); {
			case len(targets) > 1:
				c.note = fmt.Sprintf("of the %d that are marked", len(targets))
			case len(targets) == 1: // only this one, though the cursor moves with the snapshot
				c.note = targets[0].action.Name
				c = c.targeting(func() target { return targets[0] })
			}
		}
		out = append(out, c)
	}
	rank := map[string]int{"ACT": 0, "VIEW": 1, "APP": 2}
	sort.SliceStable(out, func(i, j int) bool { return rank[out[i].group] < rank[out[j].group] })
	return out
}

// tabOf returns the screen whose tab has this key.
func tabOf(key string) (screenID, bool) {
	for i, f := range screens {
		if f.tab != "" && f.tab == key {
			return screenID(i), true
		}
	}
	return 0, false
}

// lineOf returns the equivalent command line of an action.
func (s State) lineOf(a target) string {
	switch a.action.Verb {
	case Pull:
		return s.repoCommand("pull", a.repo)
	case PullFull:
		return s.repoCommand("pull", a.repo) + " --full"
	case Suspend:
		return s.repoCommand("suspend", a.repo)
	case Resume:
		return s.repoCommand("resume", a.repo)
	case Cancel:
		return s.jobCommand("cancel", a.job)
	case Retry:
		return s.jobCommand("retry", a.job)
	case Reconcile, SuspendSource, ResumeSource:
		return s.sourceCommand(strings.TrimSuffix(string(a.action.Verb), "-source"), a.source)
	}
	return ""
}

// gitWriteActions change the repository itself. They have no key: the palette shows their
// command line, which asks for the parameters.
var gitWriteActions = []string{"push", "migrate", "move", "delete"}

func (s State) repoCommands(r snapshot.Repo) []command {
	at := repoKey(r)
	act := func(words, note, label string, v Verb) command {
		return command{words: words, note: note, label: label}.targeting(
			func() target { return target{repo: r, action: Action{Verb: v, Name: r.Name}} })
	}
	out := []command{
		act("pull "+r.Name, "what has changed", "p", Pull),
		act("pull "+r.Name+" --full", "everything, asks", "P", PullFull),
		{words: "go repo " + r.Name, refusalOf: goneRefusal(func(s State) bool { return len(s.reposAt(at)) > 0 },
			r.Name+" is not there any more"), note: r.Title, label: "enter", line: func(s State) string { return s.repoCommand("show", r) },
			do: same(func(s State) State { return s.goRepo(at) })},
		{words: "filter repo:" + r.Name, note: "jobs and repositories", label: "/", do: same(func(s State) State {
			if s.nav.screen != screenOverview && s.nav.screen != screenJobs && s.nav.screen != screenHistory {
				s = s.goTo(screenJobs)
			}
			return s.filterBy("repo:" + r.Name)
		})},
		{words: "history repo:" + r.Name, note: "what has ended", label: "h",
			line: plain("limpet history list --repository " + widget.Quote(r.Name)),
			do:   same(func(s State) State { return s.goTo(screenHistory).filterBy("repo:" + r.Name) })},
	}
	if r.Suspended {
		out = append(out, act("resume "+r.Name, "", "s", Resume))
	} else {
		out = append(out, act("suspend "+r.Name, "asks", "s", Suspend))
	}
	copies := func(words string, line func(State) string) {
		out = append(out, command{words: words, note: "copies the command", line: line,
			do: func(s State) (State, Outcome) { return s.copied(line(s)) }})
	}
	out = append(out, command{words: "test " + r.Name, note: "its host and its credentials", label: "t",
		line:      func(s State) string { return s.repoCommand("test", r) },
		refusalOf: testRefusalOf(func(s State) bool { return len(s.reposAt(at)) > 0 }, r.Name),
		do:        same(func(s State) State { return s.openPopup(repoSubject(r), true) })})
	for _, action := range gitWriteActions {
		copies(action+" "+r.Name, func(s State) string {
			return strings.Replace(s.repoCommand("create", r), "limpet repo", "limpet job", 1) + " --action " + action
		})
	}
	return out
}

func (s State) jobCommands(j snapshot.Job) []command {
	act := func(words string, label string, v Verb) command {
		return command{words: words, note: j.Repository + ", asks", label: label}.targeting(
			func() target { return target{job: j, action: Action{Verb: v, Name: j.Name}} })
	}
	return []command{
		{words: "go job " + j.Name, refusalOf: goneRefusal(func(s State) bool { return len(s.jobsAt(j.UID)) > 0 }, j.Name+
			" is not in the queue any more: limpet history show "+widget.Quote(j.UID)), note: j.State + " " + j.Repository, label: "enter",
			line: func(s State) string { return s.jobCommand("show", j) }, do: same(func(s State) State { return s.goJob(j.UID) })},
		act("cancel "+j.Name, "x", Cancel),
		act("retry "+j.Name, "r", Retry),
	}
}

// goneRefusal returns a refusal once the object of a command is gone.
func goneRefusal(there func(State) bool, text string) func(State) string {
	return func(s State) string {
		if there(s) {
			return ""
		}
		return text
	}
}

// reposAt and jobsAt return the present object with a key: one, or none.
func (s State) reposAt(key string) []snapshot.Repo {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == key {
			return []snapshot.Repo{r}
		}
	}
	return nil
}

func (s State) jobsAt(uid string) []snapshot.Job {
	for _, j := range s.Snap.Jobs {
		if j.UID == uid {
			return []snapshot.Job{j}
		}
	}
	return nil
}

// filterBy sets the filter of the present screen.
func (s State) filterBy(text string) State {
	s.input.filters[s.nav.screen] = text
	return s.Show(s.Snap)
}

// drainRefusal returns why the agent cannot be drained, or undrained, now.
func drainRefusal(on bool) func(State) string {
	return func(s State) string {
		switch drained, looks := !s.Snap.Agent.Draining.IsZero(), s.readOnlyReason(); {
		case looks != "":
			return looks
		case s.Gone != "":
			return "the agent does not answer"
		case drained == on && on:
			return "it claims nothing already"
		case drained == on:
			return "it claims jobs already"
		}
		return ""
	}
}

func sends(a Action, said string) func(State) (State, Outcome) {
	return func(s State) (State, Outcome) { return s.showToast(said, false), Outcome{Actions: []Action{a}} }
}

func asks(a Action, title, follows string) func(State) (State, Outcome) {
	return func(s State) (State, Outcome) {
		return s.ask(confirm{title: title, lines: []string{follows},
			choices: []choice{{"y", "Yes", sends(a, string(a.Verb)+" asked for")}}}), Outcome{}
	}
}
