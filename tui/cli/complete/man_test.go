package complete

import (
	"testing"
)

func TestRoff(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		".SH NAME": "\\&.SH NAME\n", "'br": "\\(aqbr\n", "`a` ^b ~c": "\\(gaa\\(ga \\(hab \\(tic\n", `a\b -c`: "a\\eb \\-c\n",
		"two\n.lines $$X": "two .lines $X\n",
	} {
		if got := roffLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
