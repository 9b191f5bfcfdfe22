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

// wideWidth is the width from which screens have more columns and boxes beside each other.
const wideWidth = 120

// Render returns the frame of s on a terminal of w by h cells: exactly h lines
// of exactly w cells, joined by newlines. It is pure: the same arguments give
// the same text.
func Render(s State, w, h int, caps widget.Caps) string {
	if w < 1 || h < 1 {
		return ""
	}
	return draw(&s, w, h, caps).Frame()
}

// draw draws one frame.
func draw(s *State, w, h int, caps widget.Caps) *view {
	s.update()
	p := &view{Canvas: widget.NewCanvas(w, h, caps), s: s, w: w}
	if w < MinWidth || h < MinHeight {
		p.drawTiny()
	} else {
		p.drawFrame()
	}
	return p
}

// view draws one frame.
type view struct {
	*widget.Canvas
	s      *State
	w      int // width of the screen, also when only lines are laid out
	clicks []clickArea
}

// cut shortens text to w cells and marks the cut.
func (p *view) cut(text string, w int) string { return widget.Cut(text, w, p.G.More) }

// arrows returns the hint of the keys that move.
func (p *view) arrows(text string) widget.Hint {
	return widget.Hint{Key: p.G.Up + p.G.Down, Text: text}
}

// drawTiny draws the whole screen when only one line fits.
func (p *view) drawTiny() {
	failing := 0
	for i := range p.s.Snap.Repos {
		if repoState(p.s.Snap.Repos[i]) == "error" {
			failing++
		}
	}
	c := p.s.Snap.Counts
	txt := fmt.Sprintf("limpet: %d working %d pending %d failing, make me %dx%d", c.Working, c.Pending, failing, MinWidth, MinHeight)
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
	p.s.at(p.s.screen).draw(p, widget.Rect{Y: 2, W: p.W, H: p.H - frameRows})
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

// headerPart is a part of the first line. A narrow screen drops whole parts, those with the
// highest rank first; 0 stays.
type headerPart struct {
	role widget.Role
	text string
	rank int
}

// header draws the first line: name, host, state of the API, source, clock.
func (p *view) header() {
	a, api := p.s.Snap.Agent, p.s.Snap.API
	x := 1 + p.Put(3, 0, p.W, widget.RoleTitle, "limpet "+p.cut(text.OrDash(a.Version), min(p.W-32, 24)))
	state, word := p.apiState()
	parts := []headerPart{{widget.RolePlain, p.cut(text.OrDash(a.Host), 20), 4}, {state, word, 0}, {widget.RoleBad, "", 1},
		{widget.RoleDim, p.s.Source, 5}, {widget.RoleDim, p.s.Now.UTC().Format("15:04:05Z"), 3}}
	if api.Insecure {
		parts[2].text = "TLS unchecked"
	}
	width := func() int {
		n := x
		for _, part := range parts {
			if part.text != "" {
				n += displaywidth.String(part.text) + 2
			}
		}
		return n
	}
	if width() >= p.W {
		parts[3].text = strings.TrimPrefix(parts[3].text, "attached to ")
	}
	for rank := 5; rank > 0 && width() >= p.W; rank-- {
		for i := range parts {
			if parts[i].rank == rank {
				parts[i].text = ""
			}
		}
	}
	for _, part := range parts[:3] {
		if part.text != "" {
			x = p.Put(x+2, 0, p.W, part.role, part.text)
		}
	}
	p.Right(x+2, p.W-1, 0, widget.RoleDim, strings.TrimSpace(parts[3].text+"  "+parts[4].text))
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

// tabs draws the tabs. On a narrow screen those beside the present one show their key only.
func (p *view) tabs() {
	width := func(gap int) int {
		w := 2 - gap
		for _, id := range tabs {
			if p.s.available(id) {
				w += len(p.s.tabText(id)) + 2 + gap
			}
		}
		return w
	}
	x, gap := 1, 2
	for gap > 0 && width(gap) > p.W {
		gap--
	}
	short := width(gap) > p.W
	for _, id := range tabs {
		if !p.s.available(id) {
			continue
		}
		from, role, txt := x, widget.RoleDim, " "+p.s.tabText(id)+" "
		if id == screens[p.s.screen].under {
			role, txt = widget.RoleTitle, "["+p.s.tabText(id)+"]"
		} else if short {
			txt = " " + screens[id].key + " "
		}
		x = p.Put(x, 1, p.W, role, txt)
		p.clickable(widget.Rect{X: from, Y: 1, W: x - from, H: 1}, func(s *State) { s.goTo(id) })
		x += gap
	}
	if a := p.s.Snap.Agent; !a.Draining.IsZero() {
		p.Right(x, p.W-1, 1, widget.RoleWarn, drainText(a))
	} else if ns := "ns " + a.Namespace; a.Namespace != "" && x+displaywidth.String(ns) < p.W {
		p.Right(x, p.W-1, 1, widget.RoleDim, ns)
	}
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
	if s.filterLine.typing && s.screen != screenHistory { // the history has its own line for it
		x := p.Put(1, y, p.W-2, widget.RoleKey, "/ ")
		x = p.Put(x, y, p.W-x-14, widget.RolePlain, s.filter())
		p.Put(x, y, 1, widget.RoleCursor, " ")
		return
	}
	room := p.W - 2
	unread := s.issues.unread()
	if unread > 0 && s.overlay == nil {
		txt := fmt.Sprintf("e errors %d", unread)
		room -= len(txt) + 2
		p.Right(p.W-1-len(txt), p.W-1, y, widget.RoleBad, txt)
	}
	put := func(r widget.Role, txt string) { p.PutCut(1, y, room, r, txt) }
	bad := p.G.State["error"] + " "
	switch {
	case s.toast != "" && s.toastBad:
		put(widget.RoleBad, s.toast)
	case s.toast != "":
		put(widget.RoleGood, s.toast)
	case s.Gone != "":
		put(widget.RoleBad, s.Gone)
	case s.Snap.Problem != "":
		put(widget.RoleBad, bad+s.Snap.Problem)
	case s.filter() != "" && s.screen != screenHistory:
		put(widget.RoleWarn, s.filterText())
	case s.offline() && s.Snap.API.Error != "" && s.Source != FromDisk:
		tries := ""
		if n := s.Snap.API.Tries; n == 1 {
			tries = ", 1 try"
		} else if n > 1 {
			tries = ", " + text.Thousands(n) + " tries"
		}
		put(widget.RoleBad, bad+s.Snap.API.Error+tries+"; nothing is queued")
	case unread > 0:
		for _, e := range slices.Backward(s.issues.list) {
			if !e.read {
				put(widget.RoleBad, bad+strings.TrimRight(widget.DayTime(e.at, s.Now)+" "+e.body(), " "))
				break
			}
		}
	case s.Note != "":
		put(widget.RoleWarn, "! "+s.Note)
	case len(s.Snap.Events) > 0:
		put(widget.RoleDim, eventLine(s.Snap.Events[len(s.Snap.Events)-1], s.Now))
	}
}

func eventLine(e snapshot.Event, now time.Time) string {
	who := e.Job
	if who == "" {
		who = e.Repo
	}
	return strings.TrimRight(widget.DayTime(e.At, now)+" "+strings.TrimLeft(who+" "+e.Text, " "), " ")
}

// levelWord returns the level of a log line in three letters, because colour alone must not mark
// an error, and its colour.
func levelWord(level string) (string, widget.Role) {
	switch level {
	case "error":
		return "ERR", widget.RoleBad
	case "warn":
		return "WRN", widget.RoleWarn
	}
	return "INF", widget.RolePlain
}

// hints draws the useful keys of the screen. Help and quit are last and always present; keys
// before them are dropped when there is no room.
func (p *view) hints(y int) {
	var hints []widget.Hint
	switch {
	case p.s.overlay != nil:
		hints = p.s.overlay.hints(p)
	case p.s.filterLine.typing:
		hints = []widget.Hint{{Key: "enter", Text: "keep"}, {Key: "esc", Text: "clear"}, {Key: "tab", Text: "complete"},
			p.arrows("those of before")}
	default:
		for _, hint := range p.keyHints() {
			if b, ok := p.s.bound(hint.Key); !ok || b.refusal(p.s) == "" {
				hints = append(hints, hint)
			}
		}
		if p.s.offline() && p.s.Source != FromDisk {
			hints = slices.Insert(hints, min(2, len(hints)), widget.Hint{Key: "R", Text: "try now"}, widget.Hint{Key: "D", Text: "doctor"})
		}
		if _, why := p.s.requestFor(Retry, p.s.selected); why == "" {
			hints = slices.Insert(hints, min(3, len(hints)), widget.Hint{Key: "r", Text: "retry"})
		}
		hints = append(hints, widget.Hint{Key: "?", Text: "help"}, widget.Hint{Key: "q", Text: "quit"})
	}
	for len(hints) > 2 && widget.HintWidth(hints) > p.W-2 {
		hints = slices.Delete(hints, len(hints)-3, len(hints)-2)
	}
	p.Canvas.Hints(1, y, p.W, widget.RoleDim, hints)
}

// keyHints returns the hints of the screen.
func (p *view) keyHints() (out []widget.Hint) {
	hints := screens[p.s.screen].hints
	if h, ok := p.s.at(p.s.screen).(hinter); ok {
		hints = h.hints(p)
	}
	for _, hint := range strings.Split(hints, "|") {
		key, word, _ := strings.Cut(hint, " ")
		if key == "^v" {
			key = p.G.Up + p.G.Down
		}
		if key == "s" && len(p.s.selected) > 0 && p.s.selected[0].suspended() {
			word = "resume"
		}
		out = append(out, widget.Hint{Key: key, Text: word})
	}
	return out
}

// banner replaces the tabs while the screen is not live. It shows how old the data is, and when
// the next retry is; a narrow screen cuts the first part.
func (p *view) banner() {
	age, at := widget.Ago(p.s.Now, p.s.staleSince()), widget.ClockTime(p.s.staleSince(), p.s.Now)
	txt := " ! OFFLINE for " + strings.TrimSuffix(age, " ago") + ", shown as of " + at
	switch {
	case p.s.Gone != "":
		txt = " ! Daemon gone, reconnecting; as of " + at + ", " + age
	case p.s.Source == FromDisk:
		txt = " ! No agent works on this file; shown as of " + at + ", " + age
	case !p.s.Snap.AsOf.IsZero():
		txt = " ! No answer yet; shown: " + age + ", as of " + at
	}
	next := widget.When(p.nextTry() != "", ". "+p.nextTry())
	p.Fill(0, 1, p.W, widget.RoleBanner, " ")
	p.Put(0, 1, p.W, widget.RoleBanner, p.cut(txt, p.W-len(next)-1)+next)
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

// clickArea is an area that reacts to clicks.
type clickArea struct {
	widget.Rect
	do func(*State)
}

// clickable registers do for clicks in an area.
func (p *view) clickable(at widget.Rect, do func(*State)) {
	p.clicks = append(p.clicks, clickArea{at, do})
}

// Click returns the state after a click at column x of line y, on a terminal of w by h cells. A
// click selects a row, opens the selected row, or shows a tab. It is pure. Overlays take no
// clicks.
func (s State) Click(x, y, w, h int) State {
	if s.overlay != nil || w < MinWidth || h < MinHeight {
		return s
	}
	for _, l := range draw(&s, w, h, s.Caps).clicks {
		if x >= l.X && x < l.X+l.W && y >= l.Y && y < l.Y+l.H {
			s.toast = ""
			l.do(&s)
			s.update()
			break
		}
	}
	return s
}

// clickRows makes the rows of the next table clickable: a click selects a row of the list, in its
// pane of the overview, or opens the selected one.
func (p *view) clickRows(of func(*State) *position) {
	p.OnRow = func(i int, at widget.Rect) {
		p.clickable(at, func(s *State) {
			l := of(s)
			if l.cursor == l.keys[i] && l == s.list() {
				s.open()
				return
			}
			l.cursor = l.keys[i]
			if s.screen == screenOverview {
				s.overview.onRepos = l == &s.repos.position
			}
		})
	}
}

// drawList draws a list in a box, or why it is empty.
func drawList[T any](p *view, at widget.Rect, box widget.Box, of func(*State) *list[T], t widget.Table[T], empty []string) {
	l := of(p.s)
	p.Canvas.Box(at, box)
	if len(l.rows) == 0 {
		p.Empty(at, empty...)
		return
	}
	t.Marked = func(i int) bool { return slices.Contains(l.marks, l.keys[i]) }
	p.clickRows(func(s *State) *position { return &of(s).position })
	t.Draw(p.Canvas, at, l.rows, l.index(), box.Focused)
}

// place describes the position of a cursor: "3/12", and the number of marked rows.
func (p *view) place(l *position, all int) string {
	out := ""
	if len(l.marks) > 0 {
		out = fmt.Sprintf("%d marked, ", len(l.marks))
	}
	switch n := len(l.keys); {
	case n == 0:
		return ""
	case all > n:
		return out + fmt.Sprintf("%d/%d of %d", l.index()+1, n, all)
	default:
		return out + fmt.Sprintf("%d/%d", l.index()+1, n)
	}
}

// listTitle returns the title of a list of the snapshot with its age and its order.
func (p *view) listTitle(title string, l *position) string {
	if p.s.offline() {
		title += " (as of " + widget.ClockTime(p.s.staleSince(), p.s.Now) + ")"
	}
	if l.order != (order{}) {
		title += ", by " + l.sorts[l.order.by] + " " + p.arrow(l.order)
	}
	return title
}
