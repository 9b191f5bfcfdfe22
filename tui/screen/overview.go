package screen

import (
	"fmt"
	"slices"
	"strings"

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
		o.drawPreview(p, side)
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

// welcomeLine is one line of it. Without room, lines with the highest rank are dropped first.
type welcomeLine struct {
	rank int
	role widget.Role // RoleKey: a command
	text string
}

func (s *State) welcome(h int) []welcomeLine {
	const title, command, plain = widget.RoleTitle, widget.RoleKey, widget.RolePlain
	if h < 7 { // only the two commands fit
		return []welcomeLine{{0, command, "here: limpet repo create NAME --url URL"},
			{0, command, "a server: limpet --provisioning-server-url URL"}}
	}
	start, ask := "limpet", "Grafana's provisioning API, or any Kubernetes API. Quit, then start:"
	if s.Source != Standalone {
		start = "limpet --daemon"
	}
	if s.SetUp {
		ask = "Grafana's provisioning API, or any Kubernetes API. Enter asks three questions and writes them down. Or quit, then start:"
	}
	return []welcomeLine{
		{2, plain, "limpet keeps Grafana dashboards in step with Git. Nothing is set up yet."},
		{1, plain, ""},
		{0, title, "Work on this machine"},
		{3, plain, "limpet serves its own API here. In another terminal:"},
		{0, command, "limpet repo create NAME --url https://HOST/REPO.git"},
		{4, command, "limpet apply -f FILE"},
		{5, plain, "The repository appears here by itself and is pulled."},
		{1, plain, ""},
		{0, title, "Connect to a server"},
		{3, plain, ask},
		{0, command, start + " --provisioning-server-url URL --token-file FILE"},
		{4, command, start + " --kubeconfig FILE"},
		{1, plain, ""},
		{6, plain, "To see it at work first: limpet demo"},
	}
}

func (p *view) drawWelcome(at widget.Rect) {
	lines := p.s.welcome(at.H - 2)
	out := layWelcome(lines, at.W-6)
	for rank := 6; rank > 0; rank-- {
		for i := len(lines) - 1; i >= 0 && len(out) > at.H-2; i-- {
			if lines[i].rank == rank {
				lines = slices.Delete(lines, i, i+1)
				out = layWelcome(lines, at.W-6)
			}
		}
	}
	p.Canvas.Box(at, widget.Box{Title: "First steps", Foot: p.s.Snap.Agent.StorePath, Focused: true})
	for i, l := range out[:min(len(out), at.H-2)] {
		p.Put(3, at.Y+1+i, at.W-6, l.Role, l.Text)
	}
}

// layWelcome wraps the lines to w cells, behind a margin.
func layWelcome(lines []welcomeLine, w int) (out []widget.TextLine) {
	for _, l := range lines {
		margin := map[widget.Role]string{widget.RolePlain: "  ", widget.RoleKey: strings.Repeat(" ", min(4, w/12))}[l.role]
		for _, part := range widget.Wrap(l.text, w-len(margin)) {
			out = append(out, widget.Styled(l.role, strings.TrimRight(margin+part, " ")))
		}
	}
	return out
}

// drawPreview draws the object under the cursor of the overview beside the lists.
func (o *overviewScreen) drawPreview(p *view, at widget.Rect) {
	job, repo := p.s.jobs.here(), p.s.repos.here()
	switch {
	case o.onRepos && repo != nil:
		p.Panel(at, widget.Box{Title: p.cut(repo.Name, at.W-8), Foot: "enter opens"},
			p.repoFacts(*repo, true, true).Lines(p.Canvas, at.W-4), repo.URL)
	case o.onRepos || job == nil:
		p.Canvas.Box(at, widget.Box{Title: "Job"})
		p.Empty(at, "The job under the cursor is shown here.")
	default:
		p.Panel(at, widget.Box{Title: p.cut(job.Name, at.W-8), Foot: "enter opens"}, p.preview(*job, at.W-4, at.H-2))
	}
}

// The texts of empty lists: the reason and the next step.

// noJobs returns why the list is empty and what comes next.
func (p *view) noJobs() []string {
	seen, all := len(p.s.Snap.Jobs), p.s.Snap.Counts.All()
	problem := p.s.filterTerms().Problem
	why := p.notReadYet("The jobs")
	switch {
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case p.s.filter() != "" && all > seen:
		return []string{fmt.Sprintf("None of the first %d jobs of %d matches %q; limpet job list has them all. Esc clears the filter.",
			seen, all, p.s.filter())}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("No job of %d matches %q. Esc clears the filter.", seen, p.s.filter())}
	case why != nil:
		return why
	}
	var last, pull, check snapshot.Repo // failing repositories get a health check instead of a pull
	for _, r := range p.s.Snap.Repos {
		if r.Synced.After(last.Synced) {
			last = r
		}
		next := &pull
		if health(r) == "failing" {
			next = &check
		}
		if !r.Next.IsZero() && !r.Suspended && r.Enabled && (next.Name == "" || r.Next.Before(next.Next)) {
			*next = r
		}
	}
	txt, now := "No jobs.", p.s.Now
	if !last.Synced.IsZero() {
		runs := last.SyncState == "working" || last.SyncState == "pending" // that is the next one
		txt += fmt.Sprintf(" The last pull ended %s (%s).", widget.Ago(now, last.Synced),
			last.Name+widget.When(!runs, ": "+text.OrDash(last.SyncState)))
	}
	switch {
	case p.s.offline(): // unknown, and no pull runs
	case pull.Name != "":
		txt += fmt.Sprintf(" Next pull in %s: %s.", text.Age(pull.Next.Sub(now)), pull.Name)
	case check.Name != "":
		txt += fmt.Sprintf(" None is pulled while it fails; the next look is in %s: %s.", text.Age(check.Next.Sub(now)), check.Name)
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
func (p *view) ifSendable(txt string) string { return widget.When(p.s.notSentReason() == "", txt) }

// notReadYet returns why the server has not listed the objects, for example missing permission;
// nil = it has listed them. An empty list would be misleading.
func (p *view) notReadYet(what string) []string {
	switch snap := p.s.Snap; {
	case snap.API.Synced || p.s.Source == FromDisk:
		return nil
	case snap.Problem != "":
		return []string{what + " cannot be read: " + snap.Problem}
	}
	return []string{what + " have not been read yet" + p.G.More}
}

func (p *view) noRepos() []string {
	problem, why := p.s.filterTerms().Problem, p.notReadYet("The repositories")
	switch {
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("No repository of %d matches %q. Esc clears the filter.", len(p.s.Snap.Repos), p.s.filter())}
	case why != nil:
		return why
	case p.s.Snap.API.Embedded:
		return []string{"No repositories. limpet repo create NAME --url https://HOST/REPO.git makes one."}
	}
	return []string{"No repositories here yet. Create one in Grafana under Administration, Provisioning, and it appears by itself."}
}
