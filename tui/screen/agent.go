package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var agentScreen = screen{
	name: "agent", tab: "5", under: screenAgent,
	title: func(State) string { return "Agent" },
	draw:  (*view).agent,
	hints: func(p *view) [][2]string {
		return [][2]string{{p.G.Up + p.G.Down, "scroll"}, {"esc", "back"}}
	},
	move:  State.moveAgent,
	fetch: State.fetchDiagnostics,
}

// diagnosticsMaxAge is the maximum age of the diagnostics that the agent screen shows. They are
// expensive: they include the sizes of all mirrors.
const diagnosticsMaxAge = 10 * time.Second

// diagnostics is the data of the agent screen.
type diagnostics struct {
	*snapshot.DiagnosticsReport        // never nil
	err                         string // why the lookup failed
	at                          time.Time
	asking                      bool
	scroll                      int
}

// moveAgent scrolls within the lines of the screen.
func (s State) moveAgent(by int) State {
	w, h := s.size()
	p := view{Painter: widget.NewPainter(0, 0, s.Caps), s: s}
	s.diagnostics.scroll = min(max(s.diagnostics.scroll+by, 0), max(len(p.agentLines(w-4))-(h-frameRows-2), 0))
	return s
}

// fetchDiagnostics refreshes the diagnostics when they are too old.
func (s State) fetchDiagnostics() (State, Lookup) {
	if s.diagnostics.asking || s.Gone != "" || !s.diagnostics.at.IsZero() && s.Now.Sub(s.diagnostics.at) < diagnosticsMaxAge {
		return s, nil
	}
	s.diagnostics.asking, s.diagnostics.at = true, s.Now
	return s, func(ctx context.Context, src Source) func(State) State {
		got, err := src.Diagnostics(ctx)
		return func(s State) State {
			s.diagnostics.asking, s.diagnostics.err = false, ""
			switch {
			case errors.Is(err, context.Canceled): // fetched again when the screen is shown
				s.diagnostics.at = time.Time{}
			case err != nil:
				s.diagnostics.err = text.Clean(err.Error())
			default:
				got = cleanDiagnostics(got)
				s.diagnostics.DiagnosticsReport = &got
			}
			return s
		}
	}
}

// agent draws the agent screen: the process, its local storage, and its connections.
func (p *view) agent(x, y, w, h int) {
	lines := p.agentLines(w - 4)
	top := min(p.s.diagnostics.scroll, max(len(lines)-(h-2), 0))
	foot := ""
	if len(lines) > h-2 {
		foot = fmt.Sprintf("%d/%d", top+1, len(lines))
	}
	p.Box(p.G, x, y, w, h, "Agent", widget.Cut(p.s.Snap.Agent.Host, w/3, p.G.More), foot, true)
	p.PutLines(x, y, w, h, lines[top:])
}

// sheetWidth is the width of the name of a fact, in cells.
const sheetWidth = 13

// sheet is a list of facts below heads; a head is a fact without a text.
type sheet []widget.Fact

func (s *sheet) head(txt string) { *s = append(*s, widget.NewFact(widget.RoleTitle, txt, "")) }

func (s *sheet) fact(r widget.Role, name, txt string) { *s = append(*s, widget.NewFact(r, name, txt)) }

// agentLines lays the sheet out on lines of w cells; a long fact continues below.
func (p *view) agentLines(w int) (out []widget.TextLine) {
	for _, f := range p.agentSheet() {
		if f.Text == "" {
			out = append(out, widget.Styled(f.Role, f.Name))
			continue
		}
		for i, l := range widget.Wrap(f.Text, w-sheetWidth-2) {
			if i > 0 {
				f.Name = ""
			}
			out = append(out, widget.Styled(f.Role, fmt.Sprintf("  %-*s%s", sheetWidth, f.Name, l)))
		}
	}
	return out
}

// agentSheet returns the facts about the agent.
func (p *view) agentSheet() (out sheet) {
	a, api, c := p.s.Snap.Agent, p.s.Snap.API, p.s.diagnostics
	out.head("Process")
	up := ""
	if !a.Started.IsZero() {
		up = ", up " + text.Age(p.s.Now.Sub(a.Started))
	}
	out.fact(widget.RolePlain, "pid", fmt.Sprintf("%d, version %s%s, memory %s%s", a.PID, text.OrDash(a.Version), up, text.Size(a.RSS),
		cpuText(a, ", processor ", "")))
	out.fact(widget.RolePlain, "watches", namespaces(a.Namespace))
	if a.Controllers.Mode != "" { // older daemons do not send it
		out.fact(widget.RolePlain, "controllers", a.Controllers.Text())
	}
	if !a.Draining.IsZero() {
		out.fact(widget.RoleWarn, "draining", drainText(a)+", "+text.Age(p.s.Now.Sub(a.Draining))+" so far")
	}
	out.head("API")
	r, txt := p.apiState()
	if !api.Embedded {
		txt = text.OrDash(api.Server) + ", " + txt
	}
	out.fact(r, "server", txt)
	if api.Error != "" {
		out.fact(widget.RoleBad, "error", api.Error)
	}
	if api.Insecure {
		out.fact(widget.RoleBad, "TLS", "the certificate is not checked")
	}
	for _, seen := range c.Watches {
		p.watchLine(&out, seen)
		if seen.Kind == "connections" {
			for _, ill := range p.s.Snap.UnhealthyConnections {
				out.fact(widget.RoleBad, "", strings.TrimSpace(p.G.State["error"]+" "+ill.Name+": "+
					strings.TrimPrefix(connectionProblem(ill), "Connection: ")))
			}
		}
	}
	out.head("Claims")
	out.fact(widget.RolePlain, "held", fmt.Sprintf("%d of %d, leases lost since the start: %d", a.Claims, a.Drivers, a.LostCount))
	for _, j := range p.s.Snap.Jobs {
		if j.Owner == "this" && j.Finished.IsZero() && j.Undelivered.IsZero() {
			out.fact(widget.RolePlain, "", fmt.Sprintf("%s, lease %s", j.Name, p.lease(j)))
		}
	}
	if c.err != "" {
		out.fact(widget.RoleBad, "the rest", "cannot be read: "+c.err)
		return out
	}
	if c.At.IsZero() {
		out.fact(widget.RoleDim, "the rest", "is looked up"+p.G.More)
		return out
	}
	p.storageLines(&out)
	return out
}

// namespaces describes the watched namespaces.
func namespaces(of string) string {
	if of == "" || of == "*" {
		return "all namespaces"
	}
	return "namespace " + of
}

// watchLine adds the state of a watch.
func (p *view) watchLine(out *sheet, seen snapshot.Watch) {
	txt := fmt.Sprintf("%s known", text.Thousands(seen.Objects))
	switch {
	case seen.Error != "" && p.s.Snap.API.Error != "" && strings.Contains(seen.Error, p.s.Snap.API.Error):
		out.fact(widget.RoleBad, seen.Kind, txt+"; not watched while the API is away")
	case seen.Error != "":
		out.fact(widget.RoleBad, seen.Kind, txt+"; "+seen.Error)
	case !seen.Synced:
		out.fact(widget.RoleWarn, seen.Kind, "not read yet")
	default:
		out.fact(widget.RolePlain, seen.Kind, txt+", watched")
	}
}

// storageLines adds the local storage of the agent.
func (p *view) storageLines(out *sheet) {
	c, now := p.s.diagnostics, p.s.Now
	out.head("Store")
	out.fact(widget.RolePlain, "file", c.Store.Path)
	out.fact(widget.RolePlain, "size", fmt.Sprintf("%s, of it %s free; history %s", text.Size(c.Store.Bytes),
		text.Size(c.Store.FreeBytes), text.Size(c.Store.HistoryBytes)))
	oldest, ended := "", text.Thousands(c.Store.History)+" jobs that have ended"
	if c.Store.History == 1 {
		ended = "1 job that has ended"
	}
	if !c.Store.Oldest.IsZero() {
		oldest = ", the oldest of " + widget.Ago(now, c.Store.Oldest)
	}
	out.fact(widget.RolePlain, "holds", fmt.Sprintf("%s%s; %d claims, %d resting, %s objects, %d secrets", ended, oldest,
		c.Store.Claims, c.Store.Resting, text.Thousands(c.Store.Objects), c.Store.Secrets))
	if c.Store.DiskFree >= 0 {
		r := widget.RolePlain
		if c.Store.DiskFree < lowDiskBytes {
			r = widget.RoleBad
		}
		out.fact(r, "disk", fmt.Sprintf("%s free of %s", text.Size(c.Store.DiskFree), text.Size(c.Store.DiskSize)))
	}
	out.fact(widget.RolePlain, "mirrors", fmt.Sprintf("%s, %s; copies of Git, made again when they are gone",
		text.Plural(c.Mirrors.Count, "mirror"), text.Size(c.Mirrors.Bytes)))
	out.head("Tokens")
	if len(c.Tokens) == 0 {
		out.fact(widget.RoleDim, "none", "no repository proves itself with a token that is made for it")
	}
	for _, t := range c.Tokens {
		r := widget.RolePlain
		parts := []string{text.Thousands(t.Held) + " held"}
		if t.Held > 0 {
			parts[0] += ", the oldest is " + text.Age(t.Oldest) + " old"
		}
		for _, part := range []struct {
			n    uint64
			text string
		}{{t.Minted, "made " + widget.TimesText(int(t.Minted))}, {t.Hits, "answered from memory " + widget.TimesText(int(t.Hits))},
			{t.Failed, text.Thousands(int(t.Failed)) + " could not be made"}, {t.Refused, text.Thousands(int(t.Refused)) + " were refused"}} {
			if part.n > 0 {
				parts = append(parts, part.text)
			}
		}
		if t.Failed+t.Refused > 0 {
			r = widget.RoleWarn
		}
		out.fact(r, t.Provider, strings.Join(parts, "; "))
	}
	*out = append(*out, widget.NewFact(widget.RoleDim, "as of "+widget.Ago(now, c.At), ""))
}

// cpuText returns the CPU usage of the process between two texts; "" when it is
// unknown.
func cpuText(a snapshot.Agent, before, after string) string {
	switch {
	case !(a.CPU > 0):
		return ""
	case a.CPU < 0.1:
		return before + "<0.1%" + after
	}
	return fmt.Sprintf("%s%.1f%%%s", before, min(a.CPU, 1e5), after)
}

// storeText returns the size of the state file and the contents of its history.
func storeText(a snapshot.Agent) string {
	txt := fmt.Sprintf("store %s   %s jobs", text.Size(a.StoreSize), text.Thousands(a.History))
	if a.HistoryKept > 0 {
		txt += fmt.Sprintf(", kept %s", text.Age(a.HistoryKept))
	}
	return txt
}

// lowDiskBytes is the free disk space below which a warning is shown: one large fetch can fill
// it.
const lowDiskBytes = 256 << 20

func (p *view) agentBox(x, y, w, h int) {
	a := p.s.Snap.Agent
	p.Box(p.G, x, y, w, h, "Agent", "", "", false)
	up := "-"
	if !a.Started.IsZero() {
		up = text.Age(p.s.Now.Sub(a.Started))
	}
	claims := fmt.Sprintf("claims %d of %d   lost leases %d", a.Claims, a.Drivers, a.LostCount)
	if !a.Draining.IsZero() {
		claims = drainText(a) + ", " + text.Age(p.s.Now.Sub(a.Draining)) + " so far"
	}
	rows := []string{
		cpuText(a, "cpu ", "   ") + fmt.Sprintf("rss %s   up %s", text.Size(a.RSS), up),
		claims,
		storeText(a),
		widget.Cut(a.StorePath, w-4, p.G.More),
		"api " + text.OrDash(p.s.Snap.API.Server),
	}
	if a.Controllers.Mode != "" { // older daemons do not send it
		rows = append(rows, "repositories: "+a.Controllers.Text())
	}
	for i, t := range rows {
		if i < h-2 {
			p.Put(x+2, y+1+i, w-4, widget.RolePlain, widget.Cut(t, w-4, p.G.More))
		}
	}
}
