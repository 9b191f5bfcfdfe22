package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// The smallest terminal that shows lists; below it one line is all.
const (
	minWidth  = 40
	minHeight = 10
)

// frameRows are the lines of the frame around the body: two above and two below.
const frameRows = 4

// Render returns the frame of s on a terminal of w by h cells: exactly h lines
// of exactly w cells, joined by newlines. It is pure: the same arguments give
// the same text.
func Render(s State, w, h int, caps Caps) string {
	if w < 1 || h < 1 {
		return ""
	}
	p := view{painter: newPainter(w, h, caps), s: s.cacheRows()}
	if w < minWidth || h < minHeight {
		p.drawTiny()
	} else {
		p.drawFrame()
	}
	return p.canvas.frame(caps.look())
}

// view draws one frame.
type view struct {
	*painter
	s State

	clicks []clickArea
}

// drawTiny is the whole screen where nothing else fits.
func (p *view) drawTiny() {
	counts := p.s.Snap.Counts
	failing := 0
	for _, r := range p.s.Snap.Repos {
		if repoState(r) == "error" {
			failing++
		}
	}
	txt := fmt.Sprintf("limpet: %d working %d pending %d failing, make me %dx%d", counts.Working, counts.Pending, failing, minWidth, minHeight)
	for y, l := range wrap(txt, p.w) {
		p.put(0, y, p.w, rolePlain, l)
	}
}

func (p *view) drawFrame() {
	p.header()
	if p.s.offline() {
		p.banner()
	} else {
		p.tabs()
	}
	top, bottom := 2, p.h+2-frameRows // the body, bottom not included
	screens[p.s.screen].draw(p, 0, top, p.w, bottom-top)
	p.status(p.h - 2)
	p.hints(p.h - 1)
	if p.s.overlay != nil {
		p.s.overlay.draw(p)
		if p.s.toast != "" { // a box may be as high as the screen, and what it did is said there too
			p.fill(0, p.h-2, p.w, rolePlain, " ")
			p.status(p.h - 2)
		}
	}
}

// header is the first line: who, where, how the API does, the clock. On a narrow
// screen whole parts go, the least telling first; none is cut in the middle.
func (p *view) header() {
	a, api := p.s.Snap.Agent, p.s.Snap.API
	x := p.put(3, 0, p.w, roleTitle, "limpet "+cut(text.OrDash(a.Version), min(p.w-32, 24), p.g.more))
	r, txt := p.apiState()
	insecure := ""
	if api.Insecure {
		insecure = "TLS unchecked"
	}
	clock := p.s.Now.UTC().Format("15:04:05Z")
	parts := []struct {
		role role
		text string
		rank int // the highest goes first; 0 stays
	}{
		{rolePlain, cut(text.OrDash(a.Host), 20, p.g.more), 3}, {r, txt, 0}, {roleBad, insecure, 1}, {roleDim, p.s.Source, 4}, {roleDim, clock, 2},
	}
	for {
		width, worst := x+1, 0
		for i, part := range parts {
			if part.text == "" {
				continue
			}
			width += displaywidth.String(part.text) + 2
			if part.rank > parts[worst].rank || parts[worst].text == "" {
				worst = i
			}
		}
		if width < p.w || parts[worst].rank == 0 {
			break
		}
		if short, long := strings.CutPrefix(parts[worst].text, "attached to "); long && worst == 3 {
			parts[worst].text = short
			continue
		}
		parts[worst].text = ""
	}
	x++
	for _, part := range parts[:3] {
		if part.text != "" {
			x = p.put(x+2, 0, p.w, part.role, part.text)
		}
	}
	right := strings.TrimSpace(parts[3].text + "  " + parts[4].text)
	p.right(x+2, p.w-1, 0, roleDim, right)
}

// apiState says in two words whether what is on the screen is live.
func (p *view) apiState() (role, string) {
	api := p.s.Snap.API
	switch {
	case p.s.Gone != "":
		return roleBad, p.g.ring + " daemon gone"
	case p.s.Source == FromDisk:
		return roleWarn, p.g.ring + " no agent"
	case p.s.Snap.At.IsZero():
		return roleWarn, p.g.ring + " starting"
	case !api.Up && api.Since.IsZero():
		return roleBad, p.g.ring + " API down"
	case !api.Up:
		return roleBad, p.g.ring + " API down " + text.Age(p.s.Now.Sub(api.Since))
	case !api.Synced:
		return roleWarn, p.g.ring + " API syncing"
	case api.Embedded:
		return roleGood, p.g.dot + " embedded API"
	case api.Latency > 0:
		return roleGood, fmt.Sprintf("%s API ok %dms", p.g.dot, max(api.Latency.Milliseconds(), 1))
	}
	return roleGood, p.g.dot + " API ok"
}

func (p *view) tabs() {
	x, gap := 1, 2
	for gap > 0 && p.tabsWidth(gap) > p.w {
		gap--
	}
	short := p.tabsWidth(gap) > p.w
	for _, of := range shownTabs(p.s) {
		from := x
		switch txt := tabText(p.s, of); {
		case of == screens[p.s.screen].under:
			x = p.put(x, 1, p.w, roleTitle, "["+txt+"]")
		case short:
			x = p.put(x, 1, p.w, roleDim, " "+screens[of].tab+" ")
		default:
			x = p.put(x, 1, p.w, roleDim, " "+txt+" ")
		}
		p.clickable(from, 1, x-from, 1, func(s State) State { return s.goTo(of) })
		x += gap
	}
	if a := p.s.Snap.Agent; !a.Draining.IsZero() {
		p.right(x, p.w-1, 1, roleWarn, drainText(a))
	} else if ns := "ns " + a.Namespace; a.Namespace != "" && x+displaywidth.String(ns) < p.w {
		p.right(x, p.w-1, 1, roleDim, ns)
	}
}

// tabsWidth is what the tabs take with all their words, in cells. Each has a cell on
// both sides, the gap is what is between two.
func (p *view) tabsWidth(gap int) int {
	w := 2 - gap
	for _, of := range shownTabs(p.s) {
		w += len(tabText(p.s, of)) + 2 + gap
	}
	return w
}

// drainText says of an agent that claims nothing new how far it has come.
func drainText(a snapshot.Agent) string {
	if a.Busy == 0 {
		return "drained, claims nothing"
	}
	return fmt.Sprintf("draining, %d to go", a.Busy)
}

// status is the line above the hints: what was just done, else what needs a
// person, else what is going on. Errors that nobody has read are counted at its
// end until they are.
func (p *view) status(y int) {
	s := p.s
	if s.typing && s.screen != screenHistory { // which has a line for it
		x := p.put(1, y, p.w-2, roleKey, "/ ")
		x = p.put(x, y, p.w-x-14, rolePlain, s.filter())
		p.put(x, y, 1, roleCursor, " ")
		return
	}
	room := p.w - 2
	if n := s.issues.unread(); n > 0 && s.overlay == nil {
		txt := fmt.Sprintf("e errors %d", n)
		room -= len(txt) + 2
		p.right(p.w-1-len(txt), p.w-1, y, roleBad, txt)
	}
	put := func(r role, txt string) { p.put(1, y, room, r, cut(txt, room, p.g.more)) }
	e, unread := s.issues.newest()
	switch {
	case s.toast != "" && s.toastBad:
		put(roleBad, s.toast)
	case s.toast != "":
		put(roleGood, s.toast)
	case s.Gone != "":
		put(roleBad, s.Gone)
	case s.Snap.Problem != "":
		put(roleBad, p.g.state["error"]+" "+s.Snap.Problem)
	case s.filter() != "" && s.screen != screenHistory:
		put(roleWarn, p.filterText())
	case s.offline() && s.Snap.API.Error != "" && s.Source != FromDisk:
		put(roleBad, p.awayText())
	case unread:
		put(roleBad, p.g.state["error"]+" "+e.line(s.Now))
	case s.Note != "":
		put(roleWarn, "! "+s.Note)
	case len(s.Snap.Events) > 0:
		put(roleDim, eventLine(s.Snap.Events[len(s.Snap.Events)-1], s.Now))
	}
}

// filterText says what the filter lets through. It sees the rows of the picture
// alone, which may be the beginning of a longer queue.
func (p *view) filterText() string {
	s := p.s
	if search := screens[s.screen].found; search != nil {
		return fmt.Sprintf("%q: %s; Esc clears", s.filter(), search(s))
	}
	if problem := s.filterProblem(); problem != "" {
		return problem + "; Esc clears"
	}
	if all := s.Snap.Counts.All(); all > len(s.Snap.Jobs) && s.listed() != paneSources {
		return fmt.Sprintf("filter %q: %d of the first %d jobs of %d; Esc clears", s.filter(), len(s.jobs()), len(s.Snap.Jobs), all)
	}
	if s.listed() == paneSources {
		return fmt.Sprintf("filter %q: %d of %s; Esc clears", s.filter(), len(s.sources()), text.Plural(len(s.Snap.Sources), "source"))
	}
	return fmt.Sprintf("filter %q: %d of %d jobs, %d of %d repositories; Esc clears", s.filter(), len(s.jobs()), len(s.Snap.Jobs), len(s.repos()), len(s.Snap.Repos))
}

func eventLine(e snapshot.Event, now time.Time) string {
	line := dayTime(e.At, now)
	who := e.Job
	if who == "" {
		who = e.Repo
	}
	return strings.TrimRight(line+" "+strings.TrimLeft(who+" "+e.Text, " "), " ")
}

// levelWord is the level of a line in three letters, since no colour alone may tell
// that it is an error.
func levelWord(level string) string {
	switch level {
	case "error":
		return "ERR"
	case "warn":
		return "WRN"
	}
	return "INF"
}

// hints are the keys that are of use here. Help and quit, the last two, are always
// there; what is before them goes first where there is no room.
func (p *view) hints(y int) {
	var hints [][2]string
	switch {
	case p.s.overlay != nil:
		hints = p.s.overlay.hints(p)
	case p.s.typing:
		hints = [][2]string{{"enter", "keep"}, {"esc", "clear"}, {"tab", "complete"}, {p.g.up + p.g.down, "those of before"}}
	default:
		for _, hint := range screens[p.s.screen].hints(p) {
			if b, ok := p.s.bound(hint[0]); !ok || b.refusal(p.s) == "" {
				hints = append(hints, hint)
			}
		}
		if p.s.offline() && p.s.Source != FromDisk {
			hints = slices.Insert(hints, min(2, len(hints)), [2]string{"R", "try now"}, [2]string{"D", "doctor"})
		}
		hints = append(hints, [2]string{"?", "help"}, [2]string{"q", "quit"})
	}
	if disabledReason(Retry)(p.s) == "" && !p.s.typing && p.s.overlay == nil {
		retry, help := [2]string{"r", "retry"}, len(hints)-2
		hints = slices.Insert(hints, help, retry)
		if full := slices.Index(hints, [2]string{"P", "full"}); full >= 0 && hintWidth(hints) > p.w-2 {
			hints = slices.Delete(hints, help, help+1)
			hints[full] = retry // of more use here
		}
	}
	for len(hints) > 2 && hintWidth(hints) > p.w-2 {
		hints = slices.Delete(hints, len(hints)-3, len(hints)-2)
	}
	x := 1
	for _, h := range hints {
		x = p.put(x, y, p.w-x, roleKey, h[0])
		x = p.put(x+1, y, p.w-x-1, roleDim, h[1]) + 2
	}
}
