package tui

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// led are the texts of a frame that lead somewhere, each with where; those of one
// address are joined, line by line.
func led(frame string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile("\x1b]8;id=[0-9]+;([^\a]+)\a(.*?)\x1b]8;;\a").FindAllStringSubmatch(frame, -1) {
		out[m[1]] += "|" + strip(m[2])
	}
	return out
}

// TestAddressesAreLinks: what is shown of an address of the web leads there, cut or
// not, on each screen that tells of one thing; and where a look has no links the frame
// is as it was.
func TestAddressesAreLinks(t *testing.T) {
	t.Parallel()
	snap := picture()
	long := "https://git.example.com/" + strings.Repeat("a-team/", 20) + "repo.git"
	snap.Jobs[0].URLs = []snapshot.Link{{Name: "compare", URL: long}, {Name: "repository", URL: "https://git.lab/obs/east.git"}}
	snap.Repos[0].URL = long
	snap.Sources = sourced().Sources
	short, served := snap.Repos[1].URL, snap.Sources[0].Artifact.URL
	s := shown(snap, Caps{Links: true})
	job := press(s, "enter")
	head := len("| url    compare ")
	for name, c := range map[string]struct {
		s    State
		w, h int
		want map[string]string
	}{
		"job":              {job, 80, 24, map[string]string{long: "|" + long[:80-head-3] + "…"}},
		"job, all of it":   {job, 250, 40, map[string]string{long: "|" + long}},
		"repository":       {press(s, "3", "enter"), 80, 24, nil},
		"repository, wide": {press(s, "3", "enter"), 140, 40, nil},
		"of the overview":  {press(s, "1", "tab"), 140, 40, nil},
		"source":           {press(s, "6", "enter"), 80, 24, nil},
	} {
		frame := Render(c.s, c.w, c.h, c.s.Caps)
		check(t, frame, c.w, c.h, c.s.Caps)
		if why := flaw(frame, c.w, c.h, c.s.Caps); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		got := led(frame)
		if c.want != nil && fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q leads, want %q", name, got, c.want)
		}
		if len(got) == 0 {
			t.Errorf("%s: nothing leads anywhere\n%s", name, strip(frame))
		}
		for address, txt := range got {
			if address != long && address != short && address != served && !strings.HasPrefix(address, "https://git.site.example/") {
				t.Errorf("%s: leads to %q", name, address)
			}
			if txt := strings.TrimSuffix(strings.ReplaceAll(txt, "|", ""), "…"); !strings.HasPrefix(address, txt) {
				t.Errorf("%s: %q leads to %q", name, txt, address)
			}
		}
		for _, none := range []Caps{{}, {Links: true, ASCII: true}, {Links: true, Mono: true}, {Links: true, ASCII: true, Mono: true}, {Links: true, Theme: 3}} {
			c.s.Caps = none
			if frame := Render(c.s, c.w, c.h, none); strings.Contains(frame, "\x1b]") {
				t.Errorf("%s: links in %+v", name, none)
			}
		}
		without := c.s
		without.Caps = Caps{}
		if strip(frame) != strip(Render(without, c.w, c.h, Caps{})) {
			t.Errorf("%s: not the same text", name)
		}
	}
	if help := Render(press(job, "?"), 80, 24, Caps{Links: true}); strings.Contains(help, "\x1b]") {
		t.Error("a link shines through what lies over it")
	}
	if got := led(Render(s.goRepo(repoKey(snap.Repos[1])), 80, 24, s.Caps)); len(got) != 1 || got[short] != "|"+short {
		t.Errorf("a short address: %q", got)
	}
	got := led(Render(s.goRepo(repoKey(snap.Repos[0])), 80, 24, s.Caps))[long]
	if parts := strings.Split(got, "|"); len(parts) != 4 || strings.Join(parts, "") != long {
		t.Errorf("an address on three lines: %q", got)
	}
}

// TestLinksOnlyToTheWeb: what is no address of the web, or could end the sequence that
// it would stand in, leads nowhere.
func TestLinksOnlyToTheWeb(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"", "-", "git.lab/obs", "ssh://git.lab/obs.git", "git@git.lab:obs.git", "file:///etc/passwd", "javascript:alert(1)", "https://", "https:///x", "//git.lab/x",
		"https://git.lab/\x1b]8;;https://evil.example\x1b\\x", "https://git.lab/\a", "https://git.lab/\x9c", "https://git.lab/\u009c", "https://git.lab/a b", "https://git.lab/a\nb",
		"https://git.lab/a;b", "https://git.lab/漢", "https://git.lab/\u202egit", "https://user@git.lab/x", "https://github.com:pass@evil.example/x", "https://git.lab/%zz",
		"https://git.lab/" + strings.Repeat("x", addressMost),
	} {
		if got := webAddress(evil); got != "" {
			t.Errorf("%q leads to %q", evil, got)
		}
		snap := picture()
		for i := range snap.Jobs {
			snap.Jobs[i].URLs = []snapshot.Link{{Name: "compare", URL: evil}}
		}
		for i := range snap.Repos {
			snap.Repos[i].URL = evil
		}
		for _, keys := range [][]string{{"enter"}, {"3", "enter"}, {"1", "tab"}} {
			s := press(shown(snap, Caps{Links: true}), keys...)
			frame := Render(s, 140, 40, s.Caps)
			// What cleaning has left may be an address, which is then the one that is shown.
			if why := flaw(frame, 140, 40, s.Caps); why != "" || webAddress(text.Clean(evil)) == "" && strings.Contains(frame, "\x1b]") {
				t.Errorf("%q after %q: %s", evil, keys, why)
			}
		}
	}
	for _, good := range []string{"https://git.lab/obs/east.git", "http://[::1]:3000/x?a=b&c=d#L10", "https://git.lab/" + strings.Repeat("x", 2000)} {
		if webAddress(good) != good {
			t.Errorf("%q leads nowhere", good)
		}
	}
}

// TestLinkStandsAlone: the text of an address is a link as a word of its own, not the
// beginning of another, and a box that is beside it is not.
func TestLinkStandsAlone(t *testing.T) {
	t.Parallel()
	const to = "https://git.lab/obs/east.git"
	for txt, want := range map[string]string{
		to:                                      to,
		"see " + to + " main":                   to,
		to + ".evil.example":                    "",
		to + "…":                                "", // of a longer one
		to[:20] + "…":                           to[:20] + "…",
		to[:20]:                                 "",
		"x" + to:                                "",
		"https://…":                             "",
		strings.Repeat("-", 22) + " " + to[:17]: to[:17], // up to the edge
	} {
		p := newPainter(44, 3, Caps{Links: true})
		p.box(p.g, 0, 0, 44, 3, "", "", "", false)
		p.put(2, 1, 40, rolePlain, txt)
		p.link(2, 1, 40, 1, to)
		if got := strings.TrimPrefix(led(p.canvas.frame(theme{}))[to], "|"); got != want {
			t.Errorf("%q: %q leads there, want %q", txt, got, want)
		}
	}
}

// TestWhereLinksAreSent: nowhere that they might be printed, nor where they are not
// wanted.
func TestWhereLinksAreSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"TERM": "xterm-256color"}, true}, {map[string]string{"TERM": "tmux-256color"}, true}, {map[string]string{"TERM": "foot"}, true},
		{map[string]string{"TERM": "xterm", "FORCE_HYPERLINK": "0"}, false}, {map[string]string{"TERM": "xterm", "FORCE_HYPERLINK": "1"}, true},
		{map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false}, {map[string]string{"TERM": "xterm", "LANG": "C"}, false},
		{map[string]string{"TERM": "linux"}, false}, {map[string]string{"TERM": "dumb"}, false}, {map[string]string{}, false}, {map[string]string{"TERM": "vt220"}, false}, {map[string]string{"TERM": "vt102-am"}, false},
	} {
		env := func(name string) string {
			if v, ok := c.env[name]; ok || name != "LANG" {
				return v
			}
			return "C.UTF-8"
		}
		if got := capsOf(Options{Env: env}).linked(); got != c.want {
			t.Errorf("%v: links %v", c.env, got)
		}
	}
}
