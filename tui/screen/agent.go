package screen

import (
	"context"
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// diagnosticsMaxAge is the maximum age of the diagnostics that the agent screen shows. They are
// expensive: they include the sizes of all mirrors.
const diagnosticsMaxAge = 10 * time.Second

// agentScreen shows the process, its local storage, and its connections.
type agentScreen struct {
	report fetched[string, snapshot.DiagnosticsReport]
	top    int // first visible line
}

func (g *agentScreen) scroll(s *State, by int) {
	p, at := s.layout()
	n := len(g.sheet(p).Lines(p.Canvas, at.W-4))
	g.top = widget.Scrolled(max(widget.Scrolled(g.top, n, at.H)+by, 0), n, at.H)
}

// fetch refreshes the diagnostics when they are too old.
func (g *agentScreen) fetch(s *State) Lookup {
	if !g.report.at.IsZero() && s.Now.Sub(g.report.at) < diagnosticsMaxAge {
		return nil
	}
	return g.report.look(s, "agent", func(s *State) *fetched[string, snapshot.DiagnosticsReport] { return &s.agent.report },
		func(ctx context.Context, src Source) (snapshot.DiagnosticsReport, error) { return src.Diagnostics(ctx) })
}

func (g *agentScreen) draw(p *view, at widget.Rect) {
	p.Scroll(at, widget.Box{Title: "Agent", Note: p.cut(p.s.Snap.Agent.Host, at.W/3), Focused: true},
		g.sheet(p).Lines(p.Canvas, at.W-4), g.top)
}

// agentSheet returns the facts about the agent.
func (g *agentScreen) sheet(p *view) (out widget.Sheet) {
	a, api, c := p.s.Snap.Agent, p.s.Snap.API, g.report.value
	out.Head("Process")
	up := ""
	if !a.Started.IsZero() {
		up = ", up " + text.Age(p.s.Now.Sub(a.Started))
	}
	out.Add(widget.RolePlain, "pid", fmt.Sprintf("%d, version %s%s, memory %s%s", a.PID, text.OrDash(a.Version), up, text.Size(a.RSS),
		cpuText(a, ", processor ", "")))
	out.Add(widget.RolePlain, "watches", namespaces(a.Namespace))
	if a.Controllers.Mode != "" { // older daemons do not send it
		out.Add(widget.RolePlain, "controllers", a.Controllers.Text())
	}
	if !a.Draining.IsZero() {
		out.Add(widget.RoleWarn, "draining", drainText(a)+", "+text.Age(p.s.Now.Sub(a.Draining))+" so far")
	}
	out.Head("API")
	r, txt := p.apiState()
	if !api.Embedded {
		txt = text.OrDash(api.Server) + ", " + txt
	}
	out.Add(r, "server", txt)
	if api.Error != "" {
		out.Add(widget.RoleBad, "error", api.Error)
	}
	if api.Insecure {
		out.Add(widget.RoleBad, "TLS", "the certificate is not checked")
	}
	for _, seen := range c.Watches {
		p.watchLine(&out, seen)
		if seen.Kind == "connections" {
			for _, ill := range p.s.Snap.UnhealthyConnections {
				out.Add(widget.RoleBad, "", p.G.State["error"]+" "+ill.Name+": "+problemText(ill.Message))
			}
		}
	}
	out.Head("Claims")
	out.Add(widget.RolePlain, "held", fmt.Sprintf("%d of %d, leases lost since the start: %d", a.Claims, a.Drivers, a.LostCount))
	for _, j := range p.s.Snap.Jobs {
		if j.Owner == "this" && j.Finished.IsZero() && j.Undelivered.IsZero() {
			out.Add(widget.RolePlain, "", fmt.Sprintf("%s, lease %s", j.Name, p.lease(j)))
		}
	}
	if g.report.err != "" {
		out.Add(widget.RoleBad, "the rest", "cannot be read: "+g.report.err)
		return out
	}
	if c.At.IsZero() {
		out.Add(widget.RoleDim, "the rest", "is looked up"+p.G.More)
		return out
	}
	p.storageFacts(&out, c)
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
func (p *view) watchLine(out *widget.Sheet, seen snapshot.Watch) {
	txt := fmt.Sprintf("%s known", text.Thousands(seen.Objects))
	switch {
	case seen.Error != "" && p.s.Snap.API.Error != "" && strings.Contains(seen.Error, p.s.Snap.API.Error):
		out.Add(widget.RoleBad, seen.Kind, txt+"; not watched while the API is away")
	case seen.Error != "":
		out.Add(widget.RoleBad, seen.Kind, txt+"; "+seen.Error)
	case !seen.Synced:
		out.Add(widget.RoleWarn, seen.Kind, "not read yet")
	default:
		out.Add(widget.RolePlain, seen.Kind, txt+", watched")
	}
}

// storageFacts adds the local storage of the agent.
func (p *view) storageFacts(out *widget.Sheet, c snapshot.DiagnosticsReport) {
	now := p.s.Now
	out.Head("Store")
	out.Add(widget.RolePlain, "file", c.Store.Path)
	out.Add(widget.RolePlain, "size", fmt.Sprintf("%s, of it %s free; history %s", text.Size(c.Store.Bytes),
		text.Size(c.Store.FreeBytes), text.Size(c.Store.HistoryBytes)))
	held := strings.Replace(widget.Thousands(int64(c.Store.History), "job that has ended"), "job that has endeds", "jobs that have ended", 1)
	if !c.Store.Oldest.IsZero() {
		held += ", the oldest of " + widget.Ago(now, c.Store.Oldest)
	}
	out.Add(widget.RolePlain, "holds", fmt.Sprintf("%s; %d claims, %d resting, %s objects, %d secrets", held, c.Store.Claims,
		c.Store.Resting, text.Thousands(c.Store.Objects), c.Store.Secrets))
	if c.Store.DiskFree >= 0 {
		r := widget.RolePlain
		if c.Store.DiskFree < lowDiskBytes {
			r = widget.RoleBad
		}
		out.Add(r, "disk", fmt.Sprintf("%s free of %s", text.Size(c.Store.DiskFree), text.Size(c.Store.DiskSize)))
	}
	out.Add(widget.RolePlain, "mirrors", fmt.Sprintf("%s, %s; copies of Git, made again when they are gone",
		text.Plural(c.Mirrors.Count, "mirror"), text.Size(c.Mirrors.Bytes)))
	out.Head("Tokens")
	if len(c.Tokens) == 0 {
		out.Add(widget.RoleDim, "none", "no repository proves itself with a token that is made for it")
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
		out.Add(r, t.Provider, strings.Join(parts, "; "))
	}
	*out = append(*out, widget.Fact{Role: widget.RoleDim, Name: "as of " + widget.Ago(now, c.At)})
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

// agentBox describes the agent on the overview.
func (p *view) agentBox(at widget.Rect) {
	a := p.s.Snap.Agent
	up := "-"
	if !a.Started.IsZero() {
		up = text.Age(p.s.Now.Sub(a.Started))
	}
	claims := fmt.Sprintf("claims %d of %d   lost leases %d", a.Claims, a.Drivers, a.LostCount)
	if !a.Draining.IsZero() {
		claims = drainText(a) + ", " + text.Age(p.s.Now.Sub(a.Draining)) + " so far"
	}
	rows := []string{cpuText(a, "cpu ", "   ") + fmt.Sprintf("rss %s   up %s", text.Size(a.RSS), up), claims, storeText(a),
		a.StorePath, "api " + text.OrDash(p.s.Snap.API.Server)}
	if a.Controllers.Mode != "" { // older daemons do not send it
		rows = append(rows, "repositories: "+a.Controllers.Text())
	}
	p.Canvas.Box(at, widget.Box{Title: "Agent"})
	for i, t := range rows[:min(len(rows), at.H-2)] {
		p.PutCut(at.X+2, at.Y+1+i, at.W-4, widget.RolePlain, t)
	}
}
