package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	tea "charm.land/bubbletea/v2"
)

// Requests of a screen to the terminal. The framework has the same, for a renderer
// that wakes up sixty times a second whether something has changed or not; here a
// frame is sent when there is one.
type (
	copyMsg  string   // put this into the clipboard
	clearMsg struct{} // send all again
)

func clearScreen() tea.Msg { return clearMsg{} }

// stage stands between a screen and the terminal: it hands on what the framework
// says, and shows what the screen looks like after that.
type stage struct {
	tea.Model
	*terminal
	w, h  int
	whole bool // the next frame is to be sent whole
}

// perform shows a screen until it ends itself or ctx ends, which is no error. The
// terminal is as it was then, even after a panic.
func perform(ctx context.Context, m tea.Model, o Options, mouse bool) error {
	t := newTerminal(o, mouse)
	if err := t.take(); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	s := &stage{Model: m, terminal: t}
	s.w, s.h = t.size()
	go t.run()
	defer t.end()
	p := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler(), tea.WithWindowSize(s.w, s.h),
		tea.WithoutRenderer(), tea.WithFPS(1), // of which is left a ticker
		tea.WithFilter(func(_ tea.Model, msg tea.Msg) tea.Msg {
			if _, ok := msg.(tea.SuspendMsg); ok {
				t.give() // the framework stops the process now
			}
			return msg
		}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go t.watchSize(ctx, p)
	if _, err := p.Run(); err != nil && !(errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil) {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

// watchSize tells p each new size of the terminal until ctx ends.
func (t *terminal) watchSize(ctx context.Context, p *tea.Program) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-changed:
			w, h := t.size()
			p.Send(tea.WindowSizeMsg{Width: w, Height: h})
		case <-ctx.Done():
			return
		}
	}
}

// sober gives the terminal back before a panic says what it has to say.
func (s *stage) sober() {
	if r := recover(); r != nil {
		s.give()
		panic(r)
	}
}

func (s *stage) Init() tea.Cmd {
	defer s.sober()
	return s.guard(s.Model.Init())
}

func (s *stage) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	defer s.sober()
	switch msg := msg.(type) {
	case fellMsg:
		panic(string(msg))
	case tea.WindowSizeMsg:
		// A terminal may do as it likes with what is on it when its size changes.
		s.w, s.h, s.whole = msg.Width, msg.Height, true
	case tea.SuspendMsg: // and it goes on
		if err := s.take(); err != nil {
			return s, tea.Quit
		}
		s.whole = true
		w, h := s.size() // which may have changed meanwhile
		return s, func() tea.Msg { return tea.WindowSizeMsg{Width: w, Height: h} }
	case tea.ModeReportMsg:
		s.hear(msg.Mode, msg.Value)
	case copyMsg:
		return s, s.guard(func() tea.Msg { // beside the keys: the terminal may be slow
			s.copy(string(msg))
			return nil
		})
	case clearMsg:
		s.whole = true
		return s, nil
	}
	next, cmd := s.Model.Update(msg)
	s.Model = next
	return s, s.guard(cmd)
}

// fellMsg is the panic of a command, with its stack. Update has it again: of one
// beside it the framework may not have told before the program ends.
type fellMsg string

// guard is a command whose panic is one of Update.
func (s *stage) guard(cmd tea.Cmd) tea.Cmd {
	if cmd == nil {
		return nil
	}
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = fellMsg(fmt.Sprintf("%v\n\n%s", r, debug.Stack()))
			}
		}()
		msg = cmd()
		if all, ok := msg.(tea.BatchMsg); ok {
			for i := range all {
				all[i] = s.guard(all[i])
			}
		}
		return msg
	}
}

// View is called by the framework after each Update.
func (s *stage) View() tea.View {
	defer s.sober()
	v := s.Model.View()
	s.show(frame{v.Content, s.w, s.h, s.whole})
	s.whole = false
	return v
}
