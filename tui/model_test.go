package tui

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/screen"

	tea "charm.land/bubbletea/v2"
)

// TestRefresh: R ends the pause before the next request.
func TestRefresh(t *testing.T) {
	t.Parallel()
	m := newModel(t.Context(), new(noSource), Options{Env: func(string) string { return "" }})
	m.retry, m.state.Again = retryMax, noon
	ask := m.next(time.Hour)
	m.key("R", "R")
	if ask(); m.retry != retryMin || !m.state.Again.IsZero() {
		t.Errorf("it waits still: %s, %s", m.retry, m.state.Again)
	}
}

// TestEditWithoutAnEditor: the command is copied, and nothing is written.
func TestEditWithoutAnEditor(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	m := newModel(t.Context(), new(noSource), Options{Env: func(string) string { return "" }})
	line := "limpet edit repository a --state /x.db"
	if cmd := m.edit(screen.Outcome{Edit: new(snapshot.Edit), EditLine: line}); !strings.Contains(fmt.Sprint(cmd()), line) {
		t.Errorf("copied: %v", cmd())
	}
}

// panicking panics once its first frame is on the terminal.
type panicking struct{ drawn chan struct{} }

func (p panicking) Init() tea.Cmd {
	return func() tea.Msg {
		<-p.drawn
		return tea.KeyPressMsg{Code: 'x'}
	}
}

func (p panicking) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := msg.(tea.KeyPressMsg); ok {
		panic("a defect")
	}
	return p, nil
}

func (panicking) View() tea.View {
	v := tea.NewView("a frame")
	v.AltScreen = true
	return v
}

// TestPanicRestoresTheTerminal: after a panic the terminal has left the alternate screen and shows
// its cursor.
func TestPanicRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	in, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	terminal, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m := panicking{make(chan struct{})}
	var got bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for part := make([]byte, 4096); ; {
			n, err := terminal.Read(part)
			before := bytes.Contains(got.Bytes(), []byte("a frame"))
			if got.Write(part[:n]); !before && bytes.Contains(got.Bytes(), []byte("a frame")) {
				close(m.drawn)
			}
			if err != nil {
				return
			}
		}
	}()
	err = runProgram(t.Context(), m, Options{In: in, Out: out, Env: func(string) string { return "TERM=xterm" }})
	out.Close()
	<-read
	last := func(sequence string) int { return bytes.LastIndex(got.Bytes(), []byte("\x1b[?"+sequence)) }
	if !errors.Is(err, tea.ErrProgramPanic) || last("1049h") < 0 || last("1049l") < last("1049h") || last("25h") < last("25l") {
		t.Errorf("%v: %q", err, got.Bytes())
	}
}

// TestModelQuitsAndReportsErrors: the model quits with the snapshot that shows no running job,
// and reports failures of actions and of the source as issues.
func TestModelQuitsAndReportsErrors(t *testing.T) {
	t.Parallel()
	s := shown(working())
	s.Source = screen.Standalone
	m := newModel(t.Context(), new(noSource), Options{Env: func(string) string { return "" }})
	m.state = press(s, "q", "f")
	idle := working()
	idle.Agent.Draining, idle.Agent.Claims, idle.Agent.Busy = noon, 0, 1
	if m.update(snapshotMsg{idle}); m.state.Ended() {
		t.Fatal("it does not go on while a job runs")
	}
	idle.Agent.Busy = 0
	if cmd := m.update(snapshotMsg{idle}); cmd == nil || cmd() != tea.Quit() {
		t.Error("nothing runs: it must end")
	}
	m.state = s
	m.update(sourceErrorMsg{errors.New("no daemon")})
	m.update(actedMsg{errors.New("not \x1b[31mallowed")})
	if m.state.Gone != "no daemon" {
		t.Errorf("gone %q", m.state.Gone)
	}
	if frame := screen.Render(&m.state, 120, 24); !strings.Contains(frame, "e errors 2") ||
		!strings.Contains(frame, "not [31mallowed") {
		t.Errorf("the failures are not on the screen:\n%s", frame)
	}
}

// TestRestDrawsOnceASecond: a snapshot that changes only figures of the process waits for the next
// tick with its frame.
func TestRestDrawsOnceASecond(t *testing.T) {
	t.Parallel()
	m := newModel(t.Context(), new(noSource), Options{Env: func(string) string { return "" }})
	m.state.W, m.state.H = 80, 24
	m.Update(snapshotMsg{working()})
	later, changed := working(), working()
	later.Seq, later.At, later.Agent.RSS, later.Agent.CPU = 7, noon.Add(time.Second), 1<<20, 1.5
	changed.Agent.Claims = 2
	for _, step := range []struct {
		msg   tea.Msg
		drawn bool
	}{{snapshotMsg{later}, true}, {tickMsg(noon), false}, {snapshotMsg{changed}, false}, {tea.KeyPressMsg{Code: 'j', Text: "j"}, false},
		{sourceErrorMsg{errors.New("gone")}, false}, {snapshotMsg{changed}, false}, {snapshotMsg{changed}, true}} {
		m.View()
		if m.Update(step.msg); m.drawn != step.drawn {
			t.Errorf("%T: the frame is kept: %v", step.msg, m.drawn)
		}
	}
}

// TestModelSchedulesRetry: the banner counts down to the time of the retry.
func TestModelSchedulesRetry(t *testing.T) {
	t.Parallel()
	m := &model{src: new(noSource), state: shown(working()), retry: 2 * time.Second}
	before := time.Now()
	m.update(sourceErrorMsg{errors.New("no daemon")})
	if left := m.state.Again.Sub(before); left < 2*time.Second || left > 3*time.Second {
		t.Errorf("next try after %s, want 2s", left)
	}
}
