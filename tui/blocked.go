package tui

import (
	"context"
	"errors"
	"fmt"
	"time"

	"limpet/sync/text"
	"limpet/tui/screen"
	"limpet/tui/widget"

	tea "charm.land/bubbletea/v2"
)

// Holder is what is known of the process that has the state file open. All but
// Path may be zero; it is a hint that the process left, the lock is what counts.
type Holder struct {
	Path    string
	PID     int
	Version string
	Since   time.Time
	Socket  string // where it was to answer; "" = nowhere
}

// Look is what somebody found who tried the door again.
type Look struct {
	Answers bool    // the holder, or another daemon, answers on the socket
	Free    bool    // nobody has the file open
	Holder  *Holder // who has it now, if that is known
}

// Answer is how the blocked screen ended.
type Answer uint8

// Answers of the blocked screen.
const (
	Leave  Answer = iota // the person goes
	Enter                // the way is free, or the holder answers
	Copied               // there is a copy to be shown
)

// Door is what the blocked screen asks for. Both functions run beside the screen.
type Door struct {
	Holder Holder
	Works  bool // who gets in works on the file; else only looks at it
	// Look tries the door.
	Look func(ctx context.Context) Look
	// Copy has the holder write a copy of the file. nil = there is no such way.
	Copy func(ctx context.Context) error
}

// lookEvery is the time between two looks at a door that is shut.
const lookEvery = time.Second

// RunBlocked says who holds the state file and waits for what the person decides:
// to wait, to look at a copy, or to go. A holder that answers after all ends it at
// once. Ctx ends it as the person does.
func RunBlocked(ctx context.Context, d Door, o Options) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &blockedModel{ctx: ctx, door: d, blocked: blocked{holder: d.Holder.clean(), works: d.Works, canCopy: d.Copy != nil, now: time.Now()}, caps: capsOf(o)}
	switch err := runProgram(ctx, m, o); {
	case errors.Is(err, errUnresponsive):
		return Leave, nil
	case err != nil:
		return Leave, err
	}
	return m.answer, nil
}

// clean is the border for the texts of the note, which any process may have left.
func (h Holder) clean() Holder {
	h.Version, h.Path, h.Socket = text.Clean(h.Version), text.Clean(h.Path), text.Clean(h.Socket)
	return h
}

// blocked is all that the screen is made of.
type blocked struct {
	holder  Holder
	works   bool
	canCopy bool
	now     time.Time
	waiting time.Time // since when the person waits; zero = it does not
	looks   int       // since then
	free    bool      // nobody holds the file, but the person has not said to wait
	copying bool
	failed  string // why there is no copy
}

// press is what a key does: the next state, whether it asks for a copy, and
// whether it ends the screen.
func (b blocked) press(key string) (next blocked, copies bool, answer Answer, ends bool) {
	switch key {
	case "q", "ctrl+c", "esc":
		return b, false, Leave, true
	case "w":
		if b.free {
			return b, false, Enter, true
		}
		if b.waiting.IsZero() {
			b.waiting, b.looks = b.now, 0
		}
	case "o":
		if b.canCopy && !b.copying {
			b.copying, b.failed = true, ""
			return b, true, Leave, false
		}
	}
	return b, false, Leave, false
}

// looked takes what a look at the door has brought.
func (b blocked) looked(l Look, now time.Time) (next blocked, enter bool) {
	b.now, b.free = now, l.Free
	b.looks++
	if l.Holder != nil {
		b.holder = l.Holder.clean()
	}
	return b, l.Answers || l.Free && !b.waiting.IsZero()
}

// lines are the words of the screen.
func (b blocked) lines() []widget.TextLine {
	who := "another process"
	if b.holder.PID > 0 {
		who = fmt.Sprintf("process %d", b.holder.PID)
	}
	var about string
	if b.holder.Version != "" {
		about = "limpet " + b.holder.Version
	}
	if !b.holder.Since.IsZero() {
		about = withComma(about, fmt.Sprintf("since %s, %s", widget.ClockTime(b.holder.Since, b.now), widget.Ago(b.now, b.holder.Since)))
	}
	if about != "" {
		about = " (" + about + ")"
	}
	why := "It offers no socket, so nothing can be asked of it: it is a command, or an API without an agent."
	if b.holder.Socket != "" {
		why = "It has a socket, but does not answer there. It is shown as soon as it does."
	}
	if b.free {
		then := "w opens it to look at what is there."
		if b.works {
			then = "w opens it: this limpet then claims jobs."
		}
		return []widget.TextLine{widget.Styled(widget.RoleTitle, "The state file is free now."), widget.Styled(widget.RolePlain, b.holder.Path), {}, widget.Styled(widget.RolePlain, then)}
	}
	out := []widget.TextLine{
		widget.Styled(widget.RoleTitle, "The state file is in use by "+who+about+"."), widget.Styled(widget.RolePlain, b.holder.Path), {},
		widget.Styled(widget.RolePlain, why), {},
	}
	switch {
	case b.copying:
		out = append(out, widget.Styled(widget.RoleWork, "Asking "+who+" for a copy to look at."))
	case b.failed != "":
		out = append(out, widget.Styled(widget.RoleBad, "No copy: "+b.failed))
	}
	if !b.waiting.IsZero() {
		out = append(out, widget.Styled(widget.RoleWork, fmt.Sprintf("Waiting for it since %s, tried %s.", widget.ClockTime(b.waiting, b.now), widget.TimesText(b.looks))))
	}
	return out
}

func withComma(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// hints are the keys; a copy that nobody can give is not among them.
func (b blocked) hints() [][2]string {
	out := [][2]string{{"w", "wait until it is free"}}
	if b.free {
		out[0][1] = "open it"
	}
	if b.canCopy && !b.free {
		out = append(out, [2]string{"o", "open a copy, read-only"})
	}
	return append(out, [2]string{"q", "quit"})
}

// renderBlocked is Render for the screen without a snapshot.
func renderBlocked(b blocked, w, h int, caps widget.Caps) string {
	if w < 1 || h < 1 {
		return ""
	}
	p := widget.NewPainter(w, h, caps)
	margin, top, bottom := 0, 0, h
	if w >= screen.MinWidth && h >= screen.MinHeight {
		p.Put(3, 0, w-3, widget.RoleTitle, "limpet")
		p.Right(10, w-1, 0, widget.RoleDim, b.now.UTC().Format("15:04:05Z"))
		p.Box(p.G, 0, 1, w, h-2, "Blocked", "", "", true)
		margin, top, bottom = 2, 2, h-2
	}
	y := top
	for _, l := range b.lines() {
		for _, part := range widget.Wrap(l.Text, w-2*margin) {
			if y < bottom {
				p.Put(margin, y, w-2*margin, l.Role, part)
			}
			y++
		}
	}
	x := 1
	for _, hint := range b.hints() {
		x = p.Put(x, h-1, w-x, widget.RoleKey, hint[0])
		x = p.Put(x+1, h-1, w-x-1, widget.RoleDim, hint[1]) + 2
	}
	return p.Canvas.Frame(caps.Look())
}

// blockedModel is the adapter to Bubble Tea.
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
		if m.blocked, enter = m.blocked.looked(msg.look, time.Now()); enter {
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
		m.blocked = next
		switch {
		case ends:
			return m.end(answer)
		case copies:
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
