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

// The smallest terminal that shows lists; below it one line is all.
const (
	MinWidth  = 40
	MinHeight = 10
)

// frameRows are the lines of the frame around the body: two above and two below.
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

// drawTiny is the whole screen where nothing else fits.
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
		if p.s.toast != "" { // a box may be as high as the screen, and what it did is said there too
			p.Fill(0, p.H-2, p.W, widget.RolePlain, " ")
			p.status(p.H - 2)
		}
	}
}

// header is the first line: who, where, how the API does, the clock. On a narrow
// screen whole parts go, the least telling first; none is cut in the middle.
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
		rank int // the highest goes first; 0 stays
	}{
		{widget.RolePlain, widget.Cut(text.OrDash(a.Host), 20, p.G.More), 3}, {r, txt, 0}, {widget.RoleBad, insecure, 1}, {widget.RoleDim, p.s.Source, 4}, {widget.RoleDim, clock, 2},
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

// apiState says in two words whether what is on the screen is live.
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
	if s.input.typing && s.nav.screen != screenHistory { // which has a line for it
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

// filterText says what the filter lets through. It sees the rows of the snapshot
// alone, which may be the beginning of a longer queue.
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
	return fmt.Sprintf("filter %q: %d of %d jobs, %d of %d repositories; Esc clears", s.filter(), len(s.jobs()), len(s.Snap.Jobs), len(s.repos()), len(s.Snap.Repos))
}

func eventLine(e snapshot.Event, now time.Time) string {
	line := widget.DayTime(e.At, now)
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
			hints[full] = retry // of more use here
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

// banner takes the place of the tabs while nothing is live. It says since when, and
// when it is tried again; where there is little room the first goes short.
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

// bannerForms say why nothing is live and how old what is shown is, the longest
// first.
func (p *view) bannerForms() []string {
	at, age := widget.ClockTime(p.s.staleSince(), p.s.Now), widget.Ago(p.s.Now, p.s.staleSince())
	asOf := at + ", " + age
	switch {
	case p.s.Gone != "":
		return []string{" ! The daemon is gone, reconnecting; shown as of " + asOf, " ! The daemon is gone; shown as of " + asOf, " ! Daemon gone, shown: " + age, " ! Daemon gone"}
	case p.s.Source == FromDisk:
		return []string{" ! No agent works on this file; shown as of " + asOf}
	case !p.s.Snap.AsOf.IsZero():
		return []string{" ! The API has not answered yet; shown as of " + asOf, " ! No answer yet; shown: " + age, " ! OFFLINE"}
	}
	return []string{" ! OFFLINE since " + asOf + ", shown as of then", " ! OFFLINE since " + asOf, " ! OFFLINE " + age, " ! OFFLINE"}
}

// nextTry says when it is asked again, and how to ask now; "" when that is not known.
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

// awayText is why the API is away, and what that means for who wants to act.
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

// clickArea is a part of the screen that a click means something on.
type clickArea struct {
	x, y, w, h int
	do         func(State) State
}

// clickable says that a click in an area leads to do.
func (p *view) clickable(x, y, w, h int, do func(State) State) {
	p.clicks = append(p.clicks, clickArea{x, y, w, h, do})
}

// Click returns the state after a click at column x of line y, on a terminal of
// w by h cells: a row is selected, the one that is selected already opened, a tab
// shown. It is pure. Boxes before the screen are for keys.
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

// clickRows makes the rows of the next list answer to clicks: to selects the row of a
// number, in the pane of the overview that it is in.
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

// cursors are the rows of all lists that they are on.
func (s State) cursors() [6]string {
	recent := s.repoView.recent.cursor
	if keys := widget.KeysOf(s.repoJobs(), jobKey); recent == "" && len(keys) > 0 {
		recent = keys[0]
	}
	return [6]string{s.lists.job, s.lists.repo, s.lists.source, s.history.cursor, s.changes.cursor, recent}
}

// overlay is a box before the screen. While it is there all keys are its own;
// only Ctrl-C comes first. Its methods are pure, as State's are.
type overlay interface {
	// key returns the state after a key press; s.over is this overlay, and stays
	// unless it is changed.
	key(s State, name, text string) (State, Outcome)
	draw(p *view)
	// hints are its keys, each with a word, for the last line of the screen.
	hints(p *view) [][2]string
}
