package screen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// player uses a dashboard: keys, clicks, snapshots, sizes and results come in any order.
type player struct {
	*generator
	s     State
	src   Source
	snap  *snapshot.Snapshot // as the agent has it
	late  []func(State) State
	steps int
}

func newPlayer(h *generator) *player {
	p := &player{generator: h, src: &oracle{generator: h}, snap: h.snapshot()}
	p.s = NewState([]string{Standalone, "attached to daemon 4121"}[h.IntN(2)], h.caps(), noon)
	p.s.ReadOnly = h.IntN(10) == 0
	if h.IntN(10) > 0 {
		p.s = p.s.Show(p.snap)
	}
	p.s.W, p.s.H = h.size()
	return p
}

// keys are all bound keys, and some unbound ones.
var keys = func() (out []string) {
	for _, b := range keyTable() {
		out = append(out, strings.Fields(b.press)...)
	}
	return append(out, "y", "n", "f", "c", "left", "right", "ctrl+w", "f1", "delete", "ctrl+c", "漢", "+", "j", "k", "d", "u")
}()

// pasted are texts that a terminal may send at once.
var pasted = []string{"repo:lab-east state:error,warning since:24h ", "team-dash", "a\nb\r\nc\x1b[2J", strings.Repeat("漢字 ", 400),
	"\x00\xff", "pull r0001 --full", ":::,,,", "since:-1h until:9999d", " "}

// step performs one random event and returns the invariant of the state that it breaks; "" = none.
func (p *player) step() string {
	p.steps++
	before := p.s
	moved := false // by the user, who may move cursors
	what := ""
	switch n := p.IntN(100); {
	case n < 55:
		name := keys[p.IntN(len(keys))]
		text := ""
		if len([]rune(name)) == 1 {
			text = name
		}
		what, moved = "key "+name, true
		p.s, _ = p.s.Key(name, text)
	case n < 62:
		letter := string("abejlnrstw:, 0147-"[p.IntN(18)])
		what, moved = "types "+letter, true
		p.s, _ = p.s.Key(letter, letter)
	case n < 65:
		what, moved = "pastes", true
		p.s = p.s.Paste(pasted[p.IntN(len(pasted))])
	case n < 71:
		w, h := screenSize(p.s)
		what, moved = "clicks", true
		p.s = p.s.Click(p.IntN(w+4)-2, p.IntN(h+4)-2)
	case n < 81:
		what = "snapshot"
		next := p.next(p.snap)
		if d := snapshot.Diff(p.snap, next); d != nil {
			applied, err := snapshot.Apply(p.snap, d)
			if err != nil {
				return "a change that does not fit: " + err.Error()
			}
			next = applied
		}
		p.snap = next
		p.s = p.s.Show(p.snap)
	case n < 83:
		what = "lost"
		p.s = p.s.Lose(p.text())
	case n < 84:
		what = "failed"
		p.s = p.s.Fail(p.text())
	case n < 88:
		what = "size"
		p.s.W, p.s.H = p.size()
	case n < 91:
		what = "time"
		p.s.Now = p.s.Now.Add(time.Duration(p.IntN(20)) * time.Second)
	default:
		what = "answer"
		if len(p.late) > 0 { // for past screens and filters too
			at := p.IntN(len(p.late))
			take := p.late[at]
			p.late = slices.Delete(p.late, at, at+1)
			p.s = take(p.s)
		}
	}
	if p.IntN(4) == 0 {
		drawn(&p.s)
	}
	next, look := p.s.Fetch()
	if p.s = next; look != nil {
		if take := look(nil, p.src); p.IntN(3) > 0 {
			p.s = take(p.s)
		} else if len(p.late) < 10 {
			p.late = append(p.late, take)
		}
	}
	if why := p.violation(before, moved, what == "snapshot"); why != "" {
		return what + ": " + why
	}
	return ""
}

// violation returns the violated invariant.
func (p *player) violation(before State, moved, isSnapshot bool) string {
	s := p.s
	jobs, repos := s.jobs.keys, s.repos.keys
	items := s.history.items.keys
	for _, c := range []struct {
		of, was, is   string
		rows, rowsWas []string
	}{
		{"jobs", before.jobs.cursor, s.jobs.cursor, jobs, before.jobs.keys},
		{"repositories", before.repos.cursor, s.repos.cursor, repos, before.repos.keys},
		{"sources", before.sources.cursor, s.sources.cursor, s.sources.keys, before.sources.keys},
		{"history", before.history.items.cursor, s.history.items.cursor, items, before.history.items.keys},
		{"changes", before.changes.rows.cursor, s.changes.rows.cursor, filesOf(s), filesOf(before)},
		{"repository's jobs", before.repo.page.rows.cursor, s.repo.page.rows.cursor, ofRepo(s), ofRepo(before)},
	} {
		if c.is == "" && (c.of == "changes" || c.of == "repository's jobs") {
			continue // on the first row until it is moved
		}

		if len(c.rows) > 0 && !slices.Contains(c.rows, c.is) {
			return fmt.Sprintf("the cursor of the %s, %q, is on no row of %q", c.of, c.is, c.rows)
		}
		atTop := len(c.rowsWas) > 0 && c.rowsWas[0] == c.was
		follows := slices.Contains([]string{"jobs", "history", "repository's jobs"}, c.of)
		if !moved && c.is != c.was && slices.Contains(c.rows, c.was) && !(atTop && follows) {
			return fmt.Sprintf("the cursor of the %s has left %q, which is still there, for %q", c.of, c.was, c.is)
		}
		if !moved && !isSnapshot && (c.of == "jobs" || c.of == "repositories" || c.of == "sources") && c.is != c.was {
			return fmt.Sprintf("the cursor of the %s went from %q to %q by itself", c.of, c.was, c.is)
		}
	}
	for _, b := range []struct {
		of       string
		is, most int
	}{
		{"places", len(s.back), trailLength}, {"places ahead", len(s.forwards), trailLength},
		{"errors", len(s.issues.list), maxIssues},
		{"filters", len(s.filterLine.past), maxFilters}, {"marks", max(len(s.jobs.marks), len(s.repos.marks), len(s.sources.marks)),
			maxMarks}, {"letters of a line", lineOf(before, s), widget.MaxLine},
		{"rows of the history", len(s.history.items.rows), maxHistoryRows},
	} {
		if b.is > b.most {
			return fmt.Sprintf("%d %s, at most %d", b.is, b.of, b.most)
		}
	}
	switch over := s.overlay.(type) {
	case chooser:
		named := slices.ContainsFunc(over.all, func(c command) bool { return c.words == over.text }) // completed
		if len([]rune(over.text)) > widget.MaxLine && !named || len(over.found) > paletteFound || over.at > len(over.found) {
			return "the list of commands has grown"
		}
	case confirm:
		if len([]rune(over.typed)) > widget.MaxLine || len(over.choices) == 0 {
			return "the question has grown, or has no answer"
		}
	}
	return ""
}

// filesOf returns the listed files, ofRepo the jobs of the shown repository; none on other screens.
func filesOf(s State) []string {
	if s.screen != screenChanges {
		return nil
	}
	return s.changes.rows.keys
}

func ofRepo(s State) []string {
	if s.screen != screenRepo {
		return nil
	}
	return s.repo.page.rows.keys
}

// lineOf returns the length of a typed filter. A filter that contains the name of a job or a
// repository may be as long as that.
func lineOf(before, s State) int {
	n := len([]rune(s.filter()))
	if !before.filterLine.typing || before.screen != s.screen || n <= len([]rune(before.filter())) {
		return 0
	}
	return n
}

// checkFrame renders the state and returns the invariant that the frame violates.
func (p *player) checkFrame() string {
	w, h := screenSize(p.s)
	frame := render(p.s, w, h, p.s.Caps)
	if why := violation(frame, w, h, p.s.Caps); why != "" {
		return fmt.Sprintf("%dx%d, screen %d: %s\n%s", w, h, p.s.screen, why, strip(frame))
	}
	if p.plain {
		if what := lacking(p.s, strip(frame), w, h); what != "" {
			return fmt.Sprintf("%dx%d, screen %d: no word of %s\n%s", w, h, p.s.screen, what, strip(frame))
		}
	}
	return ""
}

// TestAnySequence performs random events: none panics, cursors stay on their rows, nothing grows
// without bound, and frames are valid.
func TestAnySequence(t *testing.T) {
	t.Parallel()
	n, first := 800, seeded(t)
	if *fault {
		n = 20_000
	}
	var steps, frames atomic.Int64
	parallel(t, n, func(i int) string {
		p := newPlayer(&generator{Rand: rand.New(rand.NewPCG(first, uint64(i))), plain: i%2 == 0})
		defer func() { steps.Add(int64(p.steps)) }()
		for range 1 + p.IntN(24) {
			if why := p.step(); why != "" {
				return fmt.Sprintf("step %d, %s", p.steps, why)
			}
			if p.IntN(16) == 0 {
				frames.Add(1)
				if why := p.checkFrame(); why != "" {
					return fmt.Sprintf("step %d: %s", p.steps, why)
				}
			}
		}
		return ""
	})
	t.Logf("fault: %d sequences, %d steps, %d frames", n, steps.Load(), frames.Load())
}

// byteSource makes random numbers from the bytes of a fuzzer. Each byte is the high byte of a
// number, which selects among few options.
type byteSource struct {
	bytes []byte
	rest  *rand.PCG
}

func (t *byteSource) Uint64() uint64 {
	n := t.rest.Uint64()
	if len(t.bytes) > 0 {
		n, t.bytes = n>>8|uint64(t.bytes[0])<<56, t.bytes[1:]
	}
	return n
}

// FuzzSequence is TestAnySequence for a fuzzer, which finds sequences that chance does not.
func FuzzSequence(f *testing.F) {
	for i := range uint64(20) {
		seed := make([]byte, 400)
		rnd := rand.New(rand.NewPCG(i, 2))
		for k := range seed {
			seed[k] = byte(rnd.Uint32())
		}
		f.Add(seed, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, plain bool) {
		bytes := &byteSource{bytes: data, rest: rand.NewPCG(1, 1)}
		p := newPlayer(&generator{Rand: rand.New(bytes), plain: plain})
		for range 30 {
			if why := p.step(); why != "" {
				t.Fatalf("step %d, %s", p.steps, why)
			}
			if len(bytes.bytes) == 0 {
				break
			}
		}
		if why := p.checkFrame(); why != "" {
			t.Fatal(why)
		}
	})
}
