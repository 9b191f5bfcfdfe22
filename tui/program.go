package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	// frameRate is that of the renderer, which wakes up for each frame even without a change: 10
	// frames a second cost 0.3 % of an idle core, 30 cost 0.8 %. A key press is answered within one
	// frame, which must take less than 100 ms.
	frameRate = 12
	// exitTimeout bounds the wait for a blocked terminal after the end of the context: the 4 KiB
	// that a kernel buffers for a serial line need 4 s at 9,600 baud.
	exitTimeout = 6 * time.Second
	// answerTimeout bounds the wait for the answers of a terminal that is left soon after the start: a
	// link by satellite needs more than a second.
	answerTimeout = 2 * time.Second
)

// errUnresponsive is returned by runProgram when the terminal takes no bytes.
var errUnresponsive = errors.New("the terminal takes no bytes")

// runProgram shows m until it quits or ctx ends, which is no error. A write to a blocked
// terminal, such as one behind a dead connection, can block without limit; after the end of ctx
// runProgram waits at most exitTimeout, so that the agent in the same process can stop.
func runProgram(ctx context.Context, m tea.Model, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := &stops{signals: make(chan os.Signal, 2)}
	a := &answers{until: time.Now().Add(answerTimeout)}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler(),
		tea.WithFPS(frameRate), tea.WithFilter(func(_ tea.Model, msg tea.Msg) tea.Msg {
			return stop.filter(a.filter(knownSize(msg)))
		}))
	a.send = p.Send
	signal.Notify(stop.signals, unix.SIGTSTP, unix.SIGCONT)
	defer signal.Stop(stop.signals)
	go stop.run(ctx, int(o.In.Fd()), p.Send)
	was, _ := term.GetState(int(o.In.Fd())) // nil: not a terminal
	end := make(chan error, 1)
	go func() {
		_, err := p.Run()
		end <- err
	}()
	var err error
	select {
	case err = <-end:
	case <-ctx.Done():
		select {
		case err = <-end:
		case <-time.After(exitTimeout):
			if was != nil {
				_ = term.Restore(int(o.In.Fd()), was)
			}
			return errUnresponsive
		}
	}
	if err != nil && !(errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil) {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

// knownSize replaces the size 0x0, which serial consoles report.
func knownSize(msg tea.Msg) tea.Msg {
	if size, ok := msg.(tea.WindowSizeMsg); ok && (size.Width < 1 || size.Height < 1) {
		return tea.WindowSizeMsg{Width: 80, Height: 24}
	}
	return msg
}

// answers holds the end of the program back until the terminal has answered what it was asked at
// the start: an answer that comes later would be typed into the shell.
type answers struct {
	send    func(tea.Msg)
	until   time.Time // a terminal that is silent until then answers nothing
	asked   bool
	whole   bool // the last answer has come
	leaving bool
}

// filter handles the messages of one goroutine. A terminal answers in order, and each one answers
// the last question.
func (a *answers) filter(msg tea.Msg) tea.Msg {
	switch msg.(type) {
	case tickMsg:
		a.ask()
	case uv.PrimaryDeviceAttributesEvent:
		if a.whole = true; a.leaving {
			return tea.QuitMsg{}
		}
		return nil
	case tea.QuitMsg:
		if wait := time.Until(a.until); !a.whole && wait > 0 {
			a.ask()
			if !a.leaving {
				time.AfterFunc(wait, func() { a.send(tea.QuitMsg{}) })
			}
			a.leaving = true
			return nil
		}
	}
	return msg
}

func (a *answers) ask() {
	if !a.asked {
		a.asked = true
		go a.send(tea.Raw(ansi.RequestPrimaryDeviceAttributes)())
	}
}

// stops makes a stop by a signal one by Ctrl-Z, which restores the terminal first, and repaints
// after one that no program can handle.
type stops struct {
	signals   chan os.Signal // SIGTSTP, SIGCONT
	suspended atomic.Bool    // the terminal is restored, or about to be
}

func (s *stops) filter(msg tea.Msg) tea.Msg {
	if _, is := msg.(tea.SuspendMsg); is {
		if sid, err := unix.Getsid(0); err == nil && sid == unix.Getpgrp() {
			return nil // there is no shell that would continue this group
		}
		s.suspended.Store(true)
	}
	return msg
}

func (s *stops) run(ctx context.Context, fd int, send func(tea.Msg)) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.signals:
			switch {
			case sig == unix.SIGTSTP && s.suspended.Load(): // of the framework: once handled, it does not stop
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			case sig == unix.SIGTSTP:
				send(tea.SuspendMsg{})
			case !s.suspended.Swap(false):
				_, _ = term.MakeRaw(fd) // the shell has changed it
				send(tea.ClearScreen())
			}
		}
	}
}
