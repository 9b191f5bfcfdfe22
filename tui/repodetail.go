package tui

import (
	"fmt"
	"strings"

	"limpet/sync/view"
)

var repoFace = face{
	under: screenRepos, draw: (*painter).repoDetail, open: State.openRepoJob,
	hints: func(p *painter) [][2]string {
		return [][2]string{{"esc", "back"}, {"enter", "its job"}, {"p", "pull"}, {"P", "full"}, {"s", p.suspendHint()}}
	},
}

// repoDetail is one repository over the whole body: how it does, its conditions,
// its jobs and what was said of it.
func (p *painter) repoDetail(x, y, w, h int) {
	r, live := p.s.repo()
	facts := p.repoFacts(r, live, w-4)
	head := min(len(facts)+2, h)
	p.box(p.g, x, y, w, head, cut(r.Name+"  "+r.Type, w/2, p.g.more), cut(r.Title, w/3, p.g.more), "", true)
	p.lay(x, y, w, head, facts)
	y, h = y+head, h-head
	conditions := p.conditionLines(r, w-4)
	if room := min(len(conditions)+2, h); room >= 3 {
		p.box(p.g, x, y, w, room, "Conditions", "", "", false)
		p.lay(x, y, w, room, conditions)
		y, h = y+room, h-room
	}
	if h >= 3 {
		lines := p.repoNews(r, w-4)
		p.box(p.g, x, y, w, h, "Jobs and events", "", fmt.Sprintf("limpet history list -r %s", cut(r.Name, 30, "")), false)
		p.lay(x, y, w, h, lines)
	}
}

// lay puts lines into a box; where there is no room for all it says how many more
// there are.
func (p *painter) lay(x, y, w, h int, lines []laidOut) {
	for i, l := range lines[:min(len(lines), max(h-2, 0))] {
		if rest := len(lines) - i; i == h-3 && rest > 1 {
			l = laidOut{roleDim, fmt.Sprintf("%s %d more lines", p.g.more, rest)}
		}
		p.put(x+2, y+1+i, w-4, l.role, cut(l.text, w-4, p.g.more))
	}
}

// factWidth is the room for the name of a fact, in cells.
const factWidth = 11

// repoFacts tells how a repository does, a fact on a line; long ones go on below.
func (p *painter) repoFacts(r view.Repo, live bool, w int) (out []laidOut) {
	fact := func(ro role, name, text string) {
		for i, l := range wrap(text, w-factWidth) {
			if i > 0 {
				name = ""
			}
			out = append(out, laidOut{ro, fmt.Sprintf("%-*s%s", factWidth, name, l)})
		}
	}
	if !live {
		fact(roleBad, "gone", "it is no longer there; this is what was seen last")
	}
	if !r.Deleting.IsZero() {
		text := "since " + ago(p.s.Now, r.Deleting)
		if r.InTheWay != "" {
			text += "; in the way: " + r.InTheWay
		}
		fact(roleWarn, "deleting", text)
	}
	h := health(r)
	text := h
	if !r.Checked.IsZero() {
		text += ", checked " + ago(p.s.Now, r.Checked)
	}
	if r.Health != "" {
		text += ": " + r.Health
	}
	fact(stateRole(h), "health", text)
	fact(stateRole(r.SyncState), "sync", p.syncText(r))
	if r.Suspended {
		until := "until it is resumed: s"
		if !r.Next.IsZero() {
			until = fmt.Sprintf("until %s, for %s more; s resumes", clockTime(r.Next, p.s.Now), view.Age(r.Next.Sub(p.s.Now)))
		}
		fact(roleWarn, "suspended", "on this agent "+until)
	}
	fact(rolePlain, "next", p.nextText(r))
	fact(rolePlain, "source", strings.Join(strings.Fields(r.URL+" "+r.Branch+" "+r.Path), "  "))
	fact(rolePlain, "target", view.OrDash(r.Target)+", "+quotaText(r))
	if c := p.s.Snap.Agent.Controllers; c.Mode != "" {
		fact(rolePlain, "controller", c.Text(p.s.Now))
	}
	fact(rolePlain, "connection", view.OrDash(r.Connection))
	fact(rolePlain, "webhook", p.webhookText(r))
	ro, text := p.tokenText(r)
	fact(ro, "token", text)
	return out
}

func (p *painter) syncText(r view.Repo) string {
	state := r.SyncState
	if p.s.offline() && state == "working" {
		state = "unknown"
	}
	text := view.OrDash(state)
	if r.SyncJob != "" {
		text += ", job " + r.SyncJob
	}
	if r.LastRef != "" {
		text += ", at " + view.ShortRef(r.LastRef)
	}
	if !r.Synced.IsZero() {
		text += ", " + ago(p.s.Now, r.Synced)
	}
	return text
}

func (p *painter) nextText(r view.Repo) string {
	every := ""
	if r.Interval > 0 {
		every = ", every " + view.Age(r.Interval)
	}
	switch {
	case !r.Enabled:
		return "off: the repository is not pulled by itself"
	case p.s.offline():
		return "not known while the API is away" + every
	case r.Suspended:
		return "nothing while it is suspended"
	case r.Next.IsZero():
		return "not known here" + every
	}
	return "in " + view.Age(r.Next.Sub(p.s.Now)) + every
}

func quotaText(r view.Repo) string {
	if r.MaxResources > 0 {
		return fmt.Sprintf("%d of %d objects", r.Resources, r.MaxResources)
	}
	return fmt.Sprintf("%d objects, no limit", r.Resources)
}

func (p *painter) webhookText(r view.Repo) string {
	if r.Webhook == nil {
		return "none: changes are found by the interval"
	}
	text := "registered, id " + r.Webhook.ID
	if r.Webhook.LastEvent.IsZero() {
		return text + ", no event yet"
	}
	return text + ", last event " + ago(p.s.Now, r.Webhook.LastEvent)
}

func (p *painter) tokenText(r view.Repo) (role, string) {
	switch left := r.TokenEnds.Sub(p.s.Now); {
	case r.TokenEnds.IsZero():
		return rolePlain, "-"
	case left <= 0:
		return roleBad, "expired " + ago(p.s.Now, r.TokenEnds)
	default:
		return rolePlain, "ends in " + view.Age(left)
	}
}

// conditionLines are the conditions: those that are not met with their message,
// then the others in one piece.
func (p *painter) conditionLines(r view.Repo, w int) (out []laidOut) {
	item := func(ro role, state, text string) {
		mark := p.g.state[state] + " "
		for _, l := range wrap(text, w-2) {
			out = append(out, laidOut{ro, mark + l})
			mark = "  "
		}
	}
	var met []string
	for _, c := range r.Conditions {
		if c.Status == "True" {
			met = append(met, c.Type+" "+c.Reason)
			continue
		}
		item(roleBad, "error", strings.TrimSuffix(c.Type+" "+c.Reason+": "+c.Message, ": "))
	}
	if len(met) > 0 {
		item(rolePlain, "success", strings.Join(met, ", "))
	}
	return out
}

// repoNews are the jobs of a repository that are on the picture, then what was
// said of it, the newest first.
func (p *painter) repoNews(r view.Repo, w int) (out []laidOut) {
	jobs := map[string]bool{}
	for _, j := range p.s.Snap.Jobs {
		if j.Namespace != r.Namespace || j.Repository != r.Name {
			continue
		}
		jobs[j.Name] = true
		state := p.shown(j)
		glyph, ok := p.g.state[state]
		if !ok {
			glyph = p.g.state["unknown"]
		}
		action := strings.TrimSpace(j.Action + " " + j.Detail)
		out = append(out, laidOut{stateRole(state), fmt.Sprintf("%s %s  %s  %s", glyph, j.Name, action, p.progress(j, state, min(w/2, 40)))})
	}
	for i := len(p.s.Snap.Events) - 1; i >= 0; i-- {
		e := p.s.Snap.Events[i]
		if e.Repo != r.Name && !jobs[e.Job] {
			continue
		}
		ro := roleDim
		switch e.Level {
		case "error":
			ro = roleBad
		case "warn":
			ro = roleWarn
		}
		out = append(out, laidOut{ro, eventLine(e)})
	}
	if len(out) == 0 {
		out = append(out, laidOut{roleDim, "Nothing lately. p starts a pull."})
	}
	return out
}

// suspendHint is what s does here.
func (p *painter) suspendHint() string {
	if r, _ := p.s.repo(); r.Suspended {
		return "resume"
	}
	return "suspend"
}
