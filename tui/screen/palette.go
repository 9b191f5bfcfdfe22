package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

func (s *State) openPalette() { s.overlay = palette{all: s.commands()}.search(s, "") }

// search finds the commands that match the words. Equal matches are ordered by the command
// history, then by their order.
func (c palette) search(s *State, text string) palette {
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
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.rank, b.rank) })
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
	for _, r := range strings.ReplaceAll(typed, " ", "") {
		i := strings.IndexRune(words[at:], r)
		if i < 0 {
			return 0, false
		}
		at += i + len(string(r))
	}
	return 3, true
}

func (c palette) key(s *State, name, text string) {
	recall := func(back int) {
		words := ""
		if back > 0 {
			words = s.usedCommands[len(s.usedCommands)-back]
		}
		c = c.search(s, words)
		c.back = back
	}
	switch name {
	case "esc", "ctrl+p":
		s.overlay = nil
		return
	case "enter":
		if c.at < len(c.found) {
			s.overlay = nil
			s.perform(c.found[c.at])
		}
		return
	case "tab":
		if c.at < len(c.found) {
			c = c.search(s, c.found[c.at].words)
		}
	case "up":
		if c.at > 0 {
			c.at--
		} else if c.back < len(s.usedCommands) {
			recall(c.back + 1)
		}
	case "down":
		if c.back > 0 && c.at == 0 {
			recall(c.back - 1)
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
}

// perform runs a command and adds it to the history.
func (s *State) perform(c command) {
	why := c.refusal(s)
	if why == "" {
		s.usedCommands = remembered(s.usedCommands, c.words, paletteKept)
	}
	s.run(why, c.do)
}

func (c palette) hints(p *view) []widget.Hint {
	return []widget.Hint{p.arrows("move"), {Key: "tab", Text: "complete"}, {Key: "enter", Text: "run"}, {Key: "esc", Text: "close"}}
}

func (c palette) draw(p *view) {
	m := menu{w: min(72, p.W-2), columns: 1, most: min(max(len(c.found), 1), 8), input: ": " + c.text, at: c.at,
		empty: "nothing is called so; try pull, go, filter, theme", last: c.same(p.s), Box: widget.Box{Title: "Command", Note: "esc closes"}}
	if m.w >= 50 {
		m.Foot = "tab completes, enter runs, up recent"
	}
	if c.count > m.most {
		m.Note = fmt.Sprintf("%d more, esc closes", c.count-m.most)
	}
	for _, of := range c.found {
		row := menuRow{mark: " ", text: " " + of.words, note: of.note, label: of.label, off: of.refusal(p.s) != ""}
		if row.off {
			row.mark = "-"
		}
		m.rows = append(m.rows, row)
	}
	p.menu(m)
}

// same returns the last line: the equivalent command line, or why the command is disabled.
func (c palette) same(s *State) string {
	if c.at >= len(c.found) {
		return " "
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
	words   string // the typed words: "pull team-dash --full"
	note    string // a description, when the words do not explain it
	label   string // the equivalent key on the row
	do      func(*State)
	line    func(*State) string // the equivalent command line; nil or "" = none
	refuses func(*State) string
}

func (c command) refusal(s *State) string {
	if c.refuses == nil {
		return ""
	}
	return c.refuses(s)
}

// sending returns a command that acts on the present state of an object.
func (c command) sending(v Verb, o object) command {
	c.line = func(s *State) string { return s.lineOf(v, o) }
	c.refuses = func(s *State) string { _, why := s.requestNow(v, o); return why }
	c.do = func(s *State) { s.request(s.requestNow(v, o)) }
	return c
}

// copying returns a command that copies a command line.
func copying(words string, line func(*State) string) command {
	return command{words: words, note: "copies the command", line: line, do: func(s *State) { s.copied(line(s)) }}
}

// commands returns all available commands: the keys, the screens, then the actions on each
// repository, source and job of the snapshot.
func (s *State) commands() []command {
	out := s.keyCommands()
	for i, name := range widget.Themes {
		out = append(out, command{words: "theme " + name, label: "T", refuses: colourRefusal, do: func(s *State) { s.setTheme(i) }})
	}
	out = append(out,
		command{words: "drain", note: "claim nothing new", line: plain("limpet drain"), refuses: drainRefusal(true),
			do: func(s *State) {
				s.overlay = confirm{title: "Drain this agent?", lines: []string{"What runs goes on to its end. Nothing new is claimed until " +
					"somebody ends this, or the agent is started again."},
					choices: []choice{{"y", "Yes", func(s *State) { s.sendPlain(Drain, "drain asked for") }}}}
			}},
		command{words: "drain --off", note: "claim again", line: plain("limpet drain --off"), refuses: drainRefusal(false),
			do: func(s *State) { s.sendPlain(Undrain, "claims jobs again") }},
	)
	for _, r := range s.Snap.Repos {
		out = append(out, s.repoCommands(r)...)
	}
	for _, from := range s.Snap.Sources {
		out = append(out, s.sourceCommands(from)...)
	}
	for _, j := range s.Snap.Jobs {
		o := jobObject(j)
		act := command{note: j.Repository + ", asks"}
		out = append(out, s.goCommand("go job "+j.Name, j.State+" "+j.Repository, o))
		act.words, act.label = "cancel "+j.Name, "x"
		out = append(out, act.sending(Cancel, o))
		act.words, act.label = "retry "+j.Name, "r"
		out = append(out, act.sending(Retry, o))
	}
	return out
}

// sendPlain sends an action on the agent itself.
func (s *State) sendPlain(v Verb, said string) {
	s.out.Actions = []Action{{Verb: v}}
	s.showToast(said, false)
}

// keyCommands returns the commands of the keys that act, then those that change the view, then
// the others.
func (s *State) keyCommands() (out []command) {
	for _, group := range []string{"ACT", "VIEW", "APP"} {
		for _, b := range bindings {
			if b.group != group || !b.here(s) || slices.Contains([]string{"enter", "esc", ":"}, b.keys[0]) {
				continue
			}
			c := command{words: b.text, label: b.label, refuses: b.refuses, do: b.do, line: b.line}
			for _, id := range tabs {
				if screens[id].key == b.press {
					c.words, c.line = "go "+b.text, plain(screens[id].command)
				}
			}
			if b.verb != "" {
				c.note = "of the row"
				switch r, _ := s.requestFor(b.verb, s.selected); {
				case len(r.on) > 1:
					c.note = fmt.Sprintf("of the %d that are marked", len(r.on))
				case len(r.on) == 1: // only this one, though the cursor moves with the snapshot
					c.note = r.on[0].Name
					c = c.sending(r.verb, r.on[0])
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// goCommand returns the command that shows an object.
func (s *State) goCommand(words, note string, o object) command {
	return command{words: words, note: note, label: "enter", refuses: missing(o), do: func(s *State) { s.goObject(o) },
		line: func(s *State) string { return s.command("show", o) }}
}

// testCommand returns the command that tests an object.
func (s *State) testCommand(words string, o object) command {
	return command{words: words, note: "its host and its credentials", label: "t", do: func(s *State) { s.openPopup(o, true) },
		line: func(s *State) string { return s.command("test", o) },
		refuses: func(s *State) string {
			return cmp.Or(s.testsRefused(), missing(o)(s))
		}}
}

// missing returns a refusal once an object is gone.
func missing(o object) func(*State) string {
	return func(s *State) string {
		switch _, there := s.current(o); {
		case there:
			return ""
		case o.job != nil:
			return o.Name + " is not in the queue any more: limpet history show " + widget.Quote(o.UID)
		}
		return o.Name + " is not there any more"
	}
}

func (s *State) repoCommands(r snapshot.Repo) []command {
	o := repoObject(r)
	act := func(words, note, label string, v Verb) command {
		return command{words: words, note: note, label: label}.sending(v, o)
	}
	suspend := act("suspend "+r.Name, "asks", "s", Suspend)
	if r.Suspended {
		suspend = act("resume "+r.Name, "", "s", Resume)
	}
	out := []command{
		act("pull "+r.Name, "what has changed", "p", Pull),
		act("pull "+r.Name+" --full", "everything, asks", "P", PullFull),
		s.goCommand("go repo "+r.Name, r.Title, o),
		{words: "filter repo:" + r.Name, note: "jobs and repositories", label: "/", do: func(s *State) {
			if s.screen != screenOverview && s.screen != screenHistory {
				s.goTo(screenJobs)
			}
			s.setFilter("repo:" + r.Name)
		}},
		{words: "history repo:" + r.Name, note: "what has ended", label: "h",
			line: plain("limpet history list --repository " + widget.Quote(r.Name)), do: func(s *State) {
				s.goTo(screenHistory)
				s.setFilter("repo:" + r.Name)
			}},
		suspend,
		s.testCommand("test "+r.Name, o),
	}
	for _, action := range gitWriteActions { // they have no key: the command line asks for the parameters
		out = append(out, copying(action+" "+r.Name, func(s *State) string {
			return strings.Replace(s.command("create", o), "limpet repo", "limpet job", 1) + " --action " + action
		}))
	}
	return out
}

func (s *State) sourceCommands(from snapshot.Source) []command {
	o := sourceObject(from)
	act := func(words, note, label string, v Verb) command {
		return command{words: words, note: note, label: label}.sending(v, o)
	}
	suspend := act("suspend source "+from.Name, "asks", "s", SuspendSource)
	if from.Suspended {
		suspend = act("resume source "+from.Name, "", "s", ResumeSource)
	}
	return []command{
		s.goCommand("go source "+from.Name, sourceState(from), o),
		act("reconcile "+from.Name, "its controller looks now", "p", Reconcile),
		suspend,
		s.testCommand("test source "+from.Name, o),
		copying("get source "+from.Name, func(s *State) string { return s.command("get", o) }),
	}
}

// drainRefusal returns why the agent cannot be drained, or undrained, now.
func drainRefusal(on bool) func(*State) string {
	return func(s *State) string {
		switch drained, why := !s.Snap.Agent.Draining.IsZero(), s.readOnlyReason(); {
		case why != "":
			return why
		case s.Gone != "":
			return "the agent does not answer"
		case drained && on:
			return "it claims nothing already"
		case !drained && !on:
			return "it claims jobs already"
		}
		return ""
	}
}
