package screen

import (
	"cmp"
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

// Render returns the frame of s on a terminal of w by h cells: exactly h lines of exactly w cells,
// joined by newlines. It bounds the scroll positions of s by what is shown.
func Render(s *State, w, h int) string {
	if w < 1 || h < 1 {
		return ""
	}
	s.update()
	p := &view{c: widget.NewCanvas(w, h, s.Caps), facts: &s.facts, s: &s.scene, commands: s}
	if tooSmall(w, h) {
		c := p.Snap.Counts
		txt := fmt.Sprintf("limpet: %d working %d pending, make me %dx%d", c.Working, c.Pending, MinWidth, MinHeight)
		for y, l := range widget.Wrap(txt, p.c.W) {
			p.c.Put(0, y, p.c.W, widget.RolePlain, l)
		}
	} else {
		p.header()
		if p.offline() {
			why, next := "OFFLINE", ""
			at := p.Snap.API.Next
			switch {
			case p.Gone != "":
				why, at = "Daemon gone, reconnecting", p.Again
			case p.Source == FromDisk:
				why = "No agent is running"
			case !p.Snap.AsOf.IsZero():
				why = "No answer yet"
			}
			if left := at.Sub(p.Now); p.Source != FromDisk && left > 0 {
				next = ". Next try in " + text.Age(left+time.Second-1) + ", R now"
			} else if p.Gone != "" || p.Source != FromDisk && !p.Snap.API.Up && !at.IsZero() {
				next = ". Trying now"
			}
			since := p.staleSince()
			txt := fmt.Sprintf(" ! %s; as of %s, %s", why, widget.ClockTime(since, p.Now), widget.Ago(p.Now, since))
			p.c.Fill(0, 1, p.c.W, widget.RoleBanner, " ")
			p.c.Put(0, 1, p.c.W, widget.RoleBanner, p.cut(txt, p.c.W-len(next)-1)+next)
		} else {
			drawTabs(s, p)
		}
		s.at(s.screen).draw(p, widget.Rect{Y: 2, W: p.c.W, H: p.c.H - frameRows})
		drawStatus(s, p, p.c.H-2)
		drawHints(s, p, p.c.H-1)
		if s.overlay != nil {
			s.overlay = s.overlay.draw(p)
			if s.toast != "" { // an overlay may cover the status line, so its result is repeated there
				p.c.Fill(0, p.c.H-2, p.c.W, widget.RolePlain, " ")
				drawStatus(s, p, p.c.H-2)
			}
		}
	}
	s.clicks = p.clicks
	return p.c.Frame()
}

// tooSmall reports whether a terminal, whose width is known, shows one line instead of a screen.
func tooSmall(w, h int) bool { return w > 0 && (w < MinWidth || h < MinHeight) }

type view struct {
	c *widget.Canvas
	*facts
	s        *scene
	commands commands
	clicks   []clickArea
}

// commands describes commands as they are now.
type commands interface {
	refusal(c command) string // why it is disabled; "" = it is enabled
	line(c command) string    // the command line that does the same; "" = none
}

func (p *view) cut(text string, w int) string { return widget.Cut(text, w, p.c.G.More) }

// header draws name, host, state of the API, source and clock. A narrow screen drops the less
// important parts.
func (p *view) header() {
	clock := p.Now.UTC().Format("15:04:05Z")
	right := p.Source + "  " + clock
	x := 1 + p.c.Put(3, 0, p.c.W, widget.RoleTitle, "limpet "+p.cut(text.OrDash(p.Snap.Agent.Version), min(p.c.W-32, 24)))
	state, word := p.apiState()
	left := []widget.TextLine{widget.Styled(widget.RolePlain, p.cut(text.OrDash(p.Snap.Agent.Host), 20)), widget.Styled(state, word),
		widget.Styled(widget.RoleBad, widget.When(p.Snap.API.Insecure, "TLS unchecked"))}
	for _, drop := range []func(){func() { right = strings.TrimPrefix(right, "attached to ") }, func() { right = clock },
		func() { left[0].Text = "" }, func() { right = "" }, func() { left[2].Text = "" }} {
		n := x + 4 + displaywidth.String(right)
		for _, part := range left {
			n += displaywidth.String(part.Text) + 2
		}
		if n > p.c.W {
			drop()
		}
	}
	for _, part := range left {
		if part.Text != "" {
			x = p.c.Put(x+2, 0, p.c.W, part.Role, part.Text)
		}
	}
	p.c.Right(x+2, p.c.W-1, 0, widget.RoleDim, right)
}

func (p *view) apiState() (widget.Role, string) {
	api := p.Snap.API
	switch {
	case p.Gone != "":
		return widget.RoleBad, p.c.G.Ring + " daemon gone"
	case p.Source == FromDisk:
		return widget.RoleWarn, p.c.G.Ring + " no agent"
	case p.Snap.At.IsZero():
		return widget.RoleWarn, p.c.G.Ring + " starting"
	case !api.Up && api.Since.IsZero():
		return widget.RoleBad, p.c.G.Ring + " API down"
	case !api.Up:
		return widget.RoleBad, p.c.G.Ring + " API down " + text.Age(p.Now.Sub(api.Since))
	case !api.Synced:
		return widget.RoleWarn, p.c.G.Ring + " API syncing"
	case api.Embedded:
		return widget.RoleGood, p.c.G.Dot + " embedded API"
	case api.Latency > 0:
		return widget.RoleGood, fmt.Sprintf("%s API ok %dms", p.c.G.Dot, max(api.Latency.Milliseconds(), 1))
	}
	return widget.RoleGood, p.c.G.Dot + " API ok"
}

// drawTabs draws the tabs. On a narrow screen those beside the present one show their key only.
func drawTabs(s *State, p *view) {
	x, width := 1, 1
	for _, id := range tabs {
		if available(&s.facts, id, s.tab()) {
			width += len(tabText(&s.facts, id)) + 3
		}
	}
	for _, id := range tabs {
		if !available(&s.facts, id, s.tab()) {
			continue
		}
		from := x
		role, txt := widget.RoleDim, " "+tabText(&s.facts, id)+" "
		if id == s.tab() {
			role, txt = widget.RoleTitle, "["+tabText(&s.facts, id)+"]"
		} else if width > p.c.W {
			txt = " " + screens[id].key + " "
		}
		x = p.c.Put(x, 1, p.c.W, role, txt)
		p.clickable(widget.Rect{X: from, Y: 1, W: x - from, H: 1}, id, -1)
		x = min(x+1, p.c.W)
	}
	if a := p.Snap.Agent; !a.Draining.IsZero() {
		p.c.Right(x, p.c.W-1, 1, widget.RoleWarn, drainText(a))
	} else if ns := "ns " + a.Namespace; a.Namespace != "" && x+displaywidth.String(ns) < p.c.W {
		p.c.Right(x, p.c.W-1, 1, widget.RoleDim, ns)
	}
}

func drainText(a snapshot.Agent) string {
	if a.Busy == 0 {
		return "drained, claims nothing"
	}
	return fmt.Sprintf("draining, %d to go", a.Busy)
}

// drawStatus draws the line above the hints: the last result, else a problem that needs attention,
// else the current activity. Unread errors are counted at its end.
func drawStatus(s *State, p *view, y int) {
	if s.filterLine.typing && s.screen != screenHistory { // the history has its own line for it
		p.filterInput(y, p.c.W-14)
		return
	}
	room := p.c.W - 2
	unread := s.issues.unread()
	if unread > 0 && s.overlay == nil {
		txt := fmt.Sprintf("e errors %d", unread)
		room -= len(txt) + 2
		p.c.Right(p.c.W-1-len(txt), p.c.W-1, y, widget.RoleBad, txt)
	}
	put := func(r widget.Role, txt string) { p.c.PutCut(1, y, room, r, txt) }
	bad := p.c.G.State["error"] + " "
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
		put(widget.RoleWarn, filterText(s))
	case s.offline() && s.Snap.API.Error != "" && s.Source != FromDisk:
		put(widget.RoleBad, fmt.Sprintf("%s%s, tried %s; nothing is queued", bad, s.Snap.API.Error,
			text.Plural(max(s.Snap.API.Tries, 1), "time")))
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

func (p *view) filterInput(y, end int) {
	x := p.c.Put(1, y, p.c.W, widget.RoleKey, "/ ")
	txt, r := p.s.filter(), widget.RolePlain
	if txt == "" && !p.s.filterLine.typing {
		txt, r = "repo: state: action: since: until: ref: or words", widget.RoleDim
	}
	x = p.c.Put(x, y, end-x, r, txt)
	if p.s.filterLine.typing {
		p.c.Put(x, y, 1, widget.RoleCursor, " ")
	}
}

func eventLine(e snapshot.Event, now time.Time) string {
	return widget.Join(" ", widget.DayTime(e.At, now), cmp.Or(e.Job, e.Repo), e.Text)
}

// levelWord returns the level of a log line in three letters and its colour, which alone must not
// mark an error.
func levelWord(level string) (string, widget.Role) {
	switch level {
	case "error":
		return "ERR", widget.RoleBad
	case "warn":
		return "WRN", widget.RoleWarn
	case "debug":
		return "DBG", widget.RoleDim
	}
	return "INF", widget.RolePlain
}

// drawHints draws the useful keys of the screen, as many as fit. Help and quit are last and always
// present.
func drawHints(s *State, p *view, y int) {
	var hints []widget.Hint
	switch {
	case s.overlay != nil:
		hints = p.hints(s.overlay.hints(&s.scene))
	case s.filterLine.typing:
		hints = p.hints("enter keep|esc clear|tab complete|^v history")
	default:
		useful := screens[s.screen].hints
		if h, ok := s.at(s.screen).(hinter); ok {
			useful = h.hints(&s.scene)
		}
		for _, hint := range p.hints(useful) {
			if hint.Key == "s" && slices.ContainsFunc(s.testable(), object.suspended) {
				hint.Text = "resume"
			}
			if b, ok := boundKey(&s.scene, hint.Key); !ok || s.refusal(b) == "" {
				hints = append(hints, hint)
			}
		}
		if p.offline() && p.Source != FromDisk {
			hints = slices.Insert(hints, min(2, len(hints)), p.hints("R try now|D doctor")...)
		}
		if _, why := requestFor(&s.facts, snapshot.Retry, s.selected); why == "" {
			hints = slices.Insert(hints, min(3, len(hints)), p.hints("r retry")...)
		}
		hints = append(hints, p.hints("? help|q quit")...)
	}
	for len(hints) > 2 && widget.HintWidth(hints) > p.c.W-2 {
		hints = slices.Delete(hints, len(hints)-3, len(hints)-2)
	}
	p.c.Hints(1, y, p.c.W, widget.RoleDim, hints)
}

// hints parses hints such as "^v move|enter open".
func (p *view) hints(of string) (out []widget.Hint) {
	for hint := range strings.SplitSeq(of, "|") {
		key, word, _ := strings.Cut(hint, " ")
		if key == "^v" {
			key = p.c.G.Up + p.c.G.Down
		}
		out = append(out, widget.Hint{Key: key, Text: word})
	}
	return out
}

// clickArea is a tab, or a row of the list of a screen.
type clickArea struct {
	widget.Rect
	screen screenID
	row    int // -1 for a tab
}

func (p *view) clickable(at widget.Rect, screen screenID, row int) {
	p.clicks = append(p.clicks, clickArea{at, screen, row})
}

// Click returns the state after a click at column x of line y of the last frame. A click selects a
// row, opens the selected row, or shows a tab. Overlays take no clicks.
func (s State) Click(x, y int) State {
	for _, l := range s.clicks {
		if s.overlay == nil && x >= l.X && x < l.X+l.W && y >= l.Y && y < l.Y+l.H {
			s.toast, s.overview.touched = "", true
			if l.row < 0 {
				s.goTo(l.screen)
			} else {
				s.clickRow(l.screen, l.row)
			}
			s.update()
			break
		}
	}
	return s
}

// clickRow selects a row and its pane, or opens the selected row.
func (s *State) clickRow(of screenID, row int) {
	l := s.at(of).(lister).listPosition()
	switch {
	case row >= len(l.keys): // the rows have changed since the last frame
	case l.cursor == l.keys[row] && l == s.list():
		s.open()
	default:
		l.cursor = l.keys[row]
		if s.screen == screenOverview {
			s.overview.onRepos = of == screenRepos
		}
	}
}

// drawList draws the list of a screen in a box, or why it is empty.
func drawList[T any](p *view, at widget.Rect, box widget.Box, of screenID, l *list[T], t widget.Table[T], empty []string) {
	p.c.Box(at, box)
	if len(l.rows) == 0 {
		p.c.Empty(at, empty...)
		return
	}
	t.Marked = func(i int) bool { return slices.Contains(l.marks, l.keys[i]) }
	p.c.OnRow = func(i int, at widget.Rect) { p.clickable(at, of, i) }
	t.Draw(p.c, at, l.rows, l.index(), box.Focused)
}

// place describes the position of a cursor: "3 of 12", and the number of marked rows.
func (p *view) place(l *position, all int) string {
	out := ""
	if len(l.marks) > 0 {
		out = fmt.Sprintf("%d marked, ", len(l.marks))
	}
	switch n := len(l.keys); {
	case n == 0:
		return ""
	case all > n:
		return out + fmt.Sprintf("%d of %d, %d in all", l.index()+1, n, all)
	default:
		return out + fmt.Sprintf("%d of %d", l.index()+1, n)
	}
}

// listTitle returns the title of a list of the snapshot with its age and its order.
func (p *view) listTitle(title string, l *position) string {
	if p.offline() {
		title += " (as of " + widget.ClockTime(p.staleSince(), p.Now) + ")"
	}
	if l.order != (order{}) {
		title += ", by " + l.sorts[l.order.by] + " " + map[bool]string{true: p.c.G.Down, false: p.c.G.Up}[l.order.reverse]
	}
	return title
}
