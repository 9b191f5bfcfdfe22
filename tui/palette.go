package tui

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// palette is a line that takes the words of what is to be done, with what they
// may mean below it and the command line that does the same. It has the commands
// of the moment at which it was opened; each looks again at what it acts on.
type palette struct {
	all   []command
	found []command
	count int // of all that match
	text  string
	at    int
	back  int // how many commands back in those of before
}

const (
	// paletteFound bounds what the palette lists; who wants another types more.
	paletteFound = 50
	// paletteKept bounds the commands that are remembered.
	paletteKept = 20
)

func (s State) openPalette() State {
	p := palette{all: s.commands()}
	s.overlay = p.search(s, "")
	return s
}

// search looks for what the words may mean. Of equal ones those of before come
// first, then the order of the commands.
func (c palette) search(s State, text string) palette {
	c.text, c.at = text, 0
	type hit struct {
		rank int
		of   command
	}
	var hits []hit
	typed := strings.ToLower(text)
	words := strings.Fields(typed)
	for _, of := range c.all {
		if rank, ok := match(strings.ToLower(of.words), typed, words); ok {
			rank *= 2
			if !slices.Contains(s.usedCommands, of.words) {
				rank++
			}
			hits = append(hits, hit{rank, of})
		}
	}
	sort.SliceStable(hits, func(i, j int) bool { return hits[i].rank < hits[j].rank })
	c.count, c.found = len(hits), nil
	for _, h := range hits[:min(len(hits), paletteFound)] {
		c.found = append(c.found, h.of)
	}
	return c
}

// match says how well words fit what was typed, 0 best: they begin with it, each
// typed word begins one of theirs, each occurs in them, its letters do in order.
func match(words, typed string, fields []string) (rank int, ok bool) {
	if strings.HasPrefix(words, typed) {
		return 0, true
	}
	begins, occurs := true, true
	rest := " " + words
	for _, f := range fields {
		if i := strings.Index(rest, " "+f); i >= 0 {
			rest = rest[i+1:]
		} else {
			begins = false
		}
		occurs = occurs && strings.Contains(words, f)
	}
	switch {
	case begins:
		return 1, true
	case occurs:
		return 2, true
	}
	at := 0
	for _, r := range typed {
		if r == ' ' {
			continue
		}
		i := strings.IndexRune(words[at:], r)
		if i < 0 {
			return 0, false
		}
		at += i + len(string(r))
	}
	return 3, true
}

func (c palette) key(s State, name, text string) (State, Outcome) {
	switch name {
	case "esc", "ctrl+p":
		s.overlay = nil
		return s, Outcome{}
	case "enter":
		if c.at >= len(c.found) {
			return s, Outcome{}
		}
		s.overlay = nil
		return s.perform(c.found[c.at])
	case "tab":
		if c.at < len(c.found) {
			c = c.search(s, c.found[c.at].words)
		}
	case "up":
		if c.at > 0 {
			c.at--
		} else if c.back < len(s.usedCommands) {
			back := c.back + 1
			c = c.search(s, s.usedCommands[len(s.usedCommands)-back])
			c.back = back
		}
	case "down":
		if c.back > 0 && c.at == 0 {
			back, words := c.back-1, ""
			if back > 0 {
				words = s.usedCommands[len(s.usedCommands)-back]
			}
			c = c.search(s, words)
			c.back = back
		} else {
			c.at = max(min(c.at+1, len(c.found)-1), 0)
		}
	default:
		if next := edit(c.text, name, text); next != c.text {
			c = c.search(s, next)
			c.back = 0
		}
	}
	s.overlay = c
	return s, Outcome{}
}

// perform does a command and remembers it.
func (s State) perform(c command) (State, Outcome) {
	if why := c.refusal(s); why != "" {
		return s.say(why, true), Outcome{}
	}
	kept := slices.DeleteFunc(slices.Clone(s.usedCommands), func(words string) bool { return words == c.words })
	s.usedCommands = append(kept[max(len(kept)-paletteKept+1, 0):], c.words)
	return c.do(s)
}

func (c palette) hints(p *view) [][2]string {
	return [][2]string{{p.g.up + p.g.down, "move"}, {"tab", "complete"}, {"enter", "run"}, {"esc", "close"}}
}

func (c palette) draw(p *view) {
	w := min(72, p.w-2)
	rows := min(max(len(c.found), 1), 8, p.h-7)
	h := rows + 5
	x, y := p.dialog(w, h)
	inner := w - 4
	foot := "tab completes, enter runs, up recent"
	if w < 50 {
		foot = ""
	}
	note := "esc closes"
	if c.count > rows {
		note = fmt.Sprintf("%d more, esc closes", c.count-rows)
	}
	p.box(p.g, x, y, w, h, "Command", note, foot, true)
	text := c.text
	for displaywidth.String(text) > inner-3 { // its end is where the person is
		text = text[len(string([]rune(text)[:1])):]
	}
	at := p.put(x+2, y+1, inner, roleKey, ": ")
	at = p.put(at, y+1, inner-2, rolePlain, text)
	p.put(at, y+1, 1, roleCursor, " ")
	if len(c.found) == 0 {
		p.put(x+4, y+2, inner-2, roleDim, cut("nothing is called so; try pull, go, filter, theme", inner-2, p.g.more))
	}
	top := window(c.at, len(c.found), rows)
	name := inner - 2
	if w >= 60 {
		name = inner / 2
	}
	for i, of := range c.found[top:min(top+rows, len(c.found))] {
		ly, mark, r := y+2+i, " ", rolePlain
		if of.refusal(p.s) != "" {
			mark, r = "-", roleDim
		}
		if top+i == c.at {
			mark = p.g.cursor
		}
		p.put(x+2, ly, 1, roleKey, mark)
		p.put(x+4, ly, name-1, r, cut(of.words, name-1, p.g.more))
		if name < inner-2 {
			p.put(x+4+name, ly, inner-name-8, roleDim, cut(of.note, inner-name-8, p.g.more))
			p.right(x+w-8, x+w-2, ly, roleKey, of.label)
		}
		if top+i == c.at {
			p.paintRow(x+3, ly, x+w-2, roleCursor)
		}
	}
	p.fill(x+2, y+2+rows, x+2+inner, roleFrame, p.g.horizontal)
	p.put(x+2, y+3+rows, inner, roleDim, cut(c.same(p.s), inner, p.g.more))
}

// same is the last line: the command line that does the same, or why nothing is
// done.
func (c palette) same(s State) string {
	if c.at >= len(c.found) {
		return ""
	}
	of := c.found[c.at]
	if why := of.refusal(s); why != "" {
		return why
	}
	if of.line != nil {
		if line := of.line(s); line != "" {
			return "same as: " + line
		}
	}
	return "no command line does this"
}
