package tui

import (
	"bytes"

	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// brush turns frames into the bytes that make a terminal show them: those of the
// cells that differ from the frame before, and of all where that is not known. It
// does no I/O, and what it returns depends on the calls before and nothing else.
type brush struct {
	term string // TERM

	out   bytes.Buffer
	to    *uv.TerminalRenderer // knows what is on the terminal
	cells uv.ScreenBuffer

	w, h   int
	shown  string // the frame that is on the terminal
	whole  bool   // what is on the terminal is not known
	synced bool   // the terminal shows what is between two marks at once
	words  bool   // it counts the cells of whole graphemes
}

func newBrush(term string) *brush {
	b := &brush{term: term}
	b.forget()
	return b
}

// forget says that the terminal may show anything: the next frame is sent whole.
func (b *brush) forget() {
	b.out.Reset()
	b.to = uv.NewTerminalRenderer(&b.out, []string{"TERM=" + b.term})
	b.to.SetColorProfile(colorprofile.ANSI) // which are all that the themes use; without colours is a theme too
	b.to.SetFullscreen(true)
	b.to.SetRelativeCursor(false)
	b.to.SetScrollOptim(true)
	b.to.SetBackspace(true)
	b.to.SetTabStops(b.w)
	b.to.Erase()
	b.whole = true
}

// paint returns what has to be sent so that a terminal of w by h cells shows a
// frame, nil when it does already. The slice is good until the next call.
func (b *brush) paint(frame string, w, h int) []byte {
	if w < 1 || h < 1 || !b.whole && frame == b.shown && w == b.w && h == b.h {
		return nil
	}
	if w != b.w || h != b.h {
		b.w, b.h = w, h
		b.cells = uv.NewScreenBuffer(w, h)
		b.forget()
	}
	b.cells.Method = ansi.WcWidth
	if b.words {
		b.cells.Method = ansi.GraphemeWidth
	}
	b.cells.Clear()
	uv.NewStyledString(frame).Draw(b.cells, b.cells.Bounds())

	b.out.Reset()
	if b.synced {
		b.out.WriteString(ansi.SetModeSynchronizedOutput)
	}
	empty := b.out.Len()
	b.to.Render(b.cells.RenderBuffer)
	_ = b.to.Flush() // into memory
	// Its pen is at rest now, but it takes the last link for open still.
	x, y := b.to.Position()
	b.to.RestoreCursor()
	b.to.SetPosition(x, y)
	b.shown, b.whole = frame, false
	if b.out.Len() == empty {
		return nil
	}
	if b.synced {
		b.out.WriteString(ansi.ResetModeSynchronizedOutput)
	}
	return b.out.Bytes()
}
