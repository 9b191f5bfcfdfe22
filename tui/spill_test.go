package tui

import (
	"bytes"
	"testing"
)

// TestSpillKeepsWhatGivesBack: what waits for a terminal that takes nothing is thrown
// away, also while the terminal is given back, but never what gives it back.
func TestSpillKeepsWhatGivesBack(t *testing.T) {
	t.Parallel()
	var waits bytes.Buffer // for the terminal
	s := &spill{throw: waits.Reset}
	waits.WriteString("half a frame")
	s.some()
	for _, thrown := range []int{0, 1, 3} {
		sent := 0
		s.keep(func() {
			waits.WriteString("back")
			if sent++; sent <= thrown {
				s.some()
			}
		})
		s.some()
		if waits.String() != "back" || sent != thrown+1 {
			t.Errorf("thrown away %d times meanwhile: %q waits after %d calls", thrown, waits.String(), sent)
		}
		s.resume()
		s.some()
		if waits.Len() > 0 {
			t.Errorf("%q waits for a terminal that was taken again", waits.String())
		}
	}
	var none *spill
	none.resume()
	none.keep(func() { waits.WriteString("once") })
	if waits.String() != "once" {
		t.Errorf("%q", waits.String())
	}
}
