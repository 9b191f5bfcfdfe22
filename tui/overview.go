package tui

// wideWidth and wideHeight are where the overview gains its third pane and
// the lower row; sideWidth is that of the pane.
const (
	wideWidth    = 120
	wideHeight   = 30
	previewWidth = 40
)

var overviewFace = screen{
	name: "overview", tab: "1", panes: 2, under: screenOverview,
	title: func(State) string { return "Overview" },
	draw:  (*view).overview,
	hints: func(p *view) [][2]string {
		if p.s.firstRun() {
			if p.s.SetUp {
				return [][2]string{{"enter", "set up"}, {"1-5", "screens"}}
			}
			return [][2]string{{"1-5", "screens"}}
		}
		if p.s.focus == paneRepos {
			return p.repoHints()
		}
		return p.listHints()
	},
	move: func(s State, by int) State {
		if s.focus == paneRepos {
			return s.moveRepos(by)
		}
		return s.moveJobs(by)
	},
	open: func(s State) State {
		if s.focus == paneRepos {
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
	if p.w < 80 || h < 16 || p.s.zoomed[screenOverview] {
		// One pane; Tab changes it.
		if p.s.focus == paneRepos {
			p.repoList(0, top, p.w, h, true)
		} else {
			p.jobList(0, top, p.w, h, true)
		}
		return
	}
	if p.w < wideWidth || p.h < wideHeight {
		jobs := p.jobsShare((h*11+10)/20, h)
		p.jobList(0, top, p.w, jobs, p.s.focus == paneJobs)
		p.repoList(0, top+jobs, p.w, h-jobs, p.s.focus == paneRepos)
		return
	}
	low := 8
	repos := max((h-low)*2/5, 6)
	jobs := h - low - repos
	p.jobList(0, top, p.w-previewWidth, jobs, p.s.focus == paneJobs)
	p.preview(p.w-previewWidth, top, previewWidth, jobs)
	p.repoList(0, top+jobs, p.w, repos, p.s.focus == paneRepos)
	p.eventList(0, top+jobs+repos, p.w-previewWidth, low)
	p.agentBox(p.w-previewWidth, top+jobs+repos, previewWidth, low)
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
