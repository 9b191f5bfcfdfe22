package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// wideHeight is the height from which a wide overview has the row of events, previewWidth the
// width of the boxes at its right.
const (
	wideHeight   = 30
	previewWidth = 40
)

// overviewScreen shows jobs, repositories and, if there is room, the job under the cursor, the
// events and the agent.
type overviewScreen struct {
	onRepos bool // the list of repositories has the focus
	zoomed  bool // it has the whole screen
}

func (o *overviewScreen) focused() Screen {
	if o.onRepos {
		return reposScreen{}
	}
	return jobsScreen{}
}

func (o *overviewScreen) list(s *State) *position     { return o.focused().(lister).list(s) }
func (o *overviewScreen) selection(s *State) []object { return o.focused().(selector).selection(s) }
func (o *overviewScreen) open(s *State)               { o.focused().(opener).open(s) }

func (o *overviewScreen) hints(p *view) string {
	switch {
	case p.s.firstRun() && p.s.SetUp:
		return "enter set up|1-5 screens"
	case p.s.firstRun():
		return "1-5 screens"
	case o.onRepos:
		return repoHints
	}
	return jobHints
}

func (o *overviewScreen) draw(p *view, at widget.Rect) {
	switch {
	case p.s.firstRun():
		p.drawWelcome(at)
		return
	case p.W < 80 || at.H < 16 || o.zoomed: // only one pane fits; Tab changes it
		o.focused().draw(p, at)
		return
	}
	var side, jobs, low, events, agent widget.Rect
	wide := p.W >= wideWidth && p.H >= wideHeight
	if wide {
		at, low = at.Top(at.H - 8)
		jobs, at = at.Top(at.H - max(at.H*2/5, 6))
		jobs, side = jobs.Left(p.W - previewWidth)
		events, agent = low.Left(p.W - previewWidth)
	} else {
		jobs, at = at.Top(p.jobsShare((at.H*11+10)/20, at.H))
	}
	p.jobList(jobs, !o.onRepos)
	p.repoList(at, o.onRepos)
	if wide {
		p.preview(side)
		p.eventList(events)
		p.agentBox(agent)
	}
}

// minJobsHeight is the height that the list of jobs always keeps, with its heads and edges.
const minJobsHeight = 7

// jobsShare returns the height of the list of jobs, at most most of the h lines for both lists.
// Lines without jobs go to repositories that need them.
func (p *view) jobsShare(most, h int) int {
	spare := most - max(len(p.s.jobs.rows)+3, minJobsHeight)
	lack := len(p.s.repos.rows) + 3 - (h - most)
	return most - max(min(spare, lack), 0)
}

func (p *view) eventList(at widget.Rect) {
	events := p.s.Snap.Events
	p.Canvas.Box(at, widget.Box{Title: "Events", Note: "all repositories", Foot: fmt.Sprintf("%d kept", len(events))})
	for i := range min(at.H-2, len(events)) {
		e := events[len(events)-1-i]
		_, r := levelWord(e.Level)
		mark := map[string]string{"error": p.G.State["error"], "warn": p.G.State["warning"]}[e.Level]
		p.PutCut(at.X+2, at.Y+1+i, at.W-4, r, fmt.Sprintf("%-1s %s", mark, eventLine(e, p.s.Now)))
	}
}

// The first screen of a fresh limpet introduces it and offers two choices: work with its own
// API, or connect to a server. It disappears with the first repository.

// welcomeLine is one line of it; an empty one is a blank line. Without room, lines with the
// highest rank are dropped first.
type welcomeLine struct {
	text    string
	command bool
	title   bool
	rank    int
}

func (p *view) welcomeLines() []welcomeLine {
	start := "limpet"
	if p.s.Source != Standalone {
		start = "limpet --daemon"
	}
	ask, then := "", "Grafana's provisioning API, or any Kubernetes API. Quit, then start:"
	if p.s.SetUp {
		ask, then = "Enter asks three questions and writes them down. Or quit, then start:", "Grafana's provisioning API, or any Kubernetes API."
	}
	lines := []welcomeLine{
		{text: "limpet keeps Grafana dashboards in step with Git. Nothing is set up yet.", rank: 2},
		{rank: 1},
		{text: "Work on this machine", title: true},
		{text: "limpet serves its own API here. In another terminal:", rank: 3},
		{text: "limpet repo create NAME --url https://HOST/REPO.git", command: true},
		{text: "limpet apply -f FILE", command: true, rank: 4},
		{text: "The repository appears here by itself and is pulled.", rank: 5},
		{rank: 1},
		{text: "Connect to a server", title: true},
		{text: then, rank: 3},
		{text: ask, rank: 3},
		{text: start + " --provisioning-server-url URL --token-file FILE", command: true},
		{text: start + " --kubeconfig FILE", command: true, rank: 4},
		{rank: 1},
		{text: "To see it at work first: limpet demo", rank: 6},
	}
	return slices.DeleteFunc(lines, func(l welcomeLine) bool { return l.text == "" && l.rank == 3 })
}

func (p *view) drawWelcome(at widget.Rect) {
	p.Canvas.Box(at, widget.Box{Title: "First steps", Foot: p.s.Snap.Agent.StorePath, Focused: true})
	lines := p.welcomeLines()
	if at.H-2 < 7 { // only the two commands fit
		lines = []welcomeLine{
			{text: "here: limpet repo create NAME --url URL", command: true},
			{text: "a server: limpet --provisioning-server-url URL", command: true},
		}
	}
	out := layWelcome(lines, p.W-6)
	for rank := 6; rank > 0; rank-- {
		for i := len(lines) - 1; i >= 0 && len(out) > at.H-2; i-- {
			if lines[i].rank == rank {
				lines = slices.Delete(lines, i, i+1)
				out = layWelcome(lines, p.W-6)
			}
		}
	}
	for i, l := range out[:min(len(out), at.H-2)] {
		p.Put(3, at.Y+1+i, p.W-6, l.Role, l.Text)
	}
}

// layWelcome wraps the lines to w cells.
func layWelcome(lines []welcomeLine, w int) []widget.TextLine {
	var out []widget.TextLine
	for _, l := range lines {
		margin, r := "", widget.RolePlain
		switch {
		case l.command:
			margin, r = strings.Repeat(" ", min(4, w/12)), widget.RoleKey
		case l.title:
			r = widget.RoleTitle
		case l.text != "":
			margin = "  "
		}
		for i, part := range widget.Wrap(l.text, w-len(margin)) {
			if l.command && i > 0 {
				part = "  " + part
			}
			out = append(out, widget.Styled(r, strings.TrimRight(margin+part, " ")))
		}
	}
	return out
}

// preview draws the object under the cursor of the overview beside the lists.
func (p *view) preview(at widget.Rect) {
	job, repo := p.s.jobs.here(), p.s.repos.here()
	box := widget.Box{Foot: "enter opens"}
	switch {
	case p.s.overview.onRepos && repo != nil:
		box.Title = p.cut(repo.Name, at.W-8)
		p.Canvas.Box(at, box)
		p.Lines(at, p.repoFacts(*repo, true, true).Lines(p.Canvas, at.W-4), repo.URL)
	case p.s.overview.onRepos || job == nil:
		p.Canvas.Box(at, widget.Box{Title: "Job"})
		p.Empty(at, "The job under the cursor is shown here.")
	default:
		box.Title = p.cut(job.Name, at.W-8)
		p.Canvas.Box(at, box)
		p.Lines(at, p.jobLines(*job, at.W-4, at.H-2))
	}
}

// jobLines describes a job on h lines of w cells: state, progress, errors, and in the remaining
// lines the end of its log.
func (p *view) jobLines(j snapshot.Job, w, h int) (out []widget.TextLine) {
	state := p.shownState(j)
	add := func(r widget.Role, texts ...string) {
		for _, txt := range texts {
			out = append(out, widget.Styled(r, txt))
		}
	}
	add(widget.StateRole(state), p.stateLine(j, state, w, false))
	if j.Total > 0 {
		txt := doneWords(j)
		if left := remaining(j, p.s.Now); left > 0 && state == "working" {
			txt += "   ~" + text.Age(left) + " left"
		}
		add(widget.RolePlain, txt)
	}
	if until := p.lease(j); j.Owner == "this" && until != "-" && !j.RenewAt.IsZero() && !p.s.offline() {
		add(widget.RolePlain, "lease "+until+", renews in "+text.Age(j.RenewAt.Sub(p.s.Now)))
	} else {
		add(widget.RolePlain, widget.Wrap(p.leaseText(j, true), w)...)
	}
	if txt := strings.TrimSpace(p.attemptText(j)); txt != "" {
		add(widget.RolePlain, txt)
	}
	if j.Branch+j.RefTo != "" {
		add(widget.RolePlain, refText(j, p.G.Arrow))
	}
	if j.Message != "" && len(j.Errors) == 0 && !genericMessage(j.Message) {
		add(widget.RolePlain, widget.Wrap(j.Message, w)...)
	}
	if len(j.Summary) > 0 {
		add(widget.RolePlain, "")
		out = append(out, p.summaryLines(j, w)...)
	}
	if troubles, _ := p.issueLines(j, w); len(troubles) > 0 {
		add(widget.RolePlain, "")
		out = append(out, troubles...)
	}
	if room := h - len(out) - 1; room > 0 && len(j.Log) > 0 {
		add(widget.RolePlain, "")
		for _, e := range j.Log[max(len(j.Log)-room, 0):] {
			level, _ := levelWord(e.Level)
			add(widget.RoleDim, e.At.UTC().Format("15:04:05")+" "+level+" "+e.Text)
		}
	}
	return out
}

// The texts of empty lists: the reason and the next step.

// noJobs returns why the list is empty and what comes next.
func (p *view) noJobs() []string {
	if problem := p.s.filterTerms().Problem; problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		seen := len(p.s.Snap.Jobs)
		if all := p.s.Snap.Counts.All(); all > seen {
			return []string{fmt.Sprintf("None of the first %d jobs of %d matches %q; limpet job list has them all. Esc clears the filter.",
				seen, all, p.s.filter())}
		}
		return []string{fmt.Sprintf("No job of %d matches %q. Esc clears the filter.", seen, p.s.filter())}
	}
	if why := p.notReadYet("The jobs"); why != nil {
		return why
	}
	txt := "No jobs."
	var next, look time.Time // failing repositories get a health check instead of a pull
	var last snapshot.Repo
	name, sick := "", ""
	for _, r := range p.s.Snap.Repos {
		if r.Synced.After(last.Synced) {
			last = r
		}
		switch failing := health(r) == "failing"; {
		case r.Next.IsZero() || r.Suspended || !r.Enabled:
		case failing && (look.IsZero() || r.Next.Before(look)):
			look, sick = r.Next, r.Name
		case !failing && (next.IsZero() || r.Next.Before(next)):
			next, name = r.Next, r.Name
		}
	}
	if !last.Synced.IsZero() {
		how := last.Name
		if last.SyncState != "working" && last.SyncState != "pending" { // those belong to the next one
			how += ": " + text.OrDash(last.SyncState)
		}
		txt += fmt.Sprintf(" The last pull ended %s (%s).", widget.Ago(p.s.Now, last.Synced), how)
	}
	switch {
	case p.s.offline(): // unknown, and no pull runs
	case name != "":
		txt += fmt.Sprintf(" Next pull in %s: %s.", text.Age(next.Sub(p.s.Now)), name)
	case sick != "":
		txt += fmt.Sprintf(" None is pulled while it fails; the next look is in %s: %s.", text.Age(look.Sub(p.s.Now)), sick)
	}
	return []string{txt + p.startHint(" p on a repository starts one.")}
}

// startHint returns the hint of the key that starts a pull, if it applies to a repository.
func (p *view) startHint(txt string) string {
	switch snap := p.s.Snap; {
	case len(snap.Repos) > 0:
	case !snap.API.Synced: // unknown
		return ""
	default:
		return " A job is about a repository, and there is none yet."
	}
	return p.ifSendable(txt)
}

// ifSendable returns a hint about a key that starts something, if actions can be sent.
func (p *view) ifSendable(txt string) string {
	if p.s.notSentReason() != "" {
		return ""
	}
	return txt
}

// notReadYet returns why the server has not listed the objects, for example missing permission;
// nil = it has listed them. An empty list would be misleading.
func (p *view) notReadYet(what string) []string {
	snap := p.s.Snap
	if snap.API.Synced || p.s.Source == FromDisk {
		return nil
	}
	out := []string{what + " have not been read yet" + p.G.More}
	if snap.Problem != "" {
		out = []string{what + " cannot be read: " + snap.Problem}
	}
	return out
}

func (p *view) noRepos() []string {
	if problem := p.s.filterTerms().Problem; problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		return []string{fmt.Sprintf("No repository of %d matches %q. Esc clears the filter.", len(p.s.Snap.Repos), p.s.filter())}
	}
	if why := p.notReadYet("The repositories"); why != nil {
		return why
	}
	if p.s.Snap.API.Embedded {
		return []string{"No repositories. limpet repo create NAME --url https://HOST/REPO.git makes one."}
	}
	return []string{"No repositories here yet. Create one in Grafana under Administration, Provisioning, and it appears by itself."}
}
