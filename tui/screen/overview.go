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

// wideWidth and wideHeight are where the overview gains its third pane and
// the lower row; sideWidth is that of the pane.
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

// overview is the first screen: jobs, repositories and, where there is room,
// the job under the cursor, the events and the agent.
func (p *view) overview(_, top, _, h int) {
	if p.s.firstRun() {
		p.drawWelcome(top, top+h)
		return
	}
	if p.W < 80 || h < 16 || p.s.lists.zoomed[screenOverview] {
		// One pane; Tab changes it.
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

// fewJobs is the height that the list of jobs keeps for itself with its heads and edges.
const fewJobs = 7

// jobsShare is the height of the list of jobs of h lines for both: at most so many, and
// what it has no rows for is for repositories that have no room.
func (p *view) jobsShare(most, h int) int {
	spare := most - max(len(p.s.jobs())+3, fewJobs)
	lack := len(p.s.repos()) + 3 - (h - most)
	return most - max(min(spare, lack), 0)
}

// The first screen of a fresh limpet says what it is and what the two ways on
// are: to work on its own API, or to connect to a server. It goes by itself as
// soon as there is a repository.

// welcomeLine is one line of it; an empty one is a blank line. What has a rank
// goes where there is no room, the highest first.
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
	if h-2 < 7 { // no room for more than the two commands
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

// layWelcome breaks the lines for a width of w cells.
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

// preview shows what is under the cursor of the overview beside the lists.
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

// jobLines tell of a job on h lines of w cells: how it goes, what it has done, what
// went wrong, and with the room that is left what it said last.
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

// barLine is the state of a job with a bar, as far as it is known how far it is.
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

// What stands where a list has nothing to show: why that is, and what comes next.

// noJobs says why the list is empty and what comes next.
func (p *view) noJobs() []string {
	if problem := p.s.filterProblem(); problem != "" {
		return []string{problem, "Esc clears the filter."}
	}
	if p.s.filter() != "" {
		seen := len(p.s.Snap.Jobs)
		if all := p.s.Snap.Counts.All(); all > seen {
			return []string{fmt.Sprintf("None of the first %d jobs of %d matches %q; limpet job list has them all. Esc clears the filter.", seen, all, p.s.filter())}
		}
		return []string{fmt.Sprintf("No job of %d matches %q. Esc clears the filter.", seen, p.s.filter())}
	}
	if why := p.notReadYet("The jobs"); why != nil {
		return why
	}
	txt := "No jobs."
	var next, look time.Time // a repository that fails is looked at, and not pulled
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
		if last.SyncState != "working" && last.SyncState != "pending" { // which are of the next one
			how += ": " + text.OrDash(last.SyncState)
		}
		txt += fmt.Sprintf(" The last pull ended %s (%s).", widget.Ago(p.s.Now, last.Synced), how)
	}
	switch {
	case p.s.offline(): // nobody knows, and nothing is pulled
	case name != "":
		txt += fmt.Sprintf(" Next pull in %s: %s.", text.Age(next.Sub(p.s.Now)), name)
	case sick != "":
		txt += fmt.Sprintf(" None is pulled while it fails; the next look is in %s: %s.", text.Age(look.Sub(p.s.Now)), sick)
	}
	return []string{txt + p.startHint(" p on a repository starts one.")}
}

// startHint is starts, where there is a repository for the key.
func (p *view) startHint(txt string) string {
	switch snap := p.s.Snap; {
	case len(snap.Repos) > 0:
	case !snap.API.Synced: // then nobody knows
		return ""
	default:
		return " A job is about a repository, and there is none yet."
	}
	return p.ifSendable(txt)
}

// ifSendable is a text that says which key begins something, where it does.
func (p *view) ifSendable(txt string) string {
	if p.s.notSentReason() != "" {
		return ""
	}
	return txt
}

// notReadYet says why a list is empty that the server has not told, such as that it is
// not allowed; nil = it has. An empty list would say that there is nothing.
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

// openOrSetUp is what Enter does: on the first screen of a fresh limpet it leads to
// the set-up.
func (s State) openOrSetUp() (State, Outcome) {
	if s.nav.screen == screenOverview && s.firstRun() && s.SetUp {
		return s, Outcome{SetUp: true}
	}
	return s.open(), Outcome{}
}
