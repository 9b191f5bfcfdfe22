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
	for _, kind := range []string{snapshot.SubjectRepository, snapshot.SubjectSource, snapshot.SubjectJob} {
		for o := range s.objects(kind) {
			out = append(out, s.commandsFor(o)...)
		}
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

// commandsFor returns the commands of an object.
func (s *State) commandsFor(o object) (out []command) {
	act := func(words, note, label string, v Verb) {
		out = append(out, command{words: words, note: note, label: label}.sending(v, o))
	}
	show := func(words, note string) {
		out = append(out, command{words: words, note: note, label: "enter", refuses: missing(o), do: func(s *State) { s.goObject(o) },
			line: func(s *State) string { return s.command("show", o) }})
	}
	test := func(words string) {
		out = append(out, command{words: words, note: "its host and its credentials", label: "t", do: func(s *State) { s.openPopup(o, true) },
			line:    func(s *State) string { return s.command("test", o) },
			refuses: func(s *State) string { return cmp.Or(s.testsRefused(), missing(o)(s)) }})
	}
	copies := func(words string, line func(*State) string) {
		out = append(out, command{words: words, note: "copies the command", line: line, do: func(s *State) { s.copied(line(s)) }})
	}
	suspend := func(name string, off, on Verb) {
		if o.suspended() {
			act("resume "+name, "", "s", on)
		} else {
			act("suspend "+name, "asks", "s", off)
		}
	}
	filter := "repo:" + o.Name
	switch name := o.Name; o.Kind {
	case snapshot.SubjectJob:
		show("go job "+name, o.job.State+" "+o.job.Repository)
		act("cancel "+name, o.job.Repository+", asks", "x", Cancel)
		act("retry "+name, o.job.Repository+", asks", "r", Retry)
	case snapshot.SubjectSource:
		show("go source "+name, sourceState(*o.source))
		act("reconcile "+name, "its controller looks now", "p", Reconcile)
		suspend("source "+name, SuspendSource, ResumeSource)
		test("test source " + name)
		copies("get source "+name, func(s *State) string { return s.command("get", o) })
	default:
		act("pull "+name, "what has changed", "p", Pull)
		act("pull "+name+" --full", "everything, asks", "P", PullFull)
		show("go repo "+name, o.repo.Title)
		out = append(out, command{words: "filter " + filter, note: "jobs and repositories", label: "/", do: func(s *State) {
			if s.screen != screenOverview && s.screen != screenHistory {
				s.goTo(screenJobs)
			}
			s.setFilter(filter)
		}}, command{words: "history " + filter, note: "what has ended", label: "h",
			line: plain("limpet history list --repository " + widget.Quote(name)), do: func(s *State) {
				s.goTo(screenHistory)
				s.setFilter(filter)
			}})
		suspend(name, Suspend, Resume)
		test("test " + name)
		for _, action := range gitWriteActions { // they have no key: the command line asks for the parameters
			copies(action+" "+name, func(s *State) string {
				return strings.Replace(s.command("create", o), "limpet repo", "limpet job", 1) + " --action " + action
			})
		}
	}
	return out
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
