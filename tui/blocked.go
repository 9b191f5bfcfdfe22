package tui

import (
	"context"
	"errors"
	"fmt"
	"time"

	"limpet/sync/text"
	"limpet/tui/widget"

	tea "charm.land/bubbletea/v2"
)

// Holder describes the process that has the state file open. All fields but Path may be zero. It
// is a hint that the process left; only the lock is authoritative.
type Holder struct {
	Path    string
	PID     int
	Version string
	Since   time.Time
	Socket  string // the address of its control socket; "" = none
}

// Look is the result of one attempt to open the state file.
type Look struct {
	Answers bool    // the holder or another daemon answers on the socket
	Free    bool    // no process has the file open
	Holder  *Holder // the present holder; nil = unknown
}

// Answer is the result of the blocked screen.
type Answer uint8

// Answers of the blocked screen.
const (
	Leave  Answer = iota // quit
	Enter                // the file is free, or the holder answers
	Copied               // a copy is ready to be shown
)

// Door holds the functions of the blocked screen. Both run concurrently with it.
type Door struct {
	Holder Holder
	Works  bool // the caller opens the file for writing; else read-only
	// Look tries to open the file.
	Look func(ctx context.Context) Look
	// Copy makes the holder write a copy of the file; nil = not supported.
	Copy func(ctx context.Context) error
}

// lookEvery is the interval between two attempts.
const lookEvery = time.Second

// RunBlocked shows which process holds the state file and waits for a decision: wait, open a
// copy, or quit. It returns at once when the holder answers. The end of ctx counts as quit.
func RunBlocked(ctx context.Context, d Door, o Options) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &blockedModel{ctx: ctx, door: d, blocked: blocked{holder: d.Holder.clean(), works: d.Works, canCopy: d.Copy != nil,
		now: time.Now()}, caps: capsOf(o)}
	if err := runProgram(ctx, m, o); errors.Is(err, errUnresponsive) {
		return Leave, nil
	} else if err != nil {
		return Leave, err
	}
	return m.answer, nil
}

// clean removes control characters from the texts of the note, which any process may have
// written.
func (h Holder) clean() Holder {
	h.Version, h.Path, h.Socket = text.Clean(h.Version), text.Clean(h.Path), text.Clean(h.Socket)
	return h
}

// blocked is the state of the screen.
type blocked struct {
	holder  Holder
	works   bool
	canCopy bool
	now     time.Time
	waiting time.Time // when the wait began; zero = not waiting
	looks   int       // attempts since then
	free    bool      // the file is free, but the user has not chosen to wait
	copying bool
	failed  string // why the copy failed
}

// press returns the state after a key press. It reports whether the key requests a copy and
// whether it ends the screen.
func (b blocked) press(key string) (next blocked, copies bool, answer Answer, ends bool) {
	switch {
	case key == "q", key == "ctrl+c", key == "esc":
		ends = true
	case key == "w" && b.free:
		answer, ends = Enter, true
	case key == "w" && b.waiting.IsZero():
		b.waiting, b.looks = b.now, 0
	case key == "o" && b.canCopy && !b.copying:
		b.copying, b.failed, copies = true, "", true
	}
	return b, copies, answer, ends
}

func (b blocked) applyLook(l Look, now time.Time) (next blocked, enter bool) {
	b.now, b.free = now, l.Free
	b.looks++
	if l.Holder != nil {
		b.holder = l.Holder.clean()
	}
	return b, l.Answers || l.Free && !b.waiting.IsZero()
}

func (b blocked) lines() []widget.TextLine {
	h, who := b.holder, "another process"
	if h.PID > 0 {
		who = fmt.Sprintf("process %d", h.PID)
	}
	about := widget.Join(", ", widget.When(h.Version != "", "limpet "+h.Version),
		widget.When(!h.Since.IsZero(), fmt.Sprintf("since %s, %s", widget.ClockTime(h.Since, b.now), widget.Ago(b.now, h.Since))))
	title := "The state file is in use by " + who + widget.When(about != "", " ("+about+")") + "."
	then := "It has a socket, but does not answer there. It is shown as soon as it does."
	switch {
	case b.free:
		title, then = "The state file is free now.", "w opens it"+widget.When(b.works, ": this limpet then claims jobs")+"."
	case h.Socket == "":
		then = "It offers no socket, so nothing can be asked of it: it is a command, or an API without an agent."
	}
	out := []widget.TextLine{widget.Styled(widget.RoleTitle, title), {Text: h.Path}, {}, {Text: then}, {}}
	if b.copying {
		out = append(out, widget.Styled(widget.RoleWork, "Asking "+who+" for a copy to look at."))
	} else if b.failed != "" {
		out = append(out, widget.Styled(widget.RoleBad, "No copy: "+b.failed))
	}
	if !b.waiting.IsZero() {
		out = append(out, widget.Styled(widget.RoleWork, fmt.Sprintf("Waiting for it since %s, tried %s.", widget.ClockTime(b.waiting, b.now),
			widget.TimesText(b.looks))))
	}
	return out
}

// renderBlocked draws the screen; it is pure. The hints omit the copy when the holder cannot
// write one.
func renderBlocked(b blocked, w, h int, caps widget.Caps) string {
	hints := []widget.Hint{{Key: "w", Text: "wait until it is free"}}
	if b.free {
		hints[0].Text = "open it"
	} else if b.canCopy {
		hints = append(hints, widget.Hint{Key: "o", Text: "open a copy, read-only"})
	}
	hints = append(hints, widget.Hint{Key: "q", Text: "quit"})
	return renderBox(w, h, caps, "Blocked", b.now.UTC().Format("15:04:05Z"), hints, func(_ *widget.Canvas, w int) (out []widget.TextLine) {
		for _, l := range b.lines() {
			out = widget.Wrapped(out, l.Role, l.Text, w)
		}
		return out
	})
}

// blockedModel adapts blocked to Bubble Tea.
type blockedModel struct {
	ctx     context.Context // of RunBlocked
	door    Door
	blocked blocked
	answer  Answer
	caps    widget.Caps
	w, h    int
}

type (
	lookMsg   struct{}
	lookedMsg struct{ look Look }
	copiedMsg struct{ err error }
)

func (m *blockedModel) Init() tea.Cmd { return nextLook() }

func nextLook() tea.Cmd { return tea.Tick(lookEvery, func(time.Time) tea.Msg { return lookMsg{} }) }

func (m *blockedModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case lookMsg:
		return m, func() tea.Msg { return lookedMsg{m.door.Look(m.ctx)} }
	case lookedMsg:
		var enter bool
		if m.blocked, enter = m.blocked.applyLook(msg.look, time.Now()); enter {
			return m.end(Enter)
		}
		return m, nextLook()
	case copiedMsg:
		if msg.err == nil {
			return m.end(Copied)
		}
		m.blocked.copying, m.blocked.failed = false, text.Clean(msg.err.Error())
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+z" {
			return m, tea.Suspend
		}
		next, copies, answer, ends := m.blocked.press(msg.String())
		if m.blocked = next; ends {
			return m.end(answer)
		} else if copies {
			return m, func() tea.Msg { return copiedMsg{m.door.Copy(m.ctx)} }
		}
	}
	return m, nil
}

func (m *blockedModel) end(a Answer) (tea.Model, tea.Cmd) {
	m.answer = a
	return m, tea.Quit
}

func (m *blockedModel) View() tea.View {
	return viewOf(renderBlocked(m.blocked, m.w, m.h, m.caps), false)
}
