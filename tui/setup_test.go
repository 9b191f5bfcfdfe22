package tui

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"limpet/tui/widget"
)

// answers presses the keys of a text, then the named keys.
func answers(t *testing.T, u setUp, text string, names ...string) (setUp, setUpAction) {
	t.Helper()
	w := actionNone
	for _, r := range text {
		if u, w = u.press(string(r), string(r)); w != actionNone {
			t.Fatalf("typing %q leads to %d", text, w)
		}
	}
	for _, name := range names {
		u, w = u.press(name, "")
	}
	return u, w
}

func TestSetUp(t *testing.T) {
	t.Parallel()
	u := setUp{file: "/home/op/.config/limpet/config.yaml"}
	u, _ = answers(t, u, "grafana.example:3000", "enter")
	if u.step != askToken || u.server != "https://grafana.example:3000" {
		t.Fatalf("step %d, server %q", u.step, u.server)
	}
	tokens, w := answers(t, u, "glsa_secret", "enter")
	if w != actionTest || tokens.settings() != (Settings{Server: "https://grafana.example:3000", Token: "glsa_secret"}) {
		t.Fatalf("wish %d, %+v", w, tokens.settings())
	}
	for _, size := range [][2]int{{80, 24}, {40, 10}} {
		if frame := renderSetUp(tokens, size[0], size[1], widget.Caps{Mono: true}); strings.Contains(frame, "glsa_secret") ||
			strings.Contains(frame, "secret") {
			t.Errorf("the token is on the screen:\n%s", frame)
		}
	}
	if _, w := tokens.press("y", "y"); w != actionNone {
		t.Error("it is written before it was tried")
	}
	good := tokens.applyTest(testedMsg{of: tokens, found: "Grafana answers\x1b[2J"})
	if _, w := good.press("enter", ""); w != actionNone {
		t.Error("Enter writes it")
	}
	if _, w := good.press("y", "y"); w != actionSave {
		t.Error("y does not write it")
	}
	if strings.ContainsRune(renderSetUp(good, 80, 24, widget.Caps{Mono: true, ASCII: true}), 0x1b) {
		t.Error("foreign text reaches the terminal")
	}
	bad := tokens.applyTest(testedMsg{of: tokens, err: errors.New("401 Unauthorized")})
	if !bad.failed || !strings.Contains(renderSetUp(bad, 80, 24, widget.Caps{}), "401 Unauthorized") {
		t.Error("it is not said that the trial failed")
	}
	if back, _ := bad.press("esc", ""); back.step != askToken || back.tried || back.token != "glsa_secret" {
		t.Errorf("esc leads to step %d with %q", back.step, back.token)
	}
	if late, _ := tokens.press("esc", ""); late.applyTest(testedMsg{of: tokens, found: "x"}).tried {
		t.Error("an answer to what was taken back counts")
	}
	file, w := answers(t, u, "/etc/limpet/token", "enter")
	if w != actionTest || file.settings() != (Settings{Server: "https://grafana.example:3000", TokenFile: "/etc/limpet/token"}) {
		t.Errorf("a path: wish %d, %+v", w, file.settings())
	}
	for answer, wrong := range map[string]string{"": "is needed", "ftp://x": "no address", "https://": "no address",
		"https://a:b@c": "does not belong"} {
		if at, w := answers(t, setUp{}, answer, "enter"); w != actionNone || at.step != askServer || !strings.Contains(at.wrong, wrong) {
			t.Errorf("server %q: step %d, %q", answer, at.step, at.wrong)
		}
	}
	if at, _ := answers(t, u, "", "enter"); at.step != askToken || at.wrong == "" {
		t.Error("no token is taken for an answer")
	}
	for _, key := range []string{"esc", "ctrl+c"} {
		if _, w := (setUp{}).press(key, ""); w != actionQuit {
			t.Errorf("%s does not leave", key)
		}
	}
	if at, _ := answers(t, setUp{}, "abc", "backspace"); at.server != "ab" {
		t.Errorf("backspace leaves %q", at.server)
	}
	if at, _ := answers(t, setUp{}, "abc", "ctrl+u"); at.server != "" {
		t.Errorf("^u leaves %q", at.server)
	}
}

// TestSetUpKeepsBlanksOfAPath: blanks within a path are part of it, typed or pasted. Blanks
// around it, and within a token, are dropped.
func TestSetUpKeepsBlanksOfAPath(t *testing.T) {
	t.Parallel()
	ask, _ := answers(t, setUp{}, "https://grafana.example", "enter")
	for text, want := range map[string]Settings{
		"/media/my disk/limpet  token":         {TokenFile: "/media/my disk/limpet  token"},
		"~/my token":                           {TokenFile: "~/my token"},
		"  /media/my disk/token \n":            {TokenFile: "/media/my disk/token"},
		"/media/my disk/very\r\n-long/to\nken": {TokenFile: "/media/my disk/very-long/token"},
		" glsa_se cret\n":                      {Token: "glsa_secret"},
		"glsa_se\ncret":                        {Token: "glsa_secret"},
	} {
		want.Server = "https://grafana.example"
		byKeys, w := answers(t, ask, text, "enter")
		if w != actionTest || byKeys.settings() != want {
			t.Errorf("typed %q: wish %d, %+v", text, w, byKeys.settings())
		}
		pasted, _ := ask.press("", text)
		if pasted, w = pasted.press("enter", ""); w != actionTest || pasted.settings() != want {
			t.Errorf("pasted %q: wish %d, %+v", text, w, pasted.settings())
		}
	}
	if u, _ := answers(t, ask, "/my disk", "backspace", "backspace", "backspace", "backspace"); u.token != "/my " {
		t.Errorf("backspace leaves %q", u.token)
	}
	if u, w := answers(t, ask, "   ", "enter"); w != actionNone || u.wrong == "" {
		t.Error("blanks are taken for an answer")
	}
}

func TestSetUpScreens(t *testing.T) {
	t.Parallel()
	u, _ := answers(t, setUp{file: "/home/op/.config/limpet/config.yaml"}, "https://grafana.example", "enter")
	u, _ = answers(t, u, "glsa_secret", "enter")
	u = u.applyTest(testedMsg{of: u, found: "grafana.example answers in 38ms; repositories and jobs may be read"})
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		got := renderSetUp(u, size[0], size[1], widget.Caps{Mono: true})
		check(t, got, size[0], size[1], widget.Caps{Mono: true})
		golden(t, fmt.Sprintf("setup-%dx%d", size[0], size[1]), got)
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 2))
	keys := []string{"enter", "esc", "backspace", "ctrl+u", "y", "/", "https://漢字.example", "\x1b[2J", "q"}
	for range 5000 {
		k := keys[rnd.IntN(len(keys))]
		var w setUpAction
		if u, w = u.press(k, k); w == actionTest && rnd.IntN(2) == 0 {
			u = u.applyTest(testedMsg{of: u, found: "\x1b]0;x\x07"})
		}
		size := [2]int{rnd.IntN(100) + 1, rnd.IntN(40) + 1}
		caps := widget.Caps{Mono: true, ASCII: rnd.IntN(2) == 0}
		frame := renderSetUp(u, size[0], size[1], caps)
		if lines := strings.Split(strip(frame), "\n"); len(lines) != size[1] {
			t.Fatalf("seed=%d: %d lines at %v", seed, len(lines), size)
		}
	}
}
