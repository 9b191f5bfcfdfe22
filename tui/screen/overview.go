package screen

import (
	"fmt"
	"slices"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// wideHeight is the height from which a wide overview has the row of events, previewWidth the least
// width of the pane.
const (
	wideHeight   = 30
	previewWidth = 40
)

// overviewScreen shows jobs, repositories and, if there is room, the job under the cursor and the
// events.
type overviewScreen struct {
	onRepos bool // the list of repositories has the focus
	touched bool // the user has pressed a key since; until then the focus follows what runs
	zoomed  bool // it has the whole screen
}

// overviewPanes are the lists that the overview shows, one of which has the focus.
type overviewPanes struct {
	*overviewScreen
	jobs  *jobsScreen
	repos *reposScreen
}

// pane is a list as the overview has it.
type pane interface {
	Screen
	lister
	selector
	opener
	pane(p *view, at widget.Rect)
}

func (o overviewPanes) focused() pane {
	if o.onRepos {
		return o.repos
	}
	return o.jobs
}

func (o overviewPanes) listPosition() *position     { return o.focused().listPosition() }
func (o overviewPanes) selection(s *scene) []object { return o.focused().selection(s) }
func (o overviewPanes) open(s *scene) Outcome       { return o.focused().open(s) }
func (o overviewPanes) turn(int)                    { o.onRepos = !o.onRepos }
func (o overviewPanes) zoom()                       { o.zoomed = !o.zoomed }

func (o overviewPanes) hints(s *scene) string {
	switch {
	case s.firstRun() && s.SetUp:
		return "enter set up|1-5 screens"
	case s.firstRun():
		return "1-5 screens"
	case o.onRepos:
		return repoHints
	}
	return jobHints
}

func (o overviewPanes) draw(p *view, at widget.Rect) {
	switch {
	case p.firstRun():
		p.drawWelcome(at)
		return
	case at.H < 2*leastBlock || o.zoomed: // only one pane fits; Tab changes it
		o.focused().draw(p, at)
		return
	}
	busy, wide := unfinished(o.jobs.rows), p.c.W >= wideWidth && p.c.H >= wideHeight
	jobs := block{busy + min(len(o.jobs.rows)-busy, 3) + 3, func(at widget.Rect) { o.jobs.drawList(p, at, !o.onRepos) }}
	repos := block{len(o.repos.rows) + 3, func(at widget.Rect) { o.repos.drawList(p, at, o.onRepos) }}
	for _, b := range []*block{&jobs, &repos} {
		if b.need == 3 {
			b.need = emptyBlock
		}
	}
	blocks := [2]block{jobs, repos}
	if busy == 0 { // what runs is above, else what there is to run
		blocks = [2]block{repos, jobs}
	}
	if wide {
		first := blocks[0].draw
		blocks[0] = block{max(blocks[0].need, paneHeight), func(at widget.Rect) {
			list, side := at.Left(at.W - max(previewWidth, at.W*2/5))
			first(list)
			o.pane(p, side)
		}}
	}
	kept := 0 // for the events
	if wide {
		kept = leastBlock + 2
	}
	first, second := shares(at.H-kept, blocks[0].need, blocks[1].need)
	if kept = at.H - first - second; kept < leastBlock {
		second, kept = second+kept, 0
	} else if more := kept - max(len(p.Snap.Events), leastBlock) - 2; wide && more > 0 { // the pane has more to say
		first, kept = first+more, kept-more
	}
	for i, h := range []int{first, second} {
		var area widget.Rect
		area, at = at.Top(h)
		blocks[i].draw(area)
	}
	if kept > 0 {
		p.events(at)
	}
}

const (
	// leastBlock is the least height of a block: its edges, its heads, and a row; emptyBlock that of
	// one that says why it is empty.
	leastBlock, emptyBlock = 4, 6
	// paneHeight is that of the pane beside a list.
	paneHeight = 16
)

// block is a part of the overview and the lines that it needs.
type block struct {
	need int
	draw func(at widget.Rect)
}

// shares divides lines between two blocks as they need them; when both need more, the first one
// gets three fifths.
func shares(lines, first, second int) (int, int) {
	a := min(first, lines*3/5)
	b := max(min(second, lines-a), leastBlock)
	return min(first, lines-b), b
}

func unfinished(rows []snapshot.Job) (n int) {
	for i := range rows {
		if rows[i].Finished.IsZero() {
			n++
		}
	}
	return n
}

// events draws the events of all repositories, the newest first.
func (p *view) events(at widget.Rect) {
	p.c.Box(at, widget.Box{Title: "Events", Note: "all repositories"})
	y := at.Y + 1
	for _, e := range slices.Backward(p.Snap.Events) {
		if word, r := levelWord(e.Level); word != "DBG" && y < at.Y+at.H-1 {
			mark := map[string]string{"error": p.c.G.State["error"], "warn": p.c.G.State["warning"]}[e.Level]
			p.c.PutCut(at.X+2, y, at.W-4, r, fmt.Sprintf("%-1s %s", mark, eventLine(e, p.Now)))
			y++
		}
	}
}

// drawWelcome draws the first screen of a fresh limpet. A small one has only the commands.
func (p *view) drawWelcome(at widget.Rect) {
	start, ask := "", "Grafana's provisioning API, or any Kubernetes API. Quit, then start:"
	if p.Source != Standalone {
		start = "--daemon "
	}
	if p.SetUp {
		ask = "Grafana's provisioning API, or any Kubernetes API. Enter asks three questions and writes them down. Or quit, then start:"
	}
	const head, command, words = "#", "$", ""
	lines := [][2]string{{words, "limpet keeps Grafana dashboards in step with Git. Nothing is set up yet."}, {},
		{head, "Work on this machine"},
		{words, "limpet serves its own API here. In another terminal:"}, {command, p.limpet("repo create NAME --url URL")},
		{command, p.limpet("apply -f FILE")}, {words, "The repository appears here by itself and is pulled."}, {},
		{head, "Connect to a server"}, {words, ask}, {command, p.limpet(start + "--provisioning-server-url URL --token-file FILE")},
		{command, p.limpet(start + "--kubeconfig FILE")}, {}, {words, "To see it at work first: limpet demo"}}
	var out []widget.TextLine
	for _, l := range lines {
		style := map[string]widget.TextLine{head: {Role: widget.RoleTitle}, command: {Role: widget.RoleKey, Text: "    "},
			words: {Text: "  "}}[l[0]]
		for _, part := range widget.Wrap(l[1], at.W-6-len(style.Text)) {
			out = append(out, widget.Styled(style.Role, style.Text+part))
		}
	}
	if len(out) > at.H-2 {
		out = widget.Wrapped(widget.Wrapped(nil, widget.RoleKey, lines[4][1], at.W-6), widget.RoleKey, lines[10][1], at.W-6)
	}
	p.c.Panel(at, widget.Box{Title: "First steps", Foot: p.Snap.Agent.StorePath, Focused: true}, out)
}

// withPane returns the area of a list of n rows, and draws the pane of the row under the cursor
// below it if there is room.
func (p *view) withPane(at widget.Rect, n int, pane func(*view, widget.Rect)) widget.Rect {
	if at.H < 16 || n == 0 {
		return at
	}
	at, below := at.Top(min(max(n+3, 6), at.H*3/5))
	pane(p, below)
	return at
}

// pane shows the row under the cursor of the focused list; without a repository a job.
func (o overviewPanes) pane(p *view, at widget.Rect) {
	if len(o.repos.rows) == 0 {
		o.jobs.pane(p, at)
		return
	}
	o.focused().pane(p, at)
}

func (l *reposScreen) pane(p *view, at widget.Rect) {
	repo := *l.here()
	p.c.Panel(at, widget.Box{Title: p.cut(repo.Name, at.W-8), Foot: "enter opens, l log", More: "enter"}, p.repoLines(repo, true, at.W-4))
}

// pane shows the job under the cursor, on a wide screen beside its log.
func (l *jobsScreen) pane(p *view, at widget.Rect) {
	if len(l.rows) == 0 {
		p.c.Box(at, widget.Box{Title: "Job"})
		p.c.Empty(at, "The job under the cursor is shown here.")
		return
	}
	job := *l.here()
	if at.W >= wideWidth {
		var log widget.Rect
		at, log = at.Left(at.W / 2)
		lines := p.logEnd(job, log.H-2)
		if len(lines) == 0 {
			lines = widget.Wrapped(nil, widget.RoleDim, noLog(job), log.W-4)
		}
		p.c.Panel(log, widget.Box{Title: "Log", Foot: text.Plural(len(job.Log), "line") + ", l opens"}, lines)
		job.Log = nil
	}
	p.c.Panel(at, widget.Box{Title: p.cut(job.Name, at.W-8), Foot: "enter opens, l log, d changes", More: "enter"},
		p.preview(job, at.W-4, at.H-2))
}

// whyEmpty returns why a list of n objects has no rows: the filter, or a server that does not list
// them; nil = none exist.
func (p *view) whyEmpty(noun string, n int) []string {
	problem, snap := p.s.filterTerms().Problem, p.Snap
	switch {
	case problem != "":
		return []string{problem, "Esc clears the filter."}
	case p.s.filter() != "":
		return []string{fmt.Sprintf("No %s of %d matches %q. Esc clears the filter.", noun, n, p.s.filter())}
	case snap.API.Synced || p.Source == FromDisk:
		return nil
	case snap.Problem != "":
		return []string{"This cannot be read: " + snap.Problem}
	}
	return []string{"Nothing has been read yet" + p.c.G.More}
}

func (p *view) noJobs() []string {
	if why := p.whyEmpty("job", len(p.Snap.Jobs)); why != nil {
		return why
	}
	var last, next snapshot.Repo
	for _, r := range p.Snap.Repos {
		if r.Synced.After(last.Synced) {
			last = r
		}
		if !r.Next.IsZero() && !r.Suspended && r.Enabled && (next.Name == "" || r.Next.Before(next.Next)) {
			next = r
		}
	}
	now := p.Now
	return []string{"No jobs." + widget.When(!last.Synced.IsZero(), fmt.Sprintf(" The last pull ended %s (%s).", widget.Ago(now,
		last.Synced), last.Name)) +
		widget.When(next.Name != "" && !p.offline(), fmt.Sprintf(" Next look in %s: %s.", text.Age(next.Next.Sub(now)),
			next.Name)) + p.startHint()}
}

// startHint returns the hint of the key that starts a pull, if there is something to pull now.
func (p *view) startHint() string {
	return widget.When(p.notSentReason() == "" && len(p.Snap.Repos) > 0, " p on a repository starts a pull.")
}

func (p *view) noRepos() []string {
	why := p.whyEmpty("repository", len(p.Snap.Repos))
	switch {
	case why != nil:
		return why
	case p.Snap.API.Embedded:
		return []string{"No repositories. " + p.limpet("repo create NAME --url https://HOST/REPO.git") + " makes one."}
	}
	return []string{"No repositories here yet. Create one in Grafana under Administration, Provisioning, and it appears by itself."}
}
