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

// diagnosticsMaxAge is the maximum age of shown diagnostics. They are expensive: they include the
// sizes of all mirrors.
const diagnosticsMaxAge = 10 * time.Second

type agentScreen struct {
	report fetched[string, snapshot.DiagnosticsReport]
	top    int // first visible line
}

func (g *agentScreen) scroll(by int) { g.top += by }

func (g *agentScreen) fetch(s *scene) Lookup {
	if !g.report.at.IsZero() && s.Now.Sub(g.report.at) < diagnosticsMaxAge {
		return nil
	}
	return g.report.look(s, "agent", func(ctx context.Context, src Source) (snapshot.DiagnosticsReport, error) {
		return src.Diagnostics(ctx)
	})
}

func (g *agentScreen) draw(p *view, at widget.Rect) {
	p.c.Scroll(at, widget.Box{Title: "Agent", Note: p.cut(p.Snap.Agent.Host, at.W/3), Focused: true},
		g.sheet(p).Lines(p.c, at.W-4), &g.top)
}

func (g *agentScreen) sheet(p *view) (out widget.Sheet) {
	a, api, c, now := p.Snap.Agent, p.Snap.API, g.report.value, p.Now
	out.Head("Process")
	out.Add(widget.RolePlain, "pid", widget.Join(", ", fmt.Sprint(a.PID), "version "+text.OrDash(a.Version),
		widget.When(!a.Started.IsZero(), "up "+text.Age(now.Sub(a.Started))), "memory "+text.Size(a.RSS), cpuText(a, "CPU ")))
	watched := "namespace " + a.Namespace
	if a.Namespace == "" || a.Namespace == "*" {
		watched = "all namespaces"
	}
	out.Add(widget.RolePlain, "watches", watched)
	out.AddIf(a.Controllers.Mode != "", widget.RolePlain, "controllers", a.Controllers.Text()) // older daemons do not send it
	if a.Sources != nil {
		out.Add(widget.RolePlain, "sources", a.Sources.TextOf("sources"))
	}
	out.AddIf(!a.Draining.IsZero(), widget.RoleWarn, "draining", drainText(a)+", "+text.Age(now.Sub(a.Draining))+" so far")
	out.Head("API")
	r, server := p.apiState()
	if !api.Embedded {
		server = text.OrDash(api.Server) + ", " + server
	}
	out.Add(r, "server", server)
	out.AddIf(api.Error != "", widget.RoleBad, "error", api.Error)
	out.AddIf(api.Insecure, widget.RoleBad, "TLS", "the certificate is not checked")
	for _, seen := range c.Watches {
		txt := text.Thousands(seen.Objects) + " known"
		switch {
		case seen.Error != "" && api.Error != "" && strings.Contains(seen.Error, api.Error):
			out.Add(widget.RoleBad, seen.Kind, txt+"; not watched while the API is unreachable")
		case seen.Error != "":
			out.Add(widget.RoleBad, seen.Kind, txt+"; "+seen.Error)
		case !seen.Synced:
			out.Add(widget.RoleWarn, seen.Kind, "not read yet")
		default:
			out.Add(widget.RolePlain, seen.Kind, txt+", watched")
		}
		if seen.Kind != "connections" {
			continue
		}
		for _, unhealthy := range p.Snap.UnhealthyConnections {
			out.Add(widget.RoleBad, "", p.c.G.State["error"]+" "+unhealthy.Name+": "+problemText(unhealthy.Message))
		}
	}
	out.Head("Claims")
	out.Add(widget.RolePlain, "held", fmt.Sprintf("%d of %d, leases lost since the start: %d", a.Claims, a.Drivers, a.LostCount))
	for _, j := range p.Snap.Jobs {
		out.AddIf(j.Owner == "this" && j.Finished.IsZero() && j.Undelivered.IsZero(), widget.RolePlain, "", j.Name+", lease "+p.lease(j))
	}
	switch {
	case g.report.err != "":
		out.Add(widget.RoleBad, "more", "cannot be read: "+g.report.err)
	case c.At.IsZero():
		out.Add(widget.RoleDim, "more", "loading"+p.c.G.More)
	default:
		storageFacts(&out, c, now)
	}
	return out
}

func storageFacts(out *widget.Sheet, c snapshot.DiagnosticsReport, now time.Time) {
	store := c.Store
	out.Head("Store")
	out.Add(widget.RolePlain, "file", store.Path)
	out.Add(widget.RolePlain, "size", fmt.Sprintf("%s, %s free inside; history %s", text.Size(store.Bytes), text.Size(store.FreeBytes),
		text.Size(store.HistoryBytes)))
	out.Add(widget.RolePlain, "holds", fmt.Sprintf("%s finished jobs%s; %d claims, %d waiting to retry, %s objects, %d secrets",
		text.Thousands(store.History),
		widget.When(!store.Oldest.IsZero(), ", the oldest of "+widget.Ago(now, store.Oldest)), store.Claims, store.Resting,
		text.Thousands(store.Objects), store.Secrets))
	r := widget.RolePlain
	if store.DiskFree < lowDiskBytes {
		r = widget.RoleBad
	}
	out.AddIf(store.DiskFree >= 0, r, "disk", fmt.Sprintf("%s free of %s", text.Size(store.DiskFree), text.Size(store.DiskSize)))
	out.Add(widget.RolePlain, "mirrors", fmt.Sprintf("%s, %s; a cache of Git repositories",
		text.Plural(c.Mirrors.Count, "mirror"), text.Size(c.Mirrors.Bytes)))
	out.Head("Tokens")
	out.AddIf(len(c.Tokens) == 0, widget.RoleDim, "none", "no minted tokens")
	for _, t := range c.Tokens {
		r := widget.RolePlain
		if t.Failed+t.Refused > 0 {
			r = widget.RoleWarn
		}
		out.Add(r, t.Provider, fmt.Sprintf("%d cached, %d minted, %d failed, %d refused", t.Held, t.Minted, t.Failed, t.Refused))
	}
	*out = append(*out, widget.Fact{Role: widget.RoleDim, Name: "as of " + widget.Ago(now, c.At)})
}

// cpuText returns the processor use of the process after a text; "" when it is unknown.
func cpuText(a snapshot.Agent, before string) string {
	switch {
	case !(a.CPU > 0):
		return ""
	case a.CPU < 0.1:
		return before + "<0.1%"
	}
	return fmt.Sprintf("%s%.1f%%", before, min(a.CPU, 1e5))
}

// lowDiskBytes is the free disk space below which a warning is shown: one large fetch can fill it.
const lowDiskBytes = 256 << 20
