// Package tui is the dashboard. It runs the pure screens of tui/screen in a Bubble Tea program.
package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/screen"
	"limpet/tui/widget"
)

// Options configure the dashboard and its terminal.
type Options struct {
	In, Out *os.File
	Color   string // auto, always, never
	Theme   string // one of Themes; "" = the first
	Mouse   bool   // enable clicks and the wheel; selecting text then needs Shift
	Frames  int    // most frames a second; 0 = 10, over SSH 4
	Env     func(string) string
	// SetUp makes Enter on the first screen of a fresh limpet open the setup.
	SetUp bool
	// ReadOnly disables every request but snapshots.
	ReadOnly bool
	// Commands are those of the command line. Call makes the process of a call with the settings of
	// this one.
	Commands func() []screen.Entry
	// Contexts are the sites that the dashboard can change to.
	Contexts []screen.Entry
	Call     func(ctx context.Context, words ...string) *exec.Cmd
	// Invocation adds the flags of this call to the command lines that are shown and copied.
	Invocation interface{ Complete(line string) string }
}

func capsOf(o Options) widget.Caps {
	term := o.Env("TERM")
	return widget.Caps{
		ASCII: !text.UTF8(o.Env) || term == "linux",
		Theme: max(slices.Index(widget.Themes, o.Theme), 0),
		Mono:  o.Color == "never" || o.Color != "always" && (o.Env("NO_COLOR") != "" || term == "dumb"),
	}
}

const (
	// actTimeout bounds one action of the user.
	actTimeout = 10 * time.Second
	// retryMin and retryMax bound the pauses while the source is unavailable.
	retryMin = 250 * time.Millisecond
	retryMax = 5 * time.Second
	// remoteGap is the pause between snapshots over SSH, localGap elsewhere.
	remoteGap = 250 * time.Millisecond
	localGap  = 100 * time.Millisecond
)

// Run shows the dashboard until the user quits or ctx ends. It restores the terminal and prints
// one line of summary, unless the terminal is blocked for some seconds after the end of ctx. It
// returns ErrSetUp when the user chooses the setup.
func Run(ctx context.Context, src screen.Source, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(ctx, src, o)
	err := runProgram(ctx, m, o)
	if errors.Is(err, errUnresponsive) {
		return nil
	}
	if m.process != nil {
		m.process.end()
	}
	switch {
	case err != nil:
		return err
	case m.setUp:
		return ErrSetUp
	case m.site != "":
		return &SwitchError{m.site}
	}
	s := m.state.Snap
	fmt.Fprintf(o.Out, "limpet: %d working, %d pending, %d waiting to retry, repositories: %d\n", s.Counts.Working, s.Counts.Pending,
		s.Counts.Resting, len(s.Repos))
	return nil
}

// SwitchError is returned by Run when the user chooses another context.
type SwitchError struct{ Context string }

func (e *SwitchError) Error() string { return "changes to the context " + e.Context }

type model struct {
	ctx   context.Context // the context of Run; the framework offers no parameter for it
	src   screen.Source
	env   func(string) string
	gap   time.Duration // between snapshots
	retry time.Duration // the next pause while the source is unavailable
	hurry chan struct{} // ends the pause before the next request
	state screen.State
	mouse bool
	setUp bool   // the user has chosen the setup
	site  string // the context that the user has chosen; "" = none
	// call is that of the options; process is the running command line, nil for none.
	call    func(context.Context, ...string) *exec.Cmd
	process *process
	// stop cancels the running lookup, so that only the last state of a filter that is being typed is
	// looked up.
	stop  context.CancelFunc
	began time.Time
	// frame is the last one; drawn says that it is up to date but for times and figures of the
	// process, which the next tick draws.
	frame tea.View
	drawn bool
}

func newModel(ctx context.Context, src screen.Source, o Options) *model {
	m := &model{ctx: ctx, src: src, env: o.Env, mouse: o.Mouse, gap: localGap, retry: retryMin, hurry: make(chan struct{}, 1), stop: func() {},
		state: screen.NewState(src.Name(), capsOf(o), time.Now())}
	m.state.ReadOnly, m.state.SetUp = o.ReadOnly, o.SetUp
	m.state.Invocation, m.state.Commands, m.state.Contexts = o.Invocation, o.Commands, o.Contexts
	m.call = o.Call
	if o.Env("SSH_TTY") != "" || o.Env("SSH_CONNECTION") != "" {
		m.gap = remoteGap
	}
	if o.Frames > 0 {
		m.gap = time.Second / time.Duration(o.Frames)
	}
	return m
}

type (
	snapshotMsg    struct{ snap *snapshot.Snapshot }
	sourceErrorMsg struct{ err error }
	tickMsg        time.Time
	actedMsg       struct{ err error }
	lookupMsg      struct {
		take func(screen.State) screen.State
	}
)

func (m *model) Init() tea.Cmd {
	m.began = time.Now()
	return tea.Batch(m.next(0), m.tick())
}

// tick waits for the end of the present second since the start, which the ticker of the framework
// shares: one wake-up.
func (m *model) tick() tea.Cmd {
	return tea.Tick(time.Second-time.Since(m.began)%time.Second, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// next waits for one snapshot after a pause. Each result starts the next one, so at most one
// request is in flight.
func (m *model) next(pause time.Duration) tea.Cmd {
	return func() tea.Msg {
		select {
		case <-time.After(pause):
		case <-m.hurry:
		case <-m.ctx.Done():
		}
		snap, err := m.src.Next(m.ctx)
		if err != nil {
			return sourceErrorMsg{err}
		}
		return snapshotMsg{snap}
	}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	snap, is := msg.(snapshotMsg)
	m.drawn = m.drawn && is && m.state.Quiet(snap.snap)
	cmd := m.update(msg)
	return m, tea.Batch(cmd, m.lookup())
}

func (m *model) lookup() tea.Cmd {
	state, look := m.state.Fetch()
	m.state = state
	if look == nil {
		return nil
	}
	m.stop()
	ctx, cancel := context.WithTimeout(m.ctx, screen.LookupTimeout)
	m.stop = cancel
	return func() tea.Msg {
		defer cancel()
		return lookupMsg{look(ctx, m.src)}
	}
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.state.W, m.state.H = msg.Width, msg.Height
	case snapshotMsg:
		m.state = m.state.Show(msg.snap)
		m.state.Now, m.state.Source, m.state.Note = time.Now(), m.src.Name(), text.Clean(m.src.Note())
		m.retry = retryMin
		if m.state.Ended() {
			return tea.Quit
		}
		return m.next(m.gap)
	case sourceErrorMsg:
		wait := m.retry
		m.state = m.state.Lose(msg.err.Error())
		m.state.Again, m.retry = time.Now().Add(wait), min(wait*2, retryMax)
		return m.next(wait)
	case tickMsg:
		m.state.Now = time.Time(msg)
		return m.tick()
	case actedMsg:
		if msg.err != nil {
			m.state = m.state.Fail(msg.err.Error())
		}
	case editMsg:
		return m.openEditor(msg)
	case editedMsg:
		if msg.err != nil {
			m.state = m.state.Fail("the editor failed: " + msg.err.Error())
		} else {
			m.state = m.state.Edited(msg.edit)
		}
	case lookupMsg:
		m.state = msg.take(m.state)
	case outputMsg:
		return m.printed(msg)
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+z" {
			return tea.Suspend
		}
		return m.key(msg.String(), msg.Text)
	case tea.PasteMsg:
		m.state = m.state.Paste(msg.Content)
	case tea.MouseClickMsg:
		if msg.Button == tea.MouseLeft {
			m.state = m.state.Click(msg.X, msg.Y)
		}
	case tea.MouseWheelMsg:
		if name, ok := map[tea.MouseButton]string{tea.MouseWheelUp: "up", tea.MouseWheelDown: "down"}[msg.Button]; ok {
			return m.key(name, "")
		}
	}
	return nil
}

func (m *model) key(name, typed string) tea.Cmd {
	var out screen.Outcome
	m.state.Now = time.Now()
	m.state, out = m.state.Key(name, typed)
	cmds := []tea.Cmd{m.command(out)}
	m.site = out.Context
	if m.setUp = out.SetUp; out.SetUp || out.Quit || out.Context != "" {
		cmds = append(cmds, tea.Quit)
	}
	if len(out.Actions) > 0 {
		cmds = append(cmds, func() tea.Msg { return actedMsg{sendAll(m.ctx, m.src, out.Actions)} })
	}
	if out.Edit != nil {
		cmds = append(cmds, m.edit(out))
	}
	if out.Refresh {
		m.retry, m.state.Again = retryMin, time.Time{}
		select {
		case m.hurry <- struct{}{}:
		default:
		}
		cmds = append(cmds, tea.ClearScreen)
	}
	if out.Copy != "" {
		cmds = append(cmds, tea.SetClipboard(out.Copy))
	}
	return tea.Batch(cmds...)
}

// sendAll sends each action once. A failure does not stop the others.
func sendAll(ctx context.Context, src screen.Source, acts []screen.Action) error {
	var failed []error
	for _, act := range acts {
		ctx, cancel := context.WithTimeout(ctx, actTimeout)
		failed = append(failed, src.Act(ctx, act))
		cancel()
	}
	return errors.Join(failed...)
}

func (m *model) View() tea.View {
	if m.drawn {
		return m.frame
	}
	v := tea.NewView(screen.Render(&m.state, m.state.W, m.state.H))
	v.AltScreen, v.WindowTitle = true, "limpet"
	if m.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	m.frame, m.drawn = v, true
	return v
}

// Ink returns a function that colours text by state in the tables of commands, or nil without
// colours. It leaves text alone when the state has no colour. The result ends with a reset, so that
// no line depends on another.
func Ink(o Options) func(state, text string) string {
	c := capsOf(o)
	if c.Mono || widget.Themes[c.Theme] == "mono" {
		return nil
	}
	look := c.Look()
	return func(state, text string) string {
		if sgr := look[widget.StateRole(state)]; sgr != "" && text != "" {
			return "\x1b[" + sgr + "m" + text + "\x1b[0m"
		}
		return text
	}
}
