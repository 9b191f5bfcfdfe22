package tui

import (
	"context"
	"errors"
	"fmt"
	"time"

	"limpet/tui/widget"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"
)

const (
	// localFPS and remoteFPS are the frame rates of the renderer, which wakes up for each frame
	// even without a change: 10 frames a second cost 0.3 % of an idle core, 30 cost 0.8 %. A key
	// press is answered within one frame, which must take less than 100 ms.
	localFPS  = 15
	remoteFPS = 12
	// exitTimeout bounds the wait for a blocked terminal after the end of the context: the 4 KiB
	// that a kernel buffers for a serial line need 4 s at 9,600 baud.
	exitTimeout = 6 * time.Second
)

// errUnresponsive is returned by runProgram when the terminal takes no bytes.
var errUnresponsive = errors.New("the terminal takes no bytes")

// remote reports whether the terminal is at the other end of an SSH connection.
func remote(env func(string) string) bool {
	return env("SSH_TTY") != "" || env("SSH_CONNECTION") != ""
}

// runProgram shows m until it quits or ctx ends, which is no error. A write to a blocked
// terminal, such as one behind a dead connection, can block without limit; after the end of ctx
// runProgram waits at most exitTimeout, so that the agent in the same process can stop.
func runProgram(ctx context.Context, m tea.Model, o Options) error {
	fps := localFPS
	if remote(o.Env) {
		fps = remoteFPS
	}
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler(), tea.WithFPS(fps), tea.WithFilter(knownSize),
	}
	was, _ := term.GetState(int(o.In.Fd())) // nil: not a terminal
	end := make(chan error, 1)
	go func() {
		_, err := tea.NewProgram(m, options...).Run()
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
func knownSize(_ tea.Model, msg tea.Msg) tea.Msg {
	if size, ok := msg.(tea.WindowSizeMsg); ok && (size.Width < 1 || size.Height < 1) {
		return tea.WindowSizeMsg{Width: 80, Height: 24}
	}
	return msg
}

// Ink returns a function that colours text by state in the tables of commands, or nil without colours. It leaves text
// alone when the state has no colour. The result ends with a reset, so that no line depends on another.
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
