package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// The smallest terminal that shows lists. Below it the screen is one line.
const (
	MinWidth  = 40
	MinHeight = 10
)

// frameRows is the number of lines around the body: two above and two below.
const frameRows = 4

// Render returns the frame of s on a terminal of w by h cells: exactly h lines
// of exactly w cells, joined by newlines. It is pure: the same arguments give
// the same text.
func Render(s State, w, h int, caps widget.Caps) string {
	if w < 1 || h < 1 {
		return ""
	}
	p := view{Painter: widget.NewPainter(w, h, caps), s: s.cacheRows()}
	if w < MinWidth || h < MinHeight {
		p.drawTiny()
	} else {
		p.drawFrame()
	}
	return p.Canvas.Frame(caps.Look())
}

// view draws one frame.
type view struct {
	*widget.Painter
	s State

	clicks []clickArea
}

// drawTiny draws the whole screen when only one line fits.
func (p *view) drawTiny() {
	counts := p.s.Snap.Counts
	failing := 0
	for _, r := range p.s.Snap.Repos {
		if repoState(r) == "error" {
			failing++
		}
	}
	txt := fmt.Sprintf("limpet: %d working %d pending %d failing, make me %dx%d", counts.Working, counts.Pending, failing, MinWidth, MinHeight)
	for y, l := range widget.Wrap(txt, p.W) {
		p.Put(0, y, p.W, widget.RolePlain, l)
	}
}

func (p *view) drawFrame() {
	p.header()
	if p.s.offline() {
		p.banner()
	} else {
		p.tabs()
	}
	top, bottom := 2, p.H+2-frameRows // the body, bottom not included
	screens[p.s.nav.screen].draw(p, 0, top, p.W, bottom-top)
	p.status(p.H - 2)
	p.hints(p.H - 1)
	if p.s.overlay != nil {
		p.s.overlay.draw(p)
		if p.s.toast != "" { // an overlay may cover the status line, so its result is repeated there
			p.Fill(0, p.H-2, p.W, widget.RolePlain, " ")
			p.status(p.H - 2)
		}
	}
}

// header draws the first line: name, source, state of the API, clock. A narrow screen drops
// whole parts, the least important first; no part is cut.
func (p *view) header() {
	a, api := p.s.Snap.Agent, p.s.Snap.API
	x := p.Put(3, 0, p.W, widget.RoleTitle, "limpet "+widget.Cut(text.OrDash(a.Version), min(p.W-32, 24), p.G.More))
	r, txt := p.apiState()
	insecure := ""
	if api.Insecure {
		insecure = "TLS unchecked"
	}
	clock := p.s.Now.UTC().Format("15:04:05Z")
	parts := []struct {
		role widget.Role
		text string
		rank int // the highest is dropped first; 0 stays
	}{
		{widget.RolePlain, widget.Cut(text.OrDash(a.Host), 20, p.G.More), 3}, {r, txt, 0}, {widget.RoleBad, insecure, 1},
		{widget.RoleDim, p.s.Source, 4}, {widget.RoleDim, clock, 2},
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
		if width < p.W || parts[worst].rank == 0 {
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
			x = p.Put(x+2, 0, p.W, part.role, part.text)
		}
	}
	right := strings.TrimSpace(parts[3].text + "  " + parts[4].text)
	p.Right(x+2, p.W-1, 0, widget.RoleDim, right)
}

// apiState returns in two words whether the screen is live.
func (p *view) apiState() (widget.Role, string) {
	api := p.s.Snap.API
	switch {
	case p.s.Gone != "":
		return widget.RoleBad, p.G.Ring + " daemon gone"
	case p.s.Source == FromDisk:
		return widget.RoleWarn, p.G.Ring + " no agent"
	case p.s.Snap.At.IsZero():
		return widget.RoleWarn, p.G.Ring + " starting"
	case !api.Up && api.Since.IsZero():
		return widget.RoleBad, p.G.Ring + " API down"
	case !api.Up:
		return widget.RoleBad, p.G.Ring + " API down " + text.Age(p.s.Now.Sub(api.Since))
	case !api.Synced:
		return widget.RoleWarn, p.G.Ring + " API syncing"
	case api.Embedded:
		return widget.RoleGood, p.G.Dot + " embedded API"
	case api.Latency > 0:
		return widget.RoleGood, fmt.Sprintf("%s API ok %dms", p.G.Dot, max(api.Latency.Milliseconds(), 1))
	}
	return widget.RoleGood, p.G.Dot + " API ok"
}

func (p *view) tabs() {
	x, gap := 1, 2
	for gap > 0 && p.tabsWidth(gap) > p.W {
		gap--
	}
	short := p.tabsWidth(gap) > p.W
	for _, of := range shownTabs(p.s) {
		from := x
		switch txt := tabText(p.s, of); {
		case of == screens[p.s.nav.screen].under:
			x = p.Put(x, 1, p.W, widget.RoleTitle, "["+txt+"]")
		case short:
			x = p.Put(x, 1, p.W, widget.RoleDim, " "+screens[of].tab+" ")
		default:
			x = p.Put(x, 1, p.W, widget.RoleDim, " "+txt+" ")
		}
		p.clickable(from, 1, x-from, 1, func(s State) State { return s.goTo(of) })
		x += gap
	}
	if a := p.s.Snap.Agent; !a.Draining.IsZero() {
		p.Right(x, p.W-1, 1, widget.RoleWarn, drainText(a))
	} else if ns := "ns " + a.Namespace; a.Namespace != "" && x+displaywidth.String(ns) < p.W {
		p.Right(x, p.W-1, 1, widget.RoleDim, ns)
	}
}

// tabsWidth returns the width of the tabs with all their words, in cells. Each tab has a cell on
// both sides; gap is the distance between two tabs.
func (p *view) tabsWidth(gap int) int {
	w := 2 - gap
	for _, of := range shownTabs(p.s) {
		w += len(tabText(p.s, of)) + 2 + gap
	}
	return w
}

// drainText describes the progress of a draining agent.
func drainText(a snapshot.Agent) string {
	if a.Busy == 0 {
		return "drained, claims nothing"
	}
	return fmt.Sprintf("draining, %d to go", a.Busy)
}

// status draws the line above the hints: the last result, else a problem that needs attention,
// else the current activity. Unread errors are counted at its end.
func (p *view) status(y int) {
	s := p.s
	if s.input.typing && s.nav.screen != screenHistory { // the history has its own line for it
		x := p.Put(1, y, p.W-2, widget.RoleKey, "/ ")
		x = p.Put(x, y, p.W-x-14, widget.RolePlain, s.filter())
		p.Put(x, y, 1, widget.RoleCursor, " ")
		return
	}
	room := p.W - 2
	if n := s.issues.unread(); n > 0 && s.overlay == nil {
		txt := fmt.Sprintf("e errors %d", n)
		room -= len(txt) + 2
		p.Right(p.W-1-len(txt), p.W-1, y, widget.RoleBad, txt)
	}
	put := func(r widget.Role, txt string) { p.Put(1, y, room, r, widget.Cut(txt, room, p.G.More)) }
	e, unread := s.issues.newest()
	switch {
	case s.toast != "" && s.toastBad:
		put(widget.RoleBad, s.toast)
	case s.toast != "":
		put(widget.RoleGood, s.toast)
	case s.Gone != "":
		put(widget.RoleBad, s.Gone)
	case s.Snap.Problem != "":
		put(widget.RoleBad, p.G.State["error"]+" "+s.Snap.Problem)
	case s.filter() != "" && s.nav.screen != screenHistory:
		put(widget.RoleWarn, p.filterText())
	case s.offline() && s.Snap.API.Error != "" && s.Source != FromDisk:
		put(widget.RoleBad, p.awayText())
	case unread:
		put(widget.RoleBad, p.G.State["error"]+" "+e.line(s.Now))
	case s.Note != "":
		put(widget.RoleWarn, "! "+s.Note)
	case len(s.Snap.Events) > 0:
		put(widget.RoleDim, eventLine(s.Snap.Events[len(s.Snap.Events)-1], s.Now))
	}
}

// filterText describes the matches of the filter. The filter covers the rows of the snapshot
// only, which may be the beginning of a longer queue.
func (p *view) filterText() string {
	s := p.s
	if search := screens[s.nav.screen].found; search != nil {
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
	return fmt.Sprintf("filter %q: %d of %d jobs, %d of %d repositories; Esc clears", s.filter(), len(s.jobs()), len(s.Snap.Jobs),
		len(s.repos()), len(s.Snap.Repos))
}

func eventLine(e snapshot.Event, now time.Time) string {
	line := widget.DayTime(e.At, now)
	who := e.Job
	if who == "" {
		who = e.Repo
	}
	return strings.TrimRight(line+" "+strings.TrimLeft(who+" "+e.Text, " "), " ")
}

// levelWord returns the level of a log line in three letters, because colour alone must not mark
// an error.
func levelWord(level string) string {
	switch level {
	case "error":
		return "ERR"
	case "warn":
		return "WRN"
	}
	return "INF"
}

// hints draws the useful keys of the screen. Help and quit are last and always present; keys
// before them are dropped when there is no room.
func (p *view) hints(y int) {
	var hints [][2]string
	switch {
	case p.s.overlay != nil:
		hints = p.s.overlay.hints(p)
	case p.s.input.typing:
		hints = [][2]string{{"enter", "keep"}, {"esc", "clear"}, {"tab", "complete"}, {p.G.Up + p.G.Down, "those of before"}}
	default:
		for _, hint := range screens[p.s.nav.screen].hints(p) {
			if b, ok := p.s.bound(hint[0]); !ok || b.refusal(p.s) == "" {
				hints = append(hints, hint)
			}
		}
		if p.s.offline() && p.s.Source != FromDisk {
			hints = slices.Insert(hints, min(2, len(hints)), [2]string{"R", "try now"}, [2]string{"D", "doctor"})
		}
		hints = append(hints, [2]string{"?", "help"}, [2]string{"q", "quit"})
	}
	if disabledReason(Retry)(p.s) == "" && !p.s.input.typing && p.s.overlay == nil {
		retry, help := [2]string{"r", "retry"}, len(hints)-2
		hints = slices.Insert(hints, help, retry)
		if full := slices.Index(hints, [2]string{"P", "full"}); full >= 0 && widget.HintWidth(hints) > p.W-2 {
			hints = slices.Delete(hints, help, help+1)
			hints[full] = retry // more useful here
		}
	}
	for len(hints) > 2 && widget.HintWidth(hints) > p.W-2 {
		hints = slices.Delete(hints, len(hints)-3, len(hints)-2)
	}
	x := 1
	for _, h := range hints {
		x = p.Put(x, y, p.W-x, widget.RoleKey, h[0])
		x = p.Put(x+1, y, p.W-x-1, widget.RoleDim, h[1]) + 2
	}
}

// banner replaces the tabs while the screen is not live. It shows since when, and when the next
// retry is; a narrow screen shortens the first part.
func (p *view) banner() {
	p.Fill(0, 1, p.W, widget.RoleBanner, " ")
	next := p.nextTry()
	forms := p.bannerForms()
	for i, txt := range forms {
		if next != "" {
			txt += ". " + next
		}
		if displaywidth.String(txt) < p.W || i == len(forms)-1 {
			p.Put(0, 1, p.W, widget.RoleBanner, txt)
			return
		}
	}
}

// bannerForms returns the reason and the age of the data, the longest form first.
func (p *view) bannerForms() []string {
	at, age := widget.ClockTime(p.s.staleSince(), p.s.Now), widget.Ago(p.s.Now, p.s.staleSince())
	asOf := at + ", " + age
	switch {
	case p.s.Gone != "":
		return []string{" ! The daemon is gone, reconnecting; shown as of " + asOf, " ! The daemon is gone; shown as of " + asOf,
			" ! Daemon gone, shown: " + age, " ! Daemon gone"}
	case p.s.Source == FromDisk:
		return []string{" ! No agent works on this file; shown as of " + asOf}
	case !p.s.Snap.AsOf.IsZero():
		return []string{" ! The API has not answered yet; shown as of " + asOf, " ! No answer yet; shown: " + age, " ! OFFLINE"}
	}
	return []string{" ! OFFLINE since " + asOf + ", shown as of then", " ! OFFLINE since " + asOf, " ! OFFLINE " + age, " ! OFFLINE"}
}

// nextTry returns when the next retry is and which key retries now; "" when it is unknown.
func (p *view) nextTry() string {
	at := p.s.Snap.API.Next
	switch {
	case p.s.Source == FromDisk:
		return ""
	case p.s.Gone != "":
		at = p.s.Again
	case p.s.Snap.API.Up || at.IsZero():
		return ""
	}
	left := at.Sub(p.s.Now)
	if left <= 0 {
		return "Trying now"
	}
	return "Next try in " + text.Age(left+time.Second-1) + ", R now"
}

// awayText returns why the API is unavailable and which actions that affects.
func (p *view) awayText() string {
	api := p.s.Snap.API
	txt := p.G.State["error"] + " " + api.Error
	if api.Tries > 0 {
		txt += ", " + tries(api.Tries)
	}
	return txt + "; nothing is queued"
}

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return text.Thousands(n) + " tries"
}

// clickArea is an area that reacts to clicks.
type clickArea struct {
	x, y, w, h int
	do         func(State) State
}

// clickable registers do for clicks in an area.
func (p *view) clickable(x, y, w, h int, do func(State) State) {
	p.clicks = append(p.clicks, clickArea{x, y, w, h, do})
}

// Click returns the state after a click at column x of line y, on a terminal of w by h cells. A
// click selects a row, opens the selected row, or shows a tab. It is pure. Overlays take no
// clicks.
func (s State) Click(x, y, w, h int) State {
	if s.overlay != nil || w < MinWidth || h < MinHeight {
		return s
	}
	p := view{Painter: widget.NewPainter(w, h, s.Caps), s: s}
	p.drawFrame()
	for _, l := range p.clicks {
		if x >= l.x && x < l.x+l.w && y >= l.y && y < l.y+l.h {
			s.toast = ""
			return l.do(s)
		}
	}
	return s
}

// clickRows makes the rows of the next list clickable: to selects a row by its number, in its
// pane of the overview.
func (p *view) clickRows(in pane, to func(s State, i int) State) {
	p.OnRow = func(i, x, y, w int) {
		p.clickable(x, y, w, 1, func(s State) State {
			was := s
			s = to(s, i)
			if s.nav.screen == screenOverview {
				s.lists.focus = in
			}
			if was.cursors() == s.cursors() && was.lists.focus == s.lists.focus {
				return s.open()
			}
			return s
		})
	}
}

// cursors returns the rows under the cursors of all lists.
func (s State) cursors() [6]string {
	recent := s.repoView.recent.cursor
	if keys := widget.KeysOf(s.repoJobs(), jobKey); recent == "" && len(keys) > 0 {
		recent = keys[0]
	}
	return [6]string{s.lists.job, s.lists.repo, s.lists.source, s.history.cursor, s.changes.cursor, recent}
}

// overlay is a box over the screen. While it is open it handles all keys but Ctrl-C. Its methods
// are pure, like those of State.
type overlay interface {
	// key returns the state after a key press; s.overlay is this overlay and stays open unless
	// key changes it.
	key(s State, name, text string) (State, Outcome)
	draw(p *view)
	// hints returns its keys, each with a word, for the last line of the screen.
	hints(p *view) [][2]string
}
