package tui

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/hinshun/vt10x"
)

// glass is a terminal of the test. The emulator behind it knows no letters but those
// of one cell, so what is wide, or more than one rune, is made two or one of its own.
type glass struct {
	vt10x.Terminal
	w, h  int
	stand map[string]rune // in for a grapheme; they are the same for all glasses of a test
	leads bool            // what is sent now is a link
}

func newGlass(w, h int, stand map[string]rune) *glass {
	return &glass{Terminal: vt10x.New(vt10x.WithSize(w, h)), w: w, h: h, stand: stand}
}

// send draws bytes, of which what is no letter stays as it is. The emulator knows no
// links; what is one blinks.
func (g *glass) send(p string) {
	var out strings.Builder
	for p != "" {
		if link, found := strings.CutPrefix(p, "\x1b]8;"); found {
			what, rest, _ := strings.Cut(link, "\a")
			_, address, _ := strings.Cut(what, ";")
			g.leads, p = address != "", rest
			out.WriteString(map[bool]string{true: "\x1b[5m", false: "\x1b[25m"}[g.leads])
			continue
		}
		if p[0] == 0x1b {
			n := 2
			if strings.HasPrefix(p, "\x1b[") {
				n += strings.IndexFunc(p[2:], func(r rune) bool { return r >= '@' && r <= '~' }) + 1
			}
			var again int // the letter before; the emulator does not know that one
			if _, err := fmt.Sscanf(p[:n], "\x1b[%db", &again); err == nil {
				last, _ := utf8.DecodeLastRuneInString(out.String())
				out.WriteString(strings.Repeat(string(last), again))
			} else {
				out.WriteString(p[:n])
				if g.leads && p[n-1] == 'm' {
					out.WriteString("\x1b[5m") // which an end of all styles ends too
				}
			}
			p = p[n:]
			continue
		}
		if p[0] < ' ' {
			out.WriteByte(p[0])
			p = p[1:]
			continue
		}
		end := strings.IndexFunc(p, func(r rune) bool { return r < ' ' })
		if end < 0 {
			end = len(p)
		}
		it := displaywidth.StringGraphemes(p[:end])
		for it.Next() {
			text := it.Value()
			if len([]rune(text)) == 1 && it.Width() < 2 {
				out.WriteString(text)
				continue
			}
			r, known := g.stand[text]
			if !known {
				r = rune(0xE000 + 2*len(g.stand))
				g.stand[text] = r
			}
			out.WriteRune(r)
			if it.Width() == 2 {
				out.WriteRune(r + 1)
			}
		}
		p = p[end:]
	}
	_, _ = g.Write([]byte(out.String()))
}

// at is what a cell shows, with what it looks like.
func (g *glass) at(x, y int) string {
	const reverse, underline, bold, wraps = 1, 2, 4, 64 // the emulator's, without names
	c := g.Cell(x, y)
	if c.Mode &^= wraps; c.Char == ' ' && c.Mode&(reverse|underline) == 0 {
		return "a blank" // bold or not, and in whatever colour
	}
	if c.Mode&bold != 0 && c.FG < 8 {
		c.FG += 8 // where it was erased
	}
	return fmt.Sprintf("%q mode %d colours %d %d", c.Char, c.Mode, c.FG, c.BG)
}

// flawOf says where a terminal shows something else than frame; "" = nowhere.
func (g *glass) flawOf(frame string) string {
	want := newGlass(g.w, g.h, g.stand)
	for y, l := range strings.Split(frame, "\n") {
		want.send(fmt.Sprintf("\x1b[%d;1H%s\x1b[m", y+1, l))
	}
	for y := range g.h {
		for x := range g.w {
			if got, want := g.at(x, y), want.at(x, y); got != want {
				return fmt.Sprintf("column %d of line %d is %s, not %s", x, y, got, want)
			}
		}
	}
	return ""
}

// TestBrushShowsTheFrame: whatever was on the terminal before, it shows the frame
// that was painted last, of any dashboard, in any look and size.
func TestBrushShowsTheFrame(t *testing.T) {
	t.Parallel()
	seed, n := seeded(t), 60
	if *fault {
		n = 10_000
	}
	spread(t, n, func(i int) string {
		h := &worlds{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		b := newBrush([]string{"xterm-256color", "linux", "tmux-256color", "screen"}[i%4])
		b.words, b.synced = true, i%2 == 0
		stand := map[string]rune{}
		var g *glass
		s, caps := h.state(), h.caps()
		for step := range 12 {
			switch h.IntN(6) {
			case 0:
				s = h.state()
			case 1:
				caps = h.caps()
			case 2, 3:
				s, _ = s.Key("down", "")
			default:
				s, _ = s.Key(keys[h.IntN(len(keys))], "")
			}
			if g == nil || h.IntN(8) == 0 {
				w, hh := h.size()
				g = newGlass(w, hh, stand)
				b.forget() // as after each change of the size
				if h.IntN(2) == 0 {
					g.send(strings.Repeat("\x1b[7mleft over\x1b[m ", 100))
				}
			}
			frame := Render(s, g.w, g.h, caps)
			sent := string(b.paint(frame, g.w, g.h))
			g.send(sent)
			if why := g.flawOf(frame); why != "" {
				return fmt.Sprintf("step %d, %dx%d, TERM=%s: %s\nsent %q\nto show\n%q", step, g.w, g.h, b.term, why, sent, frame)
			}
		}
		return ""
	})
}

// TestBrushSendsLittle: what did not change is not sent again, but after forget all
// of it is.
func TestBrushSendsLittle(t *testing.T) {
	t.Parallel()
	b := newBrush("xterm-256color")
	s := shown(picture(), Caps{})
	first := Render(s, 80, 24, s.Caps)
	all := len(b.paint(first, 80, 24))
	if all < 500 {
		t.Fatalf("a whole frame in %d bytes", all)
	}
	if p := b.paint(first, 80, 24); p != nil {
		t.Errorf("for the same frame: %q", p)
	}
	s.Now = s.Now.Add(time.Second)
	clock := Render(s, 80, 24, s.Caps)
	if p := b.paint(clock, 80, 24); len(p) == 0 || len(p) > 150 { // the clocks of three jobs too
		t.Errorf("for a second: %d bytes, %q", len(p), p)
	}
	b.forget()
	if p := b.paint(clock, 80, 24); len(p) < all-100 {
		t.Errorf("after forget: %d bytes of %d", len(p), all)
	}
	b.synced = true
	p := string(b.paint(first, 80, 24))
	if !strings.HasPrefix(p, "\x1b[?2026h") || !strings.HasSuffix(p, "\x1b[?2026l") {
		t.Errorf("not at once: %q", p)
	}
	if p := b.paint(first, 80, 24); p != nil {
		t.Errorf("for the same frame: %q", p)
	}
	if b.paint(first, 0, 0) != nil {
		t.Error("paints a terminal without cells")
	}
}
