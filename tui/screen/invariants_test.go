package screen

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// violation returns the invariant that a frame violates; "" = none.
func violation(frame string, w, h int, caps widget.Caps) string {
	if caps.ASCII && caps.Mono && strings.ContainsRune(frame, 0x1b) {
		return "it has an escape sequence without colours and glyphs"
	}
	lines := strings.Split(link.ReplaceAllString(frame, ""), "\n")
	if len(lines) != h {
		return fmt.Sprintf("it has %d lines, want %d", len(lines), h)
	}
	for i, l := range lines {
		for {
			begin, rest, found := strings.Cut(l, "\x1b[")
			if !found {
				break
			}
			end := strings.TrimLeft(rest, "0123456789;")
			if !strings.HasPrefix(end, "m") {
				return fmt.Sprintf("line %d has a sequence that is no colour: %q", i, l)
			}
			l = begin + end[1:]
		}
		for _, r := range l {
			if text.Hidden(r) {
				return fmt.Sprintf("line %d has %U: %q", i, r, l)
			}
		}
		if got := displaywidth.String(l); got != w {
			return fmt.Sprintf("line %d is %d cells wide, want %d: %q", i, got, w, l)
		}
	}
	return ""
}

// size returns a size at which the screens change their layout, or another one.
func (h *generator) size() (w, hh int) {
	if h.IntN(3) == 0 {
		return 1 + h.IntN(250), 1 + h.IntN(80)
	}
	of := [][2]int{{1, 1}, {39, 24}, {40, 9}, {40, 10}, {59, 16}, {60, 15}, {60, 16}, {60, 20}, {79, 24}, {80, 24}, {119, 30}, {120, 29},
		{120, 30}, {140, 40}, {200, 60}, {250, 80}}
	at := of[h.IntN(len(of))]
	return at[0], at[1]
}

func (h *generator) caps() widget.Caps {
	return widget.Caps{ASCII: h.IntN(3) == 0, Mono: h.IntN(3) == 0, Theme: h.IntN(len(widget.Themes))}
}

// keySequences are key sequences that open screens.
var keySequences = [][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"6", "enter"}, {"6", "enter", "end", "up"},
	{"6", "down", "down"}, {"6", "p"}, {"6", "s"}, {"6", "*", "s"}, {"6", "/", "s", "t", "tab", "f", "enter"},
	{"6", "o", "down", "enter"}, {"6", "w"}, {"6", "u"}, {"enter"}, {"enter", "d"}, {"enter", "d", "enter"}, {"enter", "d", "down"},
	{"enter", "d", "end"}, {"3", "enter", "down"}, {"3", "enter", "end"}, {"enter", "d", "down", "enter", "w", "n"}, {"tab"}, {"z"},
	{"w"}, {"o"}, {"o", "down", "enter"}, {"o", "end", "enter"},
	{"down"}, {"end"}, {"pgdown"}, {"up"}, {"space", "space"}, {"*"}, {"?"}, {"?", "p", "u"}, {":"}, {":", "g", "o"}, {":", "漢"},
	{"e"}, {"e", "down", "pgdown"}, {"/"}, {"/", "a"}, {"/", "j", "0", "enter"},
	{"/", "s", "t", "tab", "e", "enter"}, {"/", ":", "x"}, {"h"}, {"h", "end"}, {"h", "end", "enter"},
	{"h", "down", "down", "down", "+"}, {"p"}, {"P"}, {"P", "x"}, {"x"}, {"r"}, {"r", "a"}, {"s"}, {"q"}, {"["}, {"]"}, {"esc"}, {"T"},
	{"Y"}, {"D"},
	{"t"}, {"t", "down"}, {"3", "t", "end"}, {"3", "y"}, {"y", "pgdown", "y"}, {"6", "t"}, {"6", "y", "end"}, {"h", "y"}, {"E"}}

// state returns a random state.
func (h *generator) state() State {
	s := NewState([]string{Standalone, FromDisk, "attached to daemon 4121"}[h.IntN(3)], h.caps(), noon)
	s.ReadOnly, s.SetUp = h.IntN(6) == 0, h.IntN(2) == 0
	if h.IntN(8) == 0 {
		s.Note = text.Clean(h.text())
	}
	if h.IntN(20) > 0 {
		first := h.snapshot()
		s = s.Show(first)
		for range h.IntN(3) {
			first = h.next(first)
			s = s.Show(first)
		}
	}
	if h.IntN(10) == 0 {
		s = s.Lose(h.text())
	}
	src := &oracle{generator: h}
	for range 1 + h.IntN(3) {
		if h.IntN(2) == 0 {
			s.W, s.H = h.size()
		}
		for _, key := range keySequences[h.IntN(len(keySequences))] {
			s = press(s, key)
			for range 4 {
				next, look := s.Fetch()
				if s = next; look == nil {
					break
				}
				take := look(nil, src)
				if h.IntN(10) > 0 {
					s = take(s)
				}
			}
		}
	}
	switch h.IntN(12) {
	case 0:
		s = s.Fail(h.text())
	case 1:
		s.Now = h.time()
	case 2:
		s = s.Show(h.snapshot())
	}
	return s
}

// onList reports whether keys move a cursor in a visible list, and returns the start of the name of
// its row.
func (s State) onList() (label string, ok bool) {
	if s.overlay != nil || s.filterLine.typing {
		return "", false
	}
	switch {
	case s.screen == screenHistory:
		at := s.history.items.here()
		if _, problem := s.history.query(&s.scene); at != nil && problem == "" {
			return at.Name[:7], true // the name begins like its repository
		}
	case s.screen == screenSources:
		if from := s.sources.here(); from != nil {
			return from.Name[:7], true
		}
	case s.screen == screenChanges:
		if f := s.changes.rows.here(); f != nil && f.From == "" && s.detail.changesRefusal() == "" {
			return f.Path[:7], true
		}
	case s.screen == screenFiles:
		if f := s.files.rows.here(); f != nil {
			return f.Path[:7], true
		}
	case s.screen == screenRepo:
		if j := s.repo.page.rows.here(); j != nil {
			return j.Name[:7], true
		}
	case s.screen == screenOverview && s.firstRun():
	case s.screen == screenJobs, s.screen == screenOverview && !s.overview.onRepos:
		if j := s.jobs.here(); j != nil {
			return j.Name[:7], true
		}
	case s.screen == screenRepos, s.screen == screenOverview:
		if r := s.repos.here(); r != nil {
			return r.Name[:7], true
		}
	}
	return "", false
}

// lacking returns required text that the screen of a plain world lacks; "" = none.
func lacking(s State, frame string, w, h int) string {
	if w < MinWidth || h < MinHeight {
		if txt := strings.ReplaceAll(strings.ReplaceAll(frame, "\n", ""), " ", ""); w*h > 200 && !strings.Contains(txt, "pending") {
			return "how many jobs there are"
		}
		return ""
	}
	lines := strings.Split(frame, "\n")
	g := s.Caps.Glyphs()
	p := &view{c: widget.NewCanvas(0, 0, s.Caps), facts: &s.facts, s: &s.scene}
	if s.overlay != nil {
		return ""
	}
	if _, word := p.apiState(); !strings.Contains(lines[0], word) {
		return fmt.Sprintf("%q, how the API does", word)
	}
	if s.offline() && !strings.Contains(lines[1], " ! ") {
		return "that nothing is live"
	}
	if label, ok := s.onList(); ok {
		row, near := "", 14 // cells from the cursor on: a glyph, and the start of the name
		if s.screen == screenHistory {
			near = 26 // the end time comes first
		}
		switch {
		case s.screen == screenChanges:
			near = 40 // after the result
			q, _ := s.detail.changeQuery()
			if _, known, _ := s.changes.files.of(q); !known {
				return ""
			}
		case s.screen == screenRepo:
			near = 40 // after the end time
			if !strings.Contains(frame, "Recent jobs") {
				if w >= 60 && h >= 14 && !s.repo.page.turned {
					return "the jobs of the repository"
				}
				return "" // there is no room for rows
			}
		}
		if s.screen == screenHistory && !strings.Contains(frame, "REPOSITORY") {
			label = "" // there is no room for it
		}
		column := w // in ASCII the glyph of work is the one of the cursor, which stands left of it
		for _, l := range lines[2 : h-2] {
			before, after, found := strings.Cut(l, g.Cursor)
			if at := utf8.RuneCountInString(before); found && at < column && strings.Contains(after[:min(len(after), near)], label) {
				row, column = after, at
			}
		}
		if row == "" {
			return "the row of the cursor, " + label
		}
		if j, _ := selected(s); strings.HasPrefix(j.Name, label) && s.screen != screenHistory && s.screen != screenChanges {
			state := p.shownState(j)
			glyph, known := g.State[state]
			if !known {
				glyph = g.State["unknown"]
			}
			if !strings.Contains(row, glyph) {
				return "the glyph of " + state
			}
			if said := state != "working" && state != "other" && state != "pending" && known && j.Undelivered.IsZero() &&
				(j.RetryAt.IsZero() || !j.Finished.IsZero()); said && !strings.Contains(row, state[:4]) {
				return "the word " + state + " in " + row
			}
		}
	}
	if s.screen == screenSources && len(s.sources.rows) > 0 {
		state := p.sourceShownState(*s.sources.here())
		if !strings.Contains(frame, state) || !strings.Contains(frame, g.State[sourceGlyph(state)]) {
			return "the word and the glyph of " + state
		}
	}
	if s.screen == screenSource {
		if from, live := *s.source.page.subject.object.source, s.source.page.subject.live; live && len(from.State) < 12 && h > 14 && s.source.page.top == 0 {
			state := from.State
			if s.offline() && state == snapshot.SourceWorking {
				state = snapshot.SourceUnknown
			}
			if !strings.Contains(frame, text.OrDash(state)) {
				return "the word " + state
			}
		}
	}
	if s.screen == screenDetail && !s.detail.zoomed {
		j, live := *s.detail.subject.object.job, s.detail.subject.live
		state := p.shownState(j)
		if !live && j.Finished.IsZero() {
			state = "unknown"
		}
		if !strings.Contains(frame, state[:min(len(state), 9)]) { // states of other programs may be long
			return "the word " + state
		}
	}
	return ""
}

// TestEveryState renders random states on several terminals: the frame has the size of the terminal
// and no control sequences of foreign texts, the cursor is visible, old data is marked, and nothing
// panics.
func TestEveryState(t *testing.T) {
	t.Parallel()
	n, first := 300, seeded(t)
	if *fault {
		n = 5_000
	}
	var frames, lists atomic.Int64
	parallel(t, n, func(i int) string {
		h := &generator{Rand: rand.New(rand.NewPCG(first, uint64(i))), plain: i%2 == 0}
		s := h.state()
		for range 4 {
			w, hh := h.size()
			s.Caps = h.caps()
			frame := render(s, w, hh, s.Caps)
			if why := violation(frame, w, hh, s.Caps); why != "" {
				return fmt.Sprintf("%dx%d %+v: %s\n%s", w, hh, s.Caps, why, strip(frame))
			}
			frames.Add(1)
			plain := strip(frame)
			if !h.plain {
				continue
			}
			if _, ok := s.onList(); ok {
				lists.Add(1)
			}
			if what := lacking(s, plain, w, hh); what != "" {
				return fmt.Sprintf("%dx%d %+v, screen %d: no word of %s\n%s", w, hh, s.Caps, s.screen, what, plain)
			}
			if s.Caps.ASCII {
				for _, r := range plain {
					if r >= 0x80 {
						return fmt.Sprintf("%dx%d: %q in ASCII\n%s", w, hh, r, plain)
					}
				}
			}
		}
		return ""
	})
	t.Logf("fault: %d states, %d frames, %d of them with the cursor on a row that tells its name", n, frames.Load(), lists.Load())
}

// parallel runs one for 0 to n-1 on all processors and fails for a returned text or a panic. Each
// number is a separate world, so the seed reproduces a failure.
func parallel(t *testing.T, n int, one func(i int) string) {
	t.Helper()
	var next atomic.Int64
	var failed atomic.Bool
	var work sync.WaitGroup
	guarded := func(i int) (why string) {
		defer func() {
			if r := recover(); r != nil {
				stack := make([]byte, 8<<10)
				why = fmt.Sprintf("panic: %v\n%s", r, stack[:runtime.Stack(stack, false)])
			}
		}()
		return one(i)
	}
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1) - 1)
				if i >= n {
					return
				}
				if why := guarded(i); why != "" {
					failed.Store(true)
					t.Errorf("number %d: %s", i, why)
				}
			}
		})
	}
	work.Wait()
}
