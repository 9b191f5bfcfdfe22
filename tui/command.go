package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"limpet/tui/screen"
)

// process is a command line that runs beside the dashboard, in a process of its own: it may use up
// memory and crash without harm to the agent in this process.
type process struct {
	stop context.CancelFunc
	in   io.WriteCloser
	out  chan []byte   // what it prints; closed at its end
	gap  time.Duration // between two parts on the screen
	torn []byte        // of next: the first bytes of a rune whose others have not come yet
	err  error         // how it has ended; set before out is closed
}

// outputMsg is what a process has printed since the last one; ended is set after the last.
type outputMsg struct {
	from  *process
	text  string
	ended bool
}

// start starts a program. It is interrupted when ctx ends, and killed when it does not end then.
func start(ctx context.Context, program func(context.Context, ...string) *exec.Cmd, words []string, gap time.Duration) *process {
	ctx, stop := context.WithCancel(ctx)
	c := interruptible(program(ctx, words...))
	p := &process{stop: stop, out: make(chan []byte, 64), gap: gap}
	c.Stdout, c.Stderr = p, p // one writer: the order of both is kept
	p.in, p.err = c.StdinPipe()
	go func() {
		defer close(p.out)
		defer stop()
		if p.err == nil {
			p.err = c.Run()
		}
	}()
	return p
}

// Write passes output on. It blocks while the screen has not taken what was printed before.
func (p *process) Write(text []byte) (int, error) {
	p.out <- bytes.Clone(text)
	return len(text), nil
}

// next waits for output, and a moment for more of it.
func (p *process) next() tea.Msg {
	text, more := <-p.out
	text = append(p.torn, text...)
	for wait := time.After(p.gap); more && len(text) < 1<<20; {
		select {
		case part, open := <-p.out:
			text, more = append(text, part...), open
		case <-wait:
			return p.whole(text, true)
		}
	}
	return p.whole(text, more)
}

// whole is the message of what has come, without the first bytes of a rune whose others may follow.
func (p *process) whole(output []byte, more bool) outputMsg {
	end := len(output)
	for at := end - 1; more && at >= max(end-utf8.UTFMax, 0); at-- {
		if utf8.RuneStart(output[at]) {
			if !utf8.FullRune(output[at:]) {
				end = at
			}
			break
		}
	}
	p.torn = output[end:]
	return outputMsg{p, string(output[:end]), !more}
}

// end stops the process and waits for its end.
func (p *process) end() {
	p.stop()
	for range p.out {
	}
}

// how returns how the process has ended; "" = well. What went wrong is in its output.
func (p *process) how() string {
	switch exit, ok := errors.AsType[*exec.ExitError](p.err); {
	case p.err == nil:
		return ""
	case ok && exit.Exited():
		return fmt.Sprintf("exit code %d", exit.ExitCode())
	}
	return p.err.Error()
}

// command starts, answers or stops a command line, as a key press wants it.
func (m *model) command(out screen.Outcome) tea.Cmd {
	if out.Stop && m.process != nil {
		m.process.stop()
	}
	if out.Type != "" && m.process != nil {
		_, _ = io.WriteString(m.process.in, out.Type) // a command that has ended takes no answer
	}
	if out.Run == nil || m.call == nil {
		return nil
	}
	if m.process != nil {
		m.process.end()
	}
	m.process = start(m.ctx, m.call, out.Run, m.gap)
	return m.process.next
}

// printed shows output, and waits for the next.
func (m *model) printed(msg outputMsg) tea.Cmd {
	if msg.from != m.process { // another command has been started since
		return nil
	}
	m.state = m.state.Output(msg.text)
	if !msg.ended {
		return m.process.next
	}
	m.state, m.process = m.state.CommandEnded(m.process.how()), nil
	return nil
}
