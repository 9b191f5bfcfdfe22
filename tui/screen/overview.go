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

// wideWidth and wideHeight are the minimum size for the third pane and the lower row of the
// overview; sideWidth is the width of that pane.
const (
	wideWidth    = 120
	wideHeight   = 30
	previewWidth = 40
)

var overviewScreen = screen{
	name: "overview", tab: "1", panes: 2, under: screenOverview,
	list: func(s State) pane { return s.lists.focus }, selection: State.rowAtCursor,
	title: func(State) string { return "Overview" },
	draw:  (*view).overview,
	hints: func(p *view) [][2]string {
		if p.s.firstRun() {
			if p.s.SetUp {
				return [][2]string{{"enter", "set up"}, {"1-5", "screens"}}
			}
			return [][2]string{{"1-5", "screens"}}
		}
		if p.s.lists.focus == paneRepos {
			return p.repoHints()
		}
		return p.listHints()
	},
	move: func(s State, by int) State {
		if s.lists.focus == paneRepos {
			return s.moveRepos(by)
		}
		return s.moveJobs(by)
	},
	open: func(s State) State {
		if s.lists.focus == paneRepos {
			return s.openRepo()
		}
		return s.openJob()
	},
}

// overview draws the first screen: jobs, repositories and, if there is room, the job under the
// cursor, the events and the agent.
func (p *view) overview(_, top, _, h int) {
	if p.s.firstRun() {
		p.drawWelcome(top, top+h)
		return
	}
	if p.W < 80 || h < 16 || p.s.lists.zoomed[screenOverview] {
		// Only one pane fits; Tab changes it.
		if p.s.lists.focus == paneRepos {
			p.repoList(0, top, p.W, h, true)
		} else {
			p.jobList(0, top, p.W, h, true)
		}
		return
	}
	if p.W < wideWidth || p.H < wideHeight {
		jobs := p.jobsShare((h*11+10)/20, h)
		p.jobList(0, top, p.W, jobs, p.s.lists.focus == paneJobs)
		p.repoList(0, top+jobs, p.W, h-jobs, p.s.lists.focus == paneRepos)
		return
	}
	low := 8
	repos := max((h-low)*2/5, 6)
	jobs := h - low - repos
	p.jobList(0, top, p.W-previewWidth, jobs, p.s.lists.focus == paneJobs)
	p.preview(p.W-previewWidth, top, previewWidth, jobs)
	p.repoList(0, top+jobs, p.W, repos, p.s.lists.focus == paneRepos)
	p.eventList(0, top+jobs+repos, p.W-previewWidth, low)
	p.agentBox(p.W-previewWidth, top+jobs+repos, previewWidth, low)
}

// minJobsHeight is the height that the list of jobs always keeps, with its heads and edges.
const minJobsHeight = 7

// jobsShare returns the height of the list of jobs, at most most of the h lines for both lists.
// Lines without jobs go to repositories that need them.
func (p *view) jobsShare(most, h int) int {
	spare := most - max(len(p.s.jobs())+3, minJobsHeight)
	lack := len(p.s.repos()) + 3 - (h - most)
	return most - max(min(spare, lack), 0)
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

func (p *view) drawWelcome(top, bottom int) {
	h := bottom - top
	p.Box(p.G, 0, top, p.W, h, "First steps", "", p.s.Snap.Agent.StorePath, true)
	lines := p.welcomeLines()
	if h-2 < 7 { // only the two commands fit
		lines = []welcomeLine{
			{text: "here: limpet repo create NAME --url URL", command: true},
			{text: "a server: limpet --provisioning-server-url URL", command: true},
		}
	}
	out := layWelcome(lines, p.W-6)
	for len(out) > h-2 {
		worst := 0
		for i, l := range lines {
			if l.rank > lines[worst].rank {
				worst = i
			}
		}
		if lines[worst].rank == 0 {
			break
		}
		lines = append(lines[:worst:worst], lines[worst+1:]...)
		out = layWelcome(lines, p.W-6)
	}
	for i, l := range out {
		if i < h-2 {
			p.Put(3, top+1+i, p.W-6, l.Role, l.Text)
		}
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
func (p *view) preview(x, y, w, h int) {
	at := p.s.selection()
	switch {
	case at.repo != nil:
		r := *at.repo
		p.Box(p.G, x, y, w, h, widget.Cut(r.Name, w-8, p.G.More), "", "enter opens", false)
		p.PutLines(x, y, w, h, p.repoFacts(r, true, w-4, true))
		p.Link(x+2, y+1, w-4, h-2, r.URL)
	case at.job == nil:
		p.Box(p.G, x, y, w, h, "Job", "", "", false)
		p.Empty(x, y, w, h, []string{"The job under the cursor is shown here."})
	default:
		p.Box(p.G, x, y, w, h, widget.Cut(at.job.Name, w-8, p.G.More), "", "enter opens", false)
		p.PutLines(x, y, w, h, p.jobLines(*at.job, w-4, h-2))
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
	add(widget.StateRole(state), p.barLine(j, state, w))
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
		add(widget.RoleHead, fmt.Sprintf("%-*s%5s%5s%5s%5s", w-20, "KIND", "NEW", "UPD", "DEL", "ERR"))
	}
	for _, s := range j.Summary {
		r := widget.RolePlain
		if s.Error > 0 {
			r = widget.RoleBad
		}
		add(r, widget.TableLine(s.Kind, w, p.G.More, s.Create, s.Update, s.Delete, s.Error))
	}
	if troubles := p.issueLines(j, w); len(troubles) > 0 {
		add(widget.RolePlain, "")
		out = append(out, troubles...)
	}
	if room := h - len(out) - 1; room > 0 && len(j.Log) > 0 {
		add(widget.RolePlain, "")
		for _, e := range j.Log[max(len(j.Log)-room, 0):] {
			add(widget.RoleDim, e.At.UTC().Format("15:04:05")+" "+levelWord(e.Level)+" "+e.Text)
		}
	}
	return out
}

// barLine returns the state of a job with a progress bar, if the progress is known.
func (p *view) barLine(j snapshot.Job, state string, w int) string {
	glyph, ok := p.G.State[state]
	if !ok {
		glyph = p.G.State["unknown"]
	}
	head := glyph + " " + state
	if e := p.elapsed(j); e != "-" {
		head += "  " + e
	}
	percent := fmt.Sprintf(" %3.0f%%", j.Progress)
	room := w - displaywidth.String(head) - len(percent) - 2
	if !j.Finished.IsZero() || !j.Undelivered.IsZero() || j.State == "pending" || j.Progress < 0 || room < 5 {
		return head
	}
	return head + "  " + p.Bar(room, j.Progress) + percent
}

// The texts of empty lists: the reason and the next step.

// noJobs returns why the list is empty and what comes next.
func (p *view) noJobs() []string {
	if problem := p.s.filterProblem(); problem != "" {
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
	if problem := p.s.filterProblem(); problem != "" {
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

// openOrSetUp handles Enter: on the first screen of a fresh limpet it starts the setup.
func (s State) openOrSetUp() (State, Outcome) {
	if s.nav.screen == screenOverview && s.firstRun() && s.SetUp {
		return s, Outcome{SetUp: true}
	}
	return s.open(), Outcome{}
}
