// Package screen is the state of the dashboard and its screens, one file a screen.
//
// A frame is a function of State and size (frame.go), a key press a pure function from State to
// State (keys.go). A screen reads a scene and has its own position; what a key does elsewhere it
// returns as an Outcome, which State applies. Foreign text is cleaned once, where it enters
// (fetch.go). States have a glyph and a word, never only a colour.
package screen

import (
	"reflect"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// State is the whole input of a frame. Key, Show and the other exported methods return the next
// one and leave the present one as it is, so slices in it are copied before a change.
type State struct {
	scene
	trail
	toast    string // the notice of the last key; "" = none
	toastBad bool
	toastEnd time.Time
	out      Outcome

	jobs     jobsScreen
	repos    reposScreen
	sources  sourcesScreen
	overview overviewScreen
	detail   jobScreen
	repo     repoScreen
	source   sourceScreen
	history  historyScreen
	agent    agentScreen
	changes  changesScreen
	diff     diffScreen
	files    filesScreen

	overlay  overlay     // handles the keys; nil = none
	whenIdle bool        // quit when no job of the agent runs
	drained  bool        // the agent was drained for it
	popups   int         // counts them
	linkAt   int         // index of the web address that is copied next
	clicks   []clickArea // of the last frame
}

// facts are the snapshot and the state of its source. They decide what can be sent.
type facts struct {
	Snap     *snapshot.Snapshot // never nil, always clean
	Now      time.Time
	Source   string         // "standalone", "attached to daemon 4121"
	Note     string         // a warning about the source; "" = none
	SetUp    bool           // Enter on the first screen starts the setup
	Gone     string         // why the source is unavailable; "" = it is available
	Again    time.Time      // time of the next retry of an unavailable source; zero = now
	ReadOnly bool           // nothing is sent to the agent
	Commands func() []Entry // of the command line; nil = none
	Contexts []Entry        // sites that can be shown instead
	// Invocation adds the flags of this dashboard to command lines; nil = none.
	Invocation interface{ Complete(line string) string }
}

// scene is all that a screen reads besides its own position.
type scene struct {
	facts
	location
	W, H       int // cells of the terminal; 0 = not known yet
	Caps       widget.Caps
	filters    [screenCount]string
	filterLine filterLine
	selected   []object // what keys act on: the marked objects, else the one under the cursor
	parent     subject  // the repository of the screens below it
	compared   compared // what the screens of changes compare
	console    console
	issues     issues
	popupText  fetched[popupKey, popupText] // of the last popup
	links      []snapshot.Link              // web addresses of the selection
	wide       bool                         // names get their full width
	wraps      bool                         // long lines are wrapped
}

// toastAge is how long a notice is shown. A new error replaces it at once.
const toastAge = 5 * time.Second

// Screen is one screen with its own position. It may implement the interfaces below too.
type Screen interface{ draw(p *view, at widget.Rect) }

type (
	// lister has a list in which keys move the cursor.
	lister interface{ listPosition() *position }
	// selector has objects that keys act on.
	selector interface{ selection(s *scene) []object }
	// opener opens what is under the cursor.
	opener interface{ open(s *scene) Outcome }
	// scroller moves something else than the cursor of a list. Drawing bounds its position.
	scroller interface{ scroll(by int) }
	// paner has several parts; one has the focus, and may have the whole screen.
	paner interface {
		turn(by int)
		zoom()
	}
	// fetcher needs data that the snapshot does not contain; nil = it needs none now.
	fetcher interface{ fetch(s *scene) Lookup }
	// refresher recomputes its rows after each change.
	refresher interface{ refresh(s *scene) }
	// hinter has hints that depend on its state.
	hinter interface{ hints(s *scene) string }
	// finder has lines of its own for the filter, and describes the matches.
	finder interface{ found(s *scene) string }
)

type screenID uint8

const (
	screenOverview screenID = iota
	screenJobs
	screenRepos
	screenDetail // one job
	screenRepo   // one repository
	screenHistory
	screenAgent
	screenChanges // the files that a job has changed
	screenDiff    // the diff of one of them
	screenSources
	screenSource // one source
	screenFiles  // the files of a repository
	screenCount
)

// The hints of the lists.
const (
	jobHints  = "^v move|enter open|tab pane|p pull|P full|x cancel|/ filter|l log|d changes"
	repoHints = "^v move|enter open|tab pane|p pull|P full|s suspend|h history|/ filter|t test|y YAML|l log"
)

// screens describes the screens; those with a tab have a name, a key, a label, and the words of the
// command that shows their contents. hints are the useful keys, the most useful first; help and
// quit are added.
var screens = [screenCount]struct {
	name, key, label, command string
	under                     screenID // the screen whose tab is marked
	hints                     string
}{
	screenOverview: {"overview", "1", "Overview", "status", screenOverview, jobHints},
	screenJobs:     {"jobs", "2", "Jobs", "job list", screenJobs, jobHints},
	screenRepos:    {"repositories", "3", "Repos", "repo list", screenRepos, repoHints},
	screenHistory:  {"history", "4", "History", "history list", screenHistory, "^v move|enter open|/ filter|esc back"},
	screenAgent:    {"agent", "5", "Agent", "status", screenAgent, "^v scroll|esc back"},
	screenSources: {"sources", "6", "Sources", "source list", screenSources,
		"^v move|enter open|p reconcile|d changes|s suspend|t test|/ filter|l log|o sort|u url|c commit"},
	screenDetail: {under: screenJobs,
		hints: "esc back|^v scroll|tab section|d changes|z zoom|x cancel|p pull|f follow|/ find|u url"},
	screenRepo: {under: screenRepos,
		hints: "esc back|enter job|p pull|f files|P full|x cancel|s suspend|F drift|t test|h history|u url|c commit|tab facts"},
	screenFiles:   {under: screenRepos, hints: "^v move|enter open|/ filter|u url|p pull|esc back"},
	screenChanges: {under: screenJobs, hints: "^v move|enter diff|/ find|esc back"},
	screenDiff:    {under: screenJobs, hints: "^v scroll|n next change|w wrap|/ find|esc back"},
	screenSource: {under: screenSources,
		hints: "esc back|enter changes|p reconcile|s suspend|t test|l log|u url|c commit|Y command|tab facts"},
}

// tabs are the screens with a tab, in the order of their keys.
var tabs = []screenID{screenOverview, screenJobs, screenRepos, screenHistory, screenAgent, screenSources}

func (s *State) at(id screenID) Screen {
	switch id {
	case screenJobs:
		return &s.jobs
	case screenRepos:
		return &s.repos
	case screenDetail:
		return &s.detail
	case screenRepo:
		return &s.repo
	case screenHistory:
		return &s.history
	case screenAgent:
		return &s.agent
	case screenChanges:
		return &s.changes
	case screenDiff:
		return &s.diff
	case screenSources:
		return &s.sources
	case screenSource:
		return &s.source
	case screenFiles:
		return &s.files
	}
	return overviewPanes{&s.overview, &s.jobs, &s.repos}
}

// tabText returns the text of a tab: its key, its label, and how many objects it has.
func tabText(s *facts, id screenID) string {
	txt := screens[id].key + " " + screens[id].label
	counts := map[screenID]int{screenJobs: s.Snap.Counts.All(), screenRepos: len(s.Snap.Repos), screenSources: len(s.Snap.Sources)}
	if n, ok := counts[id]; ok {
		txt += " " + text.Thousands(n)
	}
	return txt
}

// available reports whether a tab is shown: that of the sources when there are some, or when it is
// marked.
func available(s *facts, id, marked screenID) bool {
	return id != screenSources || len(s.Snap.Sources) > 0 || marked == id
}

// NewState returns the state before the first snapshot.
func NewState(source string, caps widget.Caps, now time.Time) State {
	s := State{jobs: jobsScreen{newList(jobKind)}, repos: reposScreen{newList(repoKind)}, sources: sourcesScreen{newList(sourceKind)}}
	s.Snap = new(snapshot.Snapshot)
	s.Now, s.Source = now, source
	s.Caps = caps
	s.detail.subject.object = jobObject(new(snapshot.Job))
	s.repo.page.subject.object = repoObject(new(snapshot.Repo))
	s.source.page.subject.object = sourceObject(new(snapshot.Source))
	s.repo.page.rows, s.repo.page.listed = newList(jobKind), true
	s.source.page.rows = newList(revisionKind)
	s.history.items = newList(recordKind)
	s.changes.rows = newList(changeKind)
	s.update()
	return s
}

// Quiet reports whether a snapshot changes only times and figures of the process, which need no
// frame of their own.
func (s *State) Quiet(snap *snapshot.Snapshot) bool {
	was, is := *s.Snap, *snap
	for _, of := range []*snapshot.Snapshot{&was, &is} {
		of.Seq, of.At = 0, time.Time{}
		of.Agent.RSS, of.Agent.CPU = 0, 0
		of.API.Latency = 0
	}
	return s.Gone == "" && reflect.DeepEqual(&was, &is)
}

// Show applies a new snapshot.
func (s State) Show(snap *snapshot.Snapshot) State {
	before, unread := s.Snap, s.issues.unread()
	s.Snap, s.Gone = cleanSnapshot(snap), ""
	s.Snap.Problem = s.complete(s.Snap.Problem)
	s.issues.collect(before, s.Snap)
	if s.issues.unread() > unread {
		s.toast = ""
	}
	if was, is := before.Agent, snap.Agent; was.History != is.History || !was.Started.Equal(is.Started) {
		s.history.changes++
	}
	log := s.detail.subject.object.job.Log
	s.detail.subject.follow(&s.facts)
	s.detail.partial = s.detail.partial && !s.detail.subject.live
	if now := s.detail.subject.object.job.Log; s.detail.paused && len(now) > 0 { // lines at its beginning may have been dropped
		s.detail.tops[sectionLog] -= max(slices.Index(log, now[0]), 0)
	}
	s.repo.page.subject.follow(&s.facts)
	s.source.page.subject.follow(&s.facts)
	s.update()
	return s
}

// update computes the rows of the lists and the selection. Cursors stay on their rows as long as
// these exist.
func (s *State) update() {
	if !s.Now.Before(s.toastEnd) {
		s.toast = ""
	}
	terms := func(on screenID) *widget.FilterTerms {
		if s.filter() == "" || s.screen != on && s.screen != screenOverview {
			return nil
		}
		t := s.filterTerms()
		return &t
	}
	s.jobs.find(s.Snap.Jobs, terms(screenJobs))
	s.repos.find(s.Snap.Repos, terms(screenRepos))
	s.sources.find(s.Snap.Sources, terms(screenSources))
	switch {
	case s.screen == screenJobs || s.screen == screenRepos:
		s.overview.onRepos = s.screen == screenRepos
	case !s.overview.touched:
		s.overview.onRepos = unfinished(s.Snap.Jobs) == 0 && len(s.Snap.Repos) > 0
	}
	if s.screen != screenFiles {
		s.files = filesScreen{} // it may be large
	}
	if j, known, _ := s.detail.record.of(s.detail.subject.object.job.UID); s.detail.partial && known {
		j.Progress = percent(j.Progress)
		s.detail.subject.object, s.detail.partial = jobObject(&j), false
		s.detail.focusIssues()
	}
	s.parent = s.repo.page.subject
	s.compared = comparisonOf(s)
	present := s.at(s.screen)
	if r, ok := present.(refresher); ok {
		r.refresh(&s.scene)
	}
	if _, known, err := s.repo.recent.of(repoKind.key(s.repo.page.subject.object.repo)); s.repo.opensLog && s.screen == screenRepo && (known || err != "") {
		if s.repo.opensLog = false; s.repo.page.rows.here() != nil {
			openLog(s)
			present = &s.detail
		}
	}
	s.selected = nil
	if sel, ok := present.(selector); ok {
		s.selected = sel.selection(&s.scene)
	}
	s.links = addresses(s)
}

// list returns the list in which keys move; nil = none.
func (s *State) list() *position {
	if l, ok := s.at(s.screen).(lister); ok {
		return l.listPosition()
	}
	return nil
}

// panes returns the screen if it has several parts; nil = it has one.
func (s *State) panes() paner {
	out, _ := s.at(s.screen).(paner)
	return out
}

// firstRun reports whether limpet is fresh: it works with its own API and has no repository.
func (s *facts) firstRun() bool {
	return s.Gone == "" && s.Snap.API.Embedded && s.Snap.API.Synced && len(s.Snap.Repos) == 0 && len(s.Snap.Jobs) == 0 &&
		len(s.Snap.Sources) == 0
}

// offline reports whether the displayed data is not live.
func (s *facts) offline() bool {
	return s.Gone != "" || !s.Snap.At.IsZero() && (!s.Snap.API.Up || !s.Snap.AsOf.IsZero())
}

// unavailableReason returns which part is unavailable while the data is old.
func (s *facts) unavailableReason() string {
	if s.Gone != "" {
		return "the daemon does not answer"
	}
	return "the API is unreachable"
}

// staleSince returns the time since which the displayed data is not live.
func (s *facts) staleSince() time.Time {
	switch {
	case !s.Snap.AsOf.IsZero():
		return s.Snap.AsOf
	case s.Gone != "":
		return s.Snap.At
	}
	return s.Snap.API.Since
}

func (s *State) showToast(text string, bad bool) { s.toast, s.toastBad = text, bad }

type location struct {
	screen screenID
	object object // on the screens of one object
	path   string // on screenDiff
	// revision is the digest of the artifact of a source whose changes are shown.
	revision string
}

// trail has the locations before and after the present one.
type trail struct {
	back     []location // targets of [ and Esc; the last is the newest
	forwards []location // targets of ]
}

// trailLength bounds the navigation history.
const trailLength = 32

// goTo shows a screen; Esc and [ return. The screens of an object share it.
func (s *State) goTo(to screenID) {
	if to == s.screen {
		return
	}
	s.back, s.forwards = append(slices.Clip(s.back[max(len(s.back)-trailLength+1, 0):]), s.location), nil
	s.screen, s.path = to, ""
}

// tab returns the screen whose tab is marked: for a job from the history that of the history.
func (s *State) tab() screenID {
	if s.object.source != nil && (s.screen == screenChanges || s.screen == screenDiff) {
		return screenSources
	}
	for i := len(s.back) - 1; i >= 0 && screens[s.screen].key == "" && screens[s.screen].under == screenJobs; i-- {
		if from := s.back[i].screen; from == screenHistory {
			return from
		} else if screens[from].key != "" {
			break
		}
	}
	return screens[s.screen].under
}

func (s *State) goObject(o object) {
	s.goTo(map[string]screenID{onJob: screenDetail, onRepo: screenRepo,
		onSource: screenSource}[o.Kind])
	s.showObject(o)
}

// showObject sets the object of its screen to its present state, else to its last known one.
func (s *State) showObject(o object) {
	s.location.object = o
	switch o, live := s.current(o); {
	case o.job != nil:
		s.detail = jobScreen{subject: subject{o, live}, partial: !live} // of a job that has left the snapshot only the row is known
		s.linkAt, s.filters[screenDetail] = 0, ""
		s.detail.focusIssues()
	case o.repo != nil:
		s.repo.page = page[snapshot.Job]{subject: subject{o, live}, listed: true, rows: s.repo.page.rows}
		s.repo.opensLog = false
	default:
		s.source = sourceScreen{page: page[state.Artifact]{subject: subject{o, live}, rows: newList(revisionKind)}}
	}
}

// walk goes to the last location of a list and adds the present one to the other list.
func (s *State) walk(from, others *[]location) {
	last := len(*from) - 1
	to := (*from)[last]
	*from, *others = (*from)[:last:last], append(slices.Clip(*others), s.location)
	s.location = to
	if o := to.object; screens[to.screen].key == "" && (o.job == nil || o.UID != s.detail.subject.object.job.UID) {
		s.showObject(o)
	}
}

// goBack undoes one step: the filter first, then the marks, then the screen.
func (s *State) goBack() {
	switch marks := len(s.jobs.marks) + len(s.repos.marks) + len(s.sources.marks); {
	case s.filter() != "":
		s.setFilter("")
	case marks > 0:
		s.jobs.marks, s.repos.marks, s.sources.marks = nil, nil, nil
	case screens[s.screen].key == "" && len(s.back) > 0:
		s.walk(&s.back, &s.forwards)
	default:
		s.goTo(screenOverview)
	}
}
