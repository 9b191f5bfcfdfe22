package tui

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// frameGap is the shortest time between two frames. The first after a pause is sent
// at once. Pictures come ten times a second at most: what is held up by it is the
// answer to a key that comes close behind another, and that has 16 ms.
const frameGap = time.Second / 120

// terminal is the screen of a person, taken from the shell for a while. Frames are
// handed over with show and sent beside the caller: on a line that is slow, those
// that a newer one has followed are never sent.
type terminal struct {
	in, out *os.File
	spill   *spill
	mouse   bool
	asks    bool // what the terminal can do is asked for when it is taken first

	next  chan frame    // holds one: the newest
	heard chan ability  // what the terminal says of itself
	stop  chan struct{} // closed by end
	done  chan struct{} // closed when nothing is sent any more

	wanted atomic.Int32 // how often it is being given back

	mu    sync.Mutex // guards what follows, and what is sent
	brush *brush
	was   *term.State // of the input; nil = it is no terminal
	held  bool        // it is taken
}

// frame is what a terminal of w by h cells is to show.
type frame struct {
	text  string
	w, h  int
	whole bool // whatever is on the terminal
}

func newTerminal(o Options, mouse bool) *terminal {
	return &terminal{in: o.In, out: o.Out, spill: o.spill, mouse: mouse, asks: mayAsk(o.Env), brush: newBrush(o.Env("TERM")),
		next: make(chan frame, 1), heard: make(chan ability, 4), stop: make(chan struct{}), done: make(chan struct{})}
}

// mayAsk says whether a terminal is asked what it can do. Over SSH an answer may
// come when nobody waits for it any more, and some terminals print the question.
func mayAsk(env func(string) string) bool {
	for _, name := range []string{"ghostty", "wezterm", "alacritty", "kitty", "rio"} {
		if strings.Contains(env("TERM"), name) {
			return true
		}
	}
	return env("SSH_TTY") == "" && !strings.Contains(env("TERM_PROGRAM"), "Apple")
}

// take takes the terminal from the shell, and again after give.
func (t *terminal) take() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		return nil
	}
	if term.IsTerminal(int(t.in.Fd())) {
		was, err := term.MakeRaw(int(t.in.Fd()))
		if err != nil {
			return fmt.Errorf("raw mode: %w", err)
		}
		t.was = was
	}
	t.held = true
	t.spill.resume()
	t.brush.forget()
	var b strings.Builder
	if t.asks {
		b.WriteString(ansi.RequestModeSynchronizedOutput + ansi.RequestModeUnicodeCore)
		t.asks = false
	}
	// The keyboard has a state for each of the two screens.
	b.WriteString(ansi.ResetModifyOtherKeys + ansi.SetModeAltScreenSaveCursor + ansi.ResetModeTextCursorEnable + ansi.SetTabEvery8Columns + ansi.SetModeBracketedPaste)
	if t.mouse {
		b.WriteString(ansi.SetModeMouseButtonEvent + ansi.SetModeMouseExtSgr)
	}
	if t.brush.words {
		b.WriteString(ansi.SetModeUnicodeCore)
	}
	b.WriteString(ansi.SetWindowTitle("limpet") + ansi.SetModifyOtherKeys2 + ansi.PushKittyKeyboard(1))
	t.send(b.String())
	return nil
}

// give gives the terminal back to the shell as it was. It may be called more than
// once, and at any time.
func (t *terminal) give() {
	t.wanted.Add(1)
	defer t.wanted.Add(-1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		return
	}
	t.held = false
	var b strings.Builder
	b.WriteString(ansi.ResetStyle + ansi.ResetModifyOtherKeys + ansi.PopKittyKeyboard(1))
	// Where there is no other screen, what comes next is below the frame.
	b.WriteString(ansi.CursorPosition(1, max(t.brush.h, 1)) + ansi.ResetModeAltScreenSaveCursor + ansi.SetModeTextCursorEnable + ansi.ResetModeBracketedPaste)
	if t.mouse {
		b.WriteString(ansi.ResetModeMouseButtonEvent + ansi.ResetModeMouseAnyEvent + ansi.ResetModeMouseExtSgr)
	}
	if t.brush.words {
		b.WriteString(ansi.ResetModeUnicodeCore)
	}
	b.WriteString(ansi.SetWindowTitle(""))
	t.spill.keep(func() { t.send(b.String()) })
	if t.was != nil {
		_ = term.Restore(int(t.in.Fd()), t.was)
		t.was = nil
	}
}

// send writes to the terminal. One that is gone ends the program by SIGHUP.
func (t *terminal) send(text string) { _, _ = t.out.WriteString(text) }

// size is that of the terminal, in cells. Serial consoles have none that is known.
func (t *terminal) size() (w, h int) {
	w, h, err := term.GetSize(int(t.out.Fd()))
	if err != nil || w < 1 || h < 1 {
		return 80, 24
	}
	return w, h
}

// copyPiece is how much of a copy is sent before it is seen whether the terminal is
// wanted back: a second's worth at 9,600 baud.
const copyPiece = 1 << 10

// copy puts text into the clipboard of the terminal, where that is allowed. It blocks
// while the terminal takes it, and cuts it short when the terminal is given back.
func (t *terminal) copy(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		return
	}
	for rest := ansi.SetSystemClipboard(text); rest != ""; {
		if t.wanted.Load() > 0 {
			t.send(string(rune(ansi.CAN))) // forgets what was begun
			return
		}
		piece := rest[:min(copyPiece, len(rest))]
		t.send(piece)
		rest = rest[len(piece):]
	}
}

// ability is the answer to a question what the terminal can do.
type ability struct {
	mode ansi.Mode
	is   ansi.ModeSetting
}

// hear hands on what the terminal says that it can do. It does not block, so that a
// frame which is being sent holds up no key; of answers that nobody asked for some are
// lost.
func (t *terminal) hear(mode ansi.Mode, is ansi.ModeSetting) {
	select {
	case t.heard <- ability{mode, is}:
	default:
	}
}

// can notes what the terminal says that it can do.
func (t *terminal) can(mode ansi.Mode, is ansi.ModeSetting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case mode == ansi.ModeSynchronizedOutput && is == ansi.ModeReset:
		t.brush.synced = true
	case mode == ansi.ModeUnicodeCore && t.held && (is == ansi.ModeReset || is == ansi.ModeSet || is == ansi.ModePermanentlySet):
		t.brush.words = true
		t.send(ansi.SetModeUnicodeCore)
	}
}

// show has the terminal show a frame, and not the one before if that was not sent
// yet. It does not block; one goroutine calls it.
func (t *terminal) show(f frame) {
	select {
	case before := <-t.next:
		f.whole = f.whole || before.whole
	default:
	}
	t.next <- f
}

// run sends frames until end. The caller's goroutine is its own.
func (t *terminal) run() {
	defer close(t.done)
	var sent time.Time
	for {
		select {
		case f := <-t.next:
			if rest := frameGap - time.Since(sent); rest > 0 {
				f = t.newest(f, rest)
			}
			t.paint(f)
			sent = time.Now()
		case h := <-t.heard:
			t.can(h.mode, h.is)
		case <-t.stop:
			return
		}
	}
}

// newest waits and returns the last frame that came by then.
func (t *terminal) newest(f frame, wait time.Duration) frame {
	over := time.After(wait)
	for {
		select {
		case next := <-t.next:
			next.whole = next.whole || f.whole
			f = next
		case <-over:
			return f
		}
	}
}

func (t *terminal) paint(f frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		return
	}
	if f.whole {
		t.brush.forget()
	}
	if p := t.brush.paint(f.text, f.w, f.h); p != nil {
		_, _ = t.out.Write(p)
	}
}

// end sends no more frames and gives the terminal back.
func (t *terminal) end() {
	t.wanted.Add(1)
	close(t.stop)
	<-t.done
	t.give()
}
