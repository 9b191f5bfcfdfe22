package screen

import (
	"fmt"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var repoScreen = screen{
	list: paneOf(paneRepos),
	selection: func(s State) (out selection) {
		if r, live := s.repo(); live {
			out.repo = &r
		}
		return out
	},
	under: screenRepos, draw: (*view).repoDetail, open: State.openRepoJob, move: State.moveRepoDetail, fetch: State.fetchRecent,
	hints: func(p *view) [][2]string {
		at := [2]string{"enter", "job"}
		if lines, h := p.s.repoHeight(); h-repoHead(lines, h) < 3 {
			at = [2]string{p.G.Up + p.G.Down, "scroll"}
		}
		return [][2]string{{"esc", "back"}, at, {"p", "pull"}, {"P", "full"}, {"s", p.suspendHint()}, {"t", "test"}, {"h", "history"},
			{"u", "url"}, {"c", "commit"}}
	},
}

// repoDetail draws one repository: its state, conditions, jobs and events.
func (p *view) repoDetail(x, y, w, h int) {
	if w >= wideWidth && h >= roomyHeight {
		p.repoWide(x, y, w, h)
		return
	}
	r, live := p.s.repo()
	facts := p.repoFacts(r, live, w-4, h < roomyHeight)
	head := repoHead(len(facts), h)
	name, title := widget.Cut(r.Name+"  "+r.Type, w/2, p.G.More), widget.Cut(r.Title, w/3, p.G.More)
	if h-head < 3 {
		top := scrolled(p.s.repoView.top, len(facts), h)
		foot := ""
		if rest := len(facts) - top - (h - 2); rest > 0 {
			foot = text.Plural(rest, "more line") + " below"
		}
		p.Box(p.G, x, y, w, h, name, title, foot, true)
		p.PutLines(x, y, w, h, facts[top:min(top+max(h-2, 0), len(facts))])
		p.Link(x+2, y+1, w-4, h-2, r.URL)
		return
	}
	p.Box(p.G, x, y, w, head, name, title, "", true)
	p.PutLines(x, y, w, head, facts)
	p.Link(x+2, y+1, w-4, head-2, r.URL)
	y, h = y+head, h-head
	// The jobs are the most important part; the chart of the day is dropped before the
	// conditions.
	jobs := 6
	if h < roomyHeight {
		jobs = 4
	}
	if h >= dayHeight+jobs {
		p.dayBox(x, y, w)
		y, h = y+dayHeight, h-dayHeight
	}
	conditions := p.conditionLines(r, w-4)
	if room := min(len(conditions)+2, h-jobs); room >= 3 && (room == len(conditions)+2 || !allConditionsTrue(r)) {
		p.Box(p.G, x, y, w, room, "Conditions", "", "", false)
		p.PutLines(x, y, w, room, conditions)
		y, h = y+room, h-room
	}
	if h >= 3 {
		p.jobsOfRepo(x, y, w, h)
	}
}

// repoHead returns how many of h lines the facts of a repository take. When fewer than three
// lines would remain, the facts take all.
func repoHead(facts, h int) int { return min(facts+2, max(h-6, min(h, 6))) }

// scrolled returns the first visible line in a box of h lines.
func scrolled(top, lines, h int) int { return max(min(top, lines-(h-2)), 0) }

// repoHeight returns the number of lines of the facts, and the height of the screen.
func (s State) repoHeight() (facts, h int) {
	p, w, h := s.layout()
	r, live := s.repo()
	return len(p.repoFacts(r, live, w-4, h < roomyHeight)), h
}

// moveRepoDetail moves the cursor among the jobs of the repository, or scrolls its facts when
// the jobs do not fit.
func (s State) moveRepoDetail(by int) State {
	if lines, h := s.repoHeight(); h-repoHead(lines, h) < 3 {
		s.repoView.top = scrolled(max(scrolled(s.repoView.top, lines, h)+by, 0), lines, h)
		return s
	}
	return s.moveRecent(by)
}

// roomyHeight is the height in lines from which each fact has its own line.
const roomyHeight = 26

// repoFacts lays out the state of a repository, one fact a line; long ones continue below. When
// tight, related facts share a line.
func (p *view) repoFacts(r snapshot.Repo, live bool, w int, tight bool) []widget.TextLine {
	return p.FactLines(p.factsOf(r, live, tight), w)
}

// factsOf returns the facts about a repository.
func (p *view) factsOf(r snapshot.Repo, live, tight bool) (out []widget.Fact) {
	fact := func(ro widget.Role, name, txt string) { out = append(out, widget.NewFact(ro, name, txt)) }
	if !live {
		fact(widget.RoleBad, "gone", "it is no longer there; this is what was seen last")
	}
	if !r.Deleting.IsZero() {
		txt := "since " + widget.Ago(p.s.Now, r.Deleting)
		if r.DeleteError != "" {
			txt += "; in the way: " + r.DeleteError
		}
		fact(widget.RoleWarn, "deleting", txt)
	}
	h := health(r)
	txt := h
	if since := failingSince(r); h == "failing" && !since.IsZero() {
		txt += " for " + text.Age(p.s.Now.Sub(since))
	}
	if !r.Checked.IsZero() {
		txt += ", checked " + widget.Ago(p.s.Now, r.Checked)
	}
	if r.Health != "" {
		txt += ": " + r.Health
	}
	fact(widget.StateRole(h), "health", txt)
	if n, since := p.s.failedInARow(); n > 1 {
		fact(widget.RoleBad, "failing", fmt.Sprintf("the last %d jobs, since %s; limpet repo test %s looks why", n,
			widget.ClockTime(since, p.s.Now), widget.Quote(r.Name)))
	}
	sync, next := p.syncText(r), p.nextText(r)
	if tight && r.Enabled && !r.Suspended && !p.s.offline() {
		sync += "; next " + next
	} else if tight {
		sync += "; " + next
	}
	fact(widget.StateRole(r.SyncState), "sync", sync)
	if r.Suspended {
		until := "until it is resumed; s resumes"
		if !r.Next.IsZero() {
			until = fmt.Sprintf("until %s, for %s more; s resumes", widget.ClockTime(r.Next, p.s.Now), text.Age(r.Next.Sub(p.s.Now)))
		}
		fact(widget.RoleWarn, "suspended", "on this agent "+until)
	}
	if !tight {
		fact(widget.RolePlain, "next", next)
	}
	fact(widget.RolePlain, "source", strings.Join(strings.Fields(r.URL+" "+r.Branch+" "+r.Path), "  "))
	fact(widget.RolePlain, "target", text.OrDash(r.Target)+", "+quotaText(r)+contentsText(r))
	if c := p.s.Snap.Agent.Controllers; c.Mode != "" {
		fact(widget.RolePlain, "controller", c.Text())
	}
	ro, token := p.tokenText(r)
	if tight {
		txt := p.webhookText(r)
		if !r.TokenEnds.IsZero() {
			txt += "; token " + token
		}
		fact(ro, "webhook", txt)
		return out
	}
	if r.Connection != "" {
		fact(widget.RolePlain, "connection", r.Connection)
	}
	fact(widget.RolePlain, "webhook", p.webhookText(r))
	if !r.TokenEnds.IsZero() {
		fact(ro, "token", token)
	}
	return out
}

func (p *view) syncText(r snapshot.Repo) string {
	state := r.SyncState
	if p.s.offline() && state == "working" {
		state = "unknown"
	}
	txt := text.OrDash(state)
	if r.SyncJob != "" && (r.SyncState == "working" || r.SyncState == "pending") { // else it is among the jobs below
		txt += ", job " + r.SyncJob
	}
	if r.LastRef != "" {
		txt += ", at " + text.ShortRef(r.LastRef)
	}
	if !r.Synced.IsZero() {
		txt += ", " + widget.Ago(p.s.Now, r.Synced)
	}
	return txt
}

func (p *view) nextText(r snapshot.Repo) string {
	every := ""
	if r.Interval > 0 {
		every = ", every " + text.Age(r.Interval)
	}
	switch {
	case !r.Enabled:
		return "off: the repository is not pulled by itself"
	case p.s.offline():
		return "the next pull is not known while " + p.s.unavailableReason() + every
	case r.Suspended:
		return "nothing while it is suspended"
	case r.Next.IsZero():
		return "not known here" + every
	}
	return "in " + text.Age(r.Next.Sub(p.s.Now)) + every
}

func quotaText(r snapshot.Repo) string {
	if r.MaxResources > 0 {
		return fmt.Sprintf("%s of %s", text.Thousands(int(r.Resources)), widget.Thousands(r.MaxResources, "object"))
	}
	return widget.Thousands(r.Resources, "object") + ", no limit"
}

// contentsText describes the kinds of the objects.
func contentsText(r snapshot.Repo) string {
	var parts []string
	for _, c := range r.Contents {
		parts = append(parts, text.Thousands(int(c.Count))+" "+c.Resource)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

func (p *view) webhookText(r snapshot.Repo) string {
	if r.Webhook == nil {
		return "none: changes are found by the interval"
	}
	txt := "registered, id " + r.Webhook.ID
	if r.Webhook.LastEvent.IsZero() {
		return txt + ", no event yet"
	}
	return txt + ", last event " + widget.Ago(p.s.Now, r.Webhook.LastEvent)
}

func (p *view) tokenText(r snapshot.Repo) (widget.Role, string) {
	switch left := r.TokenEnds.Sub(p.s.Now); {
	case r.TokenEnds.IsZero():
		return widget.RolePlain, ""
	case left <= 0:
		return widget.RoleBad, "expired " + widget.Ago(p.s.Now, r.TokenEnds)
	default:
		return widget.RolePlain, "ends in " + text.Age(left)
	}
}

// allConditionsTrue reports whether all conditions are true.
func allConditionsTrue(r snapshot.Repo) bool {
	for _, c := range r.Conditions {
		if c.Status != "True" {
			return false
		}
	}
	return true
}

// conditionLines returns the conditions: the failing ones with their messages, then the others
// in one text.
func (p *view) conditionLines(r snapshot.Repo, w int) (out []widget.TextLine) {
	item := func(ro widget.Role, state, txt string) { out = append(out, p.MarkedLines(ro, state, txt, w)...) }
	var met []string
	for _, c := range r.Conditions {
		if c.Status == "True" {
			met = append(met, c.Type+" "+c.Reason)
			continue
		}
		item(widget.RoleBad, "error", strings.TrimSuffix(c.Type+" "+c.Reason+": "+c.Message, ": "))
	}
	if len(met) > 0 {
		item(widget.RolePlain, "success", strings.Join(met, ", "))
	}
	return out
}

// suspendHint returns the word for the key s.
func (p *view) suspendHint() string {
	if r, _ := p.s.repo(); r.Suspended {
		return "resume"
	}
	return "suspend"
}

// leastJobs is the minimum height of the jobs of a repository on a wide screen, with their heads
// and edges.
const leastJobs = 9

// repoWide draws one repository on a wide screen: its state at the left; the last day, its
// objects and conditions at the right; its jobs below.
func (p *view) repoWide(x, y, w, h int) {
	r, live := p.s.repo()
	left := w * 9 / 20
	right := w - left
	facts := p.repoFacts(r, live, left-4, false)
	contents := p.contentLines(r, right-4)
	conditions := p.conditionLines(r, right-4)
	beside := dayHeight + len(conditions) + 2
	if len(contents) > 0 {
		beside += len(contents) + 2
	}
	head := min(max(len(facts)+2, beside), h-leastJobs)
	p.Box(p.G, x, y, left, head, widget.Cut(r.Name+"  "+r.Type, left/2, p.G.More), widget.Cut(r.Title, left/3, p.G.More), "", true)
	p.PutLines(x, y, left, head, facts)
	p.Link(x+2, y+1, left-4, head-2, r.URL)
	p.dayBox(x+left, y, right)
	at, room := y+dayHeight, head-dayHeight
	if n := min(len(contents)+2, room-3); len(contents) > 0 && n >= 3 {
		p.Box(p.G, x+left, at, right, n, "Made here", "", "", false)
		p.PutLines(x+left, at, right, n, contents)
		at, room = at+n, room-n
	}
	if room >= 3 {
		p.Box(p.G, x+left, at, right, room, "Conditions", "", "", false)
		p.PutLines(x+left, at, right, room, conditions)
	}
	p.jobsOfRepo(x, y+head, w, h-head)
}

// contentLines counts the objects of a repository by kind.
func (p *view) contentLines(r snapshot.Repo, w int) (out []widget.TextLine) {
	for _, c := range r.Contents {
		n := text.Thousands(int(c.Count))
		name := widget.Cut(c.Resource, max(w-displaywidth.String(n)-2, 4), p.G.More)
		out = append(out, widget.Styled(widget.RolePlain, fmt.Sprintf("%s%*s", name, max(min(w, 40)-displaywidth.String(name), len(n)+2), n)))
	}
	return out
}
