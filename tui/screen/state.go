// Package screen is the state of the dashboard and its screens, one file a screen.
//
// A frame is a pure function of State, size and Caps (frame.go), a key press a pure function
// from State to State (keys.go). Foreign text is cleaned once, where a snapshot enters
// (clean.go). States have a glyph and a word, never only a colour.
package screen

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// pane is a list that can have the focus.
type pane uint8

const (
	paneJobs pane = iota
	paneRepos
	paneSources
	paneNone // of a screen without panes
)

// State is the whole input of a frame. It is a value: Key and Show return the next one, Render
// reads it.
type State struct {
	Snap   *snapshot.Snapshot // never nil, always clean
	Now    time.Time
	Source string    // "standalone", "attached to daemon 4121"
	Note   string    // a warning about the source; "" = none
	W, H   int       // cells of the terminal; 0 = not known yet
	SetUp  bool      // Enter on the first screen starts the setup
	Gone   string    // why the source is unavailable; "" = it is available
	Again  time.Time // time of the next retry of an unavailable source; zero = now

	ReadOnly bool // nothing is sent to the agent
	Caps     widget.Caps

	// The state of each screen.
	nav         navigation
	lists       lists
	jobView     jobView
	changes     changes
	repoView    repoView
	sourceView  sourceView
	history     history
	diagnostics diagnostics

	// The overlay, and the state that all screens share.
	input        filterInput
	overlay      overlay // handles the keys; nil = none
	leaving      leaving
	issues       issues
	usedCommands []string // the command history of the palette, the newest last
	linkAt       int      // index of the web address that is copied next
	wide         bool     // names get their full width
	wraps        bool     // long lines are wrapped
	toast        string
	toastBad     bool
}

// navigation is the present screen and the path to it.
type navigation struct {
	screen   screenID
	back     []location // targets of [ and Esc; the last is the newest
	forwards []location // targets of ]
}

// lists are the lists of jobs, repositories and sources that several screens show.
type lists struct {
	focus  pane
	job    string                              // UID under the cursor; it stays on its row
	repo   string                              // namespace/name under the cursor
	source string                              // UID under the cursor
	orders [screenCount][paneNone]widget.Order // of the lists of each screen
	marks  [paneNone][]string                  // keys of marked rows
	zoomed [screenCount]bool                   // the focused pane has the whole screen
	cache  rowCache
}

// jobView is the screen of one job.
type jobView struct {
	uid     string
	seen    *snapshot.Job // last known state; never nil
	partial bool          // seen is a row of the history; its record must be fetched
	record  record
	section section           // the focused section
	tops    [sectionCount]int // first lines of the sections but the log
	paused  bool              // the log does not follow its end
	scroll  int               // lines that the log is scrolled up
}

// repoView is the screen of one repository.
type repoView struct {
	seen   *snapshot.Repo // last known state; never nil
	top    int            // first visible fact, when only facts fit
	recent recentRuns
}

// sourceView is the screen of one source.
type sourceView struct {
	seen *snapshot.Source // last known state; never nil
	top  int              // first visible line
}

// filterInput is the filter line.
type filterInput struct {
	filters [screenCount]string // one for each screen
	typing  bool                // keys edit the filter
	past    []string            // earlier filters, the newest last
	pastAt  int                 // position in past, counted from the newest
}

// leaving is a quit that waits until no job runs.
type leaving struct {
	whenIdle bool // quit when no job of the agent runs
	drained  bool // the agent was drained for it
}

// size returns the size of the terminal, in cells.
func (s State) size() (w, h int) {
	if s.W == 0 || s.H == 0 {
		return 80, 24
	}
	return s.W, s.H
}

// filter returns the filter of the present screen.
func (s State) filter() string { return s.input.filters[s.nav.screen] }

// NewState returns the state before the first snapshot.
func NewState(source string, caps widget.Caps, now time.Time) State {
	return State{
		Snap:        new(snapshot.Snapshot),
		Now:         now,
		Source:      source,
		Caps:        caps,
		jobView:     jobView{seen: new(snapshot.Job)},
		repoView:    repoView{seen: new(snapshot.Repo), recent: recentRuns{RecentRuns: new(snapshot.RecentRuns)}},
		sourceView:  sourceView{seen: new(snapshot.Source)},
		diagnostics: diagnostics{DiagnosticsReport: new(snapshot.DiagnosticsReport)},
		changes:     changes{list: new(compared), file: new(compared)},
	}
}

// Show applies a new snapshot. Cursors stay on their rows as long as these exist. A job cursor
// at the top stays at the top: without a selection the user wants to see the present activity,
// and a finished job moves to the end of the list.
func (s State) Show(snap *snapshot.Snapshot) State {
	oldJobs, oldRepos, oldSources, oldOfRepo := s.jobs(), s.repos(), s.sources(), s.repoJobs()
	before := s.Snap
	logged, _ := s.job()
	s.Snap = cleanSnapshot(snap)
	s.Gone = ""
	s = s.collectIssues(before)
	if was, is := before.Agent, snap.Agent; was.History != is.History || !was.Started.Equal(is.Started) {
		s.history.invalidate()
	}
	if len(oldJobs) > 0 && oldJobs[0].UID == s.lists.job {
		s.lists.job = ""
	}
	s.lists.job = widget.KeepCursor(s.lists.job, widget.KeysOf(oldJobs, jobKey), widget.KeysOf(s.jobs(), jobKey))
	s.lists.repo = widget.KeepCursor(s.lists.repo, widget.KeysOf(oldRepos, repoKey), widget.KeysOf(s.repos(), repoKey))
	s.lists.source = widget.KeepCursor(s.lists.source, widget.KeysOf(oldSources, sourceKey), widget.KeysOf(s.sources(), sourceKey))
	if s.repoView.recent.cursor != "" {
		s.repoView.recent.cursor = widget.KeepCursor(s.repoView.recent.cursor, widget.KeysOf(oldOfRepo, jobKey),
			widget.KeysOf(s.repoJobs(), jobKey))
	}
	if s.changes.cursor != "" {
		s.changes.cursor = widget.KeepCursor(s.changes.cursor, widget.KeysOf(s.changes.list.Files, pathOf), widget.KeysOf(s.changed(), pathOf))
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == s.jobView.uid {
			s.jobView.seen, s.jobView.partial = &j, false
		}
	}
	seen, _ := s.repo()
	s.repoView.seen = &seen
	from, _ := s.source()
	s.sourceView.seen = &from
	return s.keepLogPosition(logged).keepMarks().cacheRows()
}

func jobKey(j snapshot.Job) string   { return j.UID }
func repoKey(r snapshot.Repo) string { return r.Namespace + "/" + r.Name }

// job returns the job of the detail screen: its present state, else the last known one.
func (s State) job() (snapshot.Job, bool) {
	for _, j := range s.Snap.Jobs {
		if j.UID == s.jobView.uid {
			return j, true
		}
	}
	return *s.jobView.seen, false
}

// repo returns the repository of the detail screen: its present state, else the last known one.
func (s State) repo() (snapshot.Repo, bool) {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == repoKey(*s.repoView.seen) {
			return r, true
		}
	}
	return *s.repoView.seen, false
}

// firstRun reports whether limpet is fresh: it works with its own API and has no repository.
func (s State) firstRun() bool {
	return s.Gone == "" && s.Snap.API.Embedded && s.Snap.API.Synced && len(s.Snap.Repos) == 0 && len(s.Snap.Jobs) == 0 &&
		len(s.Snap.Sources) == 0
}

// offline reports whether the displayed data is not live.
func (s State) offline() bool {
	return s.Gone != "" || !s.Snap.At.IsZero() && (!s.Snap.API.Up || !s.Snap.AsOf.IsZero())
}

// unavailableReason returns which part is unavailable while the data is old.
func (s State) unavailableReason() string {
	if s.Gone != "" {
		return "the daemon does not answer"
	}
	return "the API is away"
}

// staleSince returns the time since which the displayed data is not live.
func (s State) staleSince() time.Time {
	switch {
	case !s.Snap.AsOf.IsZero():
		return s.Snap.AsOf
	case s.Gone != "":
		return s.Snap.At
	}
	return s.Snap.API.Since
}

// screenID identifies a screen.
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
	screenCount
)

// screen describes a screen for the frame and the keys. Each screen defines one in the file that
// draws it.
type screen struct {
	name      string             // in the help: "repositories"
	tab       string             // the key of its tab; "" = it has no tab
	available func(State) bool   // whether the tab is available; nil = always
	under     screenID           // the screen whose tab is marked; itself for tabs
	title     func(State) string // the words of its tab

	draw  func(p *view, x, y, w, h int)
	hints func(p *view) [][2]string // key and word, the most useful first; help and quit are added

	// list returns the list that keys move in; nil = none.
	list      func(State) pane
	selection func(State) selection // nil = nothing can be selected

	panes int // number of panes for Tab and z; 0 = one

	move func(s State, by int) State // nil = nothing moves
	open func(s State) State         // Enter; nil = nothing to open
	// fetch returns the lookup that the screen needs and marks it as running; nil = the snapshot
	// is sufficient.
	fetch func(s State) (State, Lookup)
	// found describes the matches of the filter; nil = the filter is for a list, or unused.
	found func(State) string
	// command returns the command that shows the object under the cursor; nil = that of a job or
	// a repository.
	command func(State) string
}

// screens are all screens, indexed by screenID.
var screens [screenCount]screen

func init() {
	screens = [screenCount]screen{
		screenOverview: overviewScreen,
		screenJobs:     jobsScreen,
		screenRepos:    reposScreen,
		screenDetail:   detailScreen,
		screenRepo:     repoScreen,
		screenHistory:  historyScreen,
		screenAgent:    agentScreen,
		screenChanges:  changesScreen,
		screenDiff:     diffScreen,
		screenSources:  sourcesScreen,
		screenSource:   sourceScreen,
	}
	bindings = keyTable()
}

// location is a screen and the object that it shows.
type location struct {
	screen screenID
	job    string // UID, on screenDetail and its subscreens
	path   string // on screenDiff
	repo   string // namespace/name, on screenRepo
	source string // UID, on screenSource
}

// trailLength bounds the navigation history.
const trailLength = 32

func (s State) location() location {
	return location{screen: s.nav.screen, job: s.jobView.uid, path: s.changes.path, repo: repoKey(*s.repoView.seen),
		source: s.sourceView.seen.UID}
}

// goTo shows a screen; Esc and [ return.
func (s State) goTo(to screenID) State {
	if to == s.nav.screen {
		return s
	}
	before := s.nav.back[max(len(s.nav.back)-trailLength+1, 0):]
	s.nav.back, s.nav.forwards = append(slices.Clip(before), s.location()), nil
	return s.show(to)
}

// show shows a screen, with cursors on existing rows.
func (s State) show(to screenID) State {
	s.nav.screen = to
	switch to {
	case screenJobs:
		s.lists.focus = paneJobs
	case screenRepos:
		s.lists.focus = paneRepos
	}
	s.lists.job = widget.KeepCursor(s.lists.job, nil, widget.KeysOf(s.jobs(), jobKey))
	s.lists.repo = widget.KeepCursor(s.lists.repo, nil, widget.KeysOf(s.repos(), repoKey))
	s.lists.source = widget.KeepCursor(s.lists.source, nil, widget.KeysOf(s.sources(), sourceKey))
	return s
}

// previous returns to the previous location; forward undoes that.
func (s State) previous() State {
	if len(s.nav.back) == 0 {
		return s
	}
	last := len(s.nav.back) - 1
	to := s.nav.back[last]
	s.nav.back, s.nav.forwards = s.nav.back[:last:last], append(slices.Clip(s.nav.forwards), s.location())
	return s.restore(to)
}

func (s State) next() State {
	if len(s.nav.forwards) == 0 {
		return s
	}
	last := len(s.nav.forwards) - 1
	to := s.nav.forwards[last]
	s.nav.forwards, s.nav.back = s.nav.forwards[:last:last], append(slices.Clip(s.nav.back), s.location())
	return s.restore(to)
}

// restore shows a location again. An object that is gone since is shown in its last known state,
// if any.
func (s State) restore(at location) State {
	switch at.screen {
	case screenDetail, screenChanges, screenDiff:
		s = s.showJob(at.job)
		s.changes.path = at.path
	case screenRepo:
		s = s.showRepo(at.repo)
	case screenSource:
		s = s.showSource(at.source)
	}
	return s.show(at.screen)
}

// Fetch returns the lookup that the present screen needs; nil = none.
func (s State) Fetch() (State, Lookup) {
	if q, ok := s.overlay.(popup); ok { // no other lookup replaces it
		return q.fetch(s)
	}
	if f := screens[s.nav.screen].fetch; f != nil {
		return f(s)
	}
	return s, nil
}

// showJob sets the job of the detail screen.
func (s State) showJob(uid string) State {
	if uid == s.jobView.uid {
		return s
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == uid {
			return s.setJob(j, false)
		}
	}
	for _, r := range s.history.rows {
		if r.UID == uid {
			return s.setJob(jobOfRecord(r), true)
		}
	}
	return s
}

// showRepo sets the repository of the detail screen.
func (s State) showRepo(key string) State {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == key {
			s.repoView.seen = &r
		}
	}
	return s
}

// goBack undoes one step: the filter first, then the screen.
func (s State) goBack() State {
	switch {
	case s.filter() != "":
		s.input.filters[s.nav.screen] = ""
		return s.Show(s.Snap)
	case len(s.lists.marks[paneJobs])+len(s.lists.marks[paneRepos])+len(s.lists.marks[paneSources]) > 0:
		s.lists.marks = [paneNone][]string{}
		return s
	case screens[s.nav.screen].tab == "" && len(s.nav.back) > 0:
		return s.previous()
	}
	return s.goTo(screenOverview)
}

// tabsOf returns the screens with a tab, in their order.
func tabsOf() []screenID {
	var out []screenID
	for i, f := range screens {
		if f.tab != "" {
			out = append(out, screenID(i))
		}
	}
	sort.Slice(out, func(i, j int) bool { return screens[out[i]].tab < screens[out[j]].tab })
	return out
}

// shownTabs returns the available tabs and that of the present screen.
func shownTabs(s State) (out []screenID) {
	for _, of := range tabsOf() {
		if there := screens[of].available; there == nil || there(s) || of == screens[s.nav.screen].under {
			out = append(out, of)
		}
	}
	return out
}

// tabText returns the text of a tab: its key and its words.
func tabText(s State, of screenID) string {
	return fmt.Sprintf("%s %s", screens[of].tab, screens[of].title(s))
}

func colourRefusal(s State) string {
	if s.Caps.Mono {
		return "no colours here: NO_COLOR, --color never or a terminal without"
	}
	return ""
}

func (s State) nextTheme() State {
	s.Caps.Theme = (s.Caps.Theme + 1) % len(widget.Coloured)
	return s.showToast("theme "+widget.Themes[s.Caps.Theme], false)
}

func (s State) switchASCII() State {
	s.Caps.ASCII = !s.Caps.ASCII
	if s.Caps.ASCII {
		return s.showToast("ASCII alone", false)
	}
	return s.showToast("glyphs", false)
}
