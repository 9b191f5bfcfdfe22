package tui

import (
	"time"

	"limpet/sync/snapshot"
)

// pane is a list that can have the focus.
type pane uint8

const (
	paneJobs pane = iota
	paneRepos
	paneSources
	paneNone // of a screen without one
)

// State is all that a frame is made of. It is a value: Key and Show return the
// next one, Render reads it.
type State struct {
	Snap   *snapshot.Snapshot // never nil, always clean
	Now    time.Time
	Source string    // "standalone", "attached to daemon 4121"
	Note   string    // what a person has to know of the source; "" = nothing
	W, H   int       // cells of the terminal; 0 = not known yet
	SetUp  bool      // Enter on the first screen asks for the settings
	Gone   string    // why the source does not answer; "" = it does
	Again  time.Time // when a source that does not answer is asked next; zero = now

	ReadOnly bool // nothing is asked of the agent

	screen        screenID
	back          []location // where [ and Esc lead; the last is the newest
	forwards      []location // where ] leads
	focus         pane
	jobUID        string // cursor of the job list; a UID stays on its row
	repoKey       string // cursor of the repository list: namespace/name
	detail        string // UID of the job in the detail
	jobSeen       *snapshot.Job
	partial       bool // last is a row of the history; its record is to be looked up
	record        record
	changes       changes
	recent        recentRuns
	wraps         bool              // long lines go on below
	section       section           // of the detail, with the focus
	tops          [sectionCount]int // first lines of its sections but the log
	logPaused     bool              // the log does not follow its end
	linkAt        int               // the web address that is copied next
	history       history
	diagnostics   diagnostics
	repoSeen      *snapshot.Repo               // the repository in the detail, as it was seen last
	repoTop       int                          // its first fact that is shown, where there is room for facts alone
	sourceUID     string                       // cursor of the list of sources
	sourceSeen    *snapshot.Source             // the source in the detail, as it was seen last
	sourceTop     int                          // its first line that is shown
	scroll        int                          // lines that the log of the detail is scrolled up
	filters       [screenCount]string          // each screen has its own
	typing        bool                         // keys go into the filter
	filterHistory []string                     // filters of before, the newest last
	filterAt      int                          // how far back in them the one is that is being typed
	orders        [screenCount][paneNone]order // of the lists
	marks         [paneNone][]string           // rows of the lists that are marked
	wide          bool                         // names get the room that they need
	zoomed        [screenCount]bool            // the pane with the focus has the whole screen
	cache         rowCache
	overlay       overlay // a box before the screen that takes the keys; nil = none
	quitWhenIdle  bool    // ends when nothing of the agent runs any more
	drainedToQuit bool    // for that it was asked to claim nothing new
	issues        issues
	usedCommands  []string // words of the palette, the newest last
	toast         string
	toastBad      bool
	Caps          Caps
}

// size is that of the terminal, in cells.
func (s State) size() (w, h int) {
	if s.W == 0 || s.H == 0 {
		return 80, 24
	}
	return s.W, s.H
}

// filter is that of the present screen.
func (s State) filter() string { return s.filters[s.screen] }

// NewState is the state before the first picture.
func NewState(source string, caps Caps, now time.Time) State {
	return State{Snap: new(snapshot.Snapshot), Now: now, Source: source, Caps: caps, jobSeen: new(snapshot.Job), repoSeen: new(snapshot.Repo), sourceSeen: new(snapshot.Source),
		diagnostics: diagnostics{Care: new(snapshot.Care)}, recent: recentRuns{Lately: new(snapshot.Lately)}, changes: changes{list: new(compared), file: new(compared)}}
}

// Show takes a new picture. Cursors stay on their rows as long as these exist.
// That of the jobs stays at the top when it is there: who has not moved it wants
// to see what goes on, and a job that ends goes to the end of the list.
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
	if len(oldJobs) > 0 && oldJobs[0].UID == s.jobUID {
		s.jobUID = ""
	}
	s.jobUID = keepCursor(s.jobUID, keysOf(oldJobs, jobKey), keysOf(s.jobs(), jobKey))
	s.repoKey = keepCursor(s.repoKey, keysOf(oldRepos, repoKey), keysOf(s.repos(), repoKey))
	s.sourceUID = keepCursor(s.sourceUID, keysOf(oldSources, sourceKey), keysOf(s.sources(), sourceKey))
	if s.recent.cursor != "" {
		s.recent.cursor = keepCursor(s.recent.cursor, keysOf(oldOfRepo, jobKey), keysOf(s.repoJobs(), jobKey))
	}
	if s.changes.cursor != "" {
		s.changes.cursor = keepCursor(s.changes.cursor, keysOf(s.changes.list.Files, pathOf), keysOf(s.changed(), pathOf))
	}
	for _, j := range s.Snap.Jobs {
		if j.UID == s.detail {
			s.jobSeen, s.partial = &j, false
		}
	}
	seen, _ := s.repo()
	s.repoSeen = &seen
	from, _ := s.source()
	s.sourceSeen = &from
	return s.keepLogPosition(logged).keepMarks().cacheRows()
}

func jobKey(j snapshot.Job) string   { return j.UID }
func repoKey(r snapshot.Repo) string { return r.Namespace + "/" + r.Name }

// job is the job in the detail: as it is now, else as it was seen last.
func (s State) job() (snapshot.Job, bool) {
	for _, j := range s.Snap.Jobs {
		if j.UID == s.detail {
			return j, true
		}
	}
	return *s.jobSeen, false
}

// repo is the repository in the detail: as it is now, else as it was seen last.
func (s State) repo() (snapshot.Repo, bool) {
	for _, r := range s.Snap.Repos {
		if repoKey(r) == repoKey(*s.repoSeen) {
			return r, true
		}
	}
	return *s.repoSeen, false
}

// firstRun says that this is a fresh limpet: it works on its own API, and
// nobody has given it anything to do.
func (s State) firstRun() bool {
	return s.Gone == "" && s.Snap.API.Embedded && s.Snap.API.Synced && len(s.Snap.Repos) == 0 && len(s.Snap.Jobs) == 0 && len(s.Snap.Sources) == 0
}

// offline says that what is shown is not live.
func (s State) offline() bool {
	return s.Gone != "" || !s.Snap.At.IsZero() && (!s.Snap.API.Up || !s.Snap.AsOf.IsZero())
}

// unavailableReason is who does not answer while what is known is old.
func (s State) unavailableReason() string {
	if s.Gone != "" {
		return "the daemon does not answer"
	}
	return "the API is away"
}

// staleSince says since when.
func (s State) staleSince() time.Time {
	switch {
	case !s.Snap.AsOf.IsZero():
		return s.Snap.AsOf
	case s.Gone != "":
		return s.Snap.At
	}
	return s.Snap.API.Since
}
