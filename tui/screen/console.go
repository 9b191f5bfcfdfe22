package screen

import (
	"slices"
	"strings"

	"limpet/sync/text"
	"limpet/tui/widget"
)

// Entry is a command of the command line, as the palette lists it.
type Entry struct{ Words, Help string }

// console has the output of the last command line.
type console struct {
	line     string
	lines    []string // clean; the last one may be incomplete
	running  bool
	stopped  bool   // by the user
	end      string // how it has ended; "" = well
	dropped  int    // lines before the first one
	top      int    // first visible line
	scrolled bool   // the user has left the end
}

const (
	// maxOutput bounds the lines that are kept, the last ones, and maxOutputLine the bytes of one, the
	// first ones.
	maxOutput, maxOutputLine = 5000, 64 << 10
	// question ends the text of a command that waits for a yes.
	question = "[y/N] "
)

// run starts a command line of limpet and shows its output.
func (s *State) run(line string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "limpet ")
	words, err := text.Words(line)
	if err != nil {
		s.showToast(err.Error(), true)
		return
	}
	s.console = console{line: line, lines: []string{""}, running: true}
	s.overlay, s.out.Run = consolePane{}, words
}

// Output returns the state with more output of the command line.
func (s State) Output(output string) State {
	lines := slices.Clone(s.console.lines)
	for i, part := range strings.Split(strings.ReplaceAll(output, "\r", ""), "\n") {
		if i > 0 {
			lines = append(lines, "")
		}
		last := &lines[len(lines)-1]
		part = text.Clean(strings.ReplaceAll(part, "\t", "    "))
		*last += text.Clean(part[:min(len(part), max(maxOutputLine-len(*last), 0))])
	}
	more := max(len(lines)-maxOutput, 0)
	s.console.lines, s.console.dropped = lines[more:], s.console.dropped+more
	return s
}

// CommandEnded returns the state after the end of the command line; why is "" when it ended well.
func (s State) CommandEnded(why string) State {
	c := &s.console
	c.running, c.end = false, text.Clean(why)
	if !c.scrolled && !c.stopped {
		c.top = 0 // its head says the most
	} else if !c.scrolled {
		c.top = far
	}
	c.scrolled = true
	return s
}

// asks reports whether the command waits for an answer.
func (c *console) asks() bool {
	return c.running && len(c.lines) > 0 && strings.HasSuffix(c.lines[len(c.lines)-1], question)
}

// stops stops the command that runs, and reports whether it did. A command that is stopped already
// is left to itself.
func (c *console) stops(s *State) bool {
	_, shown := s.overlay.(consolePane)
	if !shown && s.overlay != nil || !c.running || c.stopped {
		return false
	}
	s.overlay = consolePane{}
	s.out.Stop, c.stopped = true, true
	return true
}

// consolePane is the pane of the console.
type consolePane struct{}

func (consolePane) key(s *State, name, _ string) {
	c := &s.console
	by, scrolls := steps[name]
	switch {
	case c.asks() && (name == "y" || name == "n"):
		s.out.Type = name + "\n"
		*c = s.Output(name + "\n").console
	case scrolls:
		c.top, c.scrolled = c.top+by, by < far
	case name == "w":
		s.wraps = !s.wraps
	case name == "esc" && c.stops(s):
	case c.running:
		s.showToast("esc stops the command first", true)
	default:
		s.leaveOverlay(name)
	}
}

func (consolePane) hints(s *scene) string {
	switch {
	case s.console.asks():
		return "y yes|n no|esc stop"
	case s.console.running:
		return "^v scroll|w wrap|esc stop"
	}
	return "^v scroll|w wrap|esc close"
}

func (o consolePane) draw(p *view) overlay {
	c, at := &p.s.console, p.c.Dialog(p.c.W-2, p.c.H-2)
	var lines []widget.TextLine
	if c.dropped > 0 {
		lines = append(lines, widget.Styled(widget.RoleDim, text.Plural(c.dropped, "earlier line")+" left out"))
	}
	for i, l := range c.lines {
		if l != "" || i < len(c.lines)-1 {
			lines = append(lines, p.c.FoldLine(widget.RolePlain, l, at.W-4, p.s.wraps || strings.HasSuffix(l, question))...)
		}
	}
	note := "esc closes"
	switch {
	case c.running:
		note = widget.When(c.stopped, "stopping") + widget.When(!c.stopped, "runs, esc stops it")
	case c.end != "":
		lines = widget.Wrapped(lines, widget.RoleBad, c.end, at.W-4)
	case len(lines) == 0:
		lines = []widget.TextLine{widget.Styled(widget.RoleDim, "It has printed nothing.")}
	}
	if c.running && !c.scrolled {
		c.top = len(lines)
	}
	p.c.Scroll(at, widget.Box{Title: p.cut("limpet "+c.line, at.W/2), Note: note, Focused: true}, lines, &c.top)
	return o
}
