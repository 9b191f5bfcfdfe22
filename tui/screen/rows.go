package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// The rows of the two lists of the snapshot: filtered and sorted.

// jobFields and repoFields are the fields of a filter line. A list ignores the fields of the
// other one.
var (
	jobFields = widget.FieldSet{"repo": nil, "action": nil, "state": {"pending", "working", "resting", "other", "unsent", "success",
		"warning", "error", "cancelled", "dead"}}
	repoFields = widget.FieldSet{"repo": nil, "type": nil, "state": {"pending", "working", "success", "warning", "error", "suspended"}}
)

// fields returns the fields of the filter of the present screen with their values: the possible
// ones or, for free texts, those of the snapshot.
func (s State) fields() widget.FieldSet {
	var repos, actions, types []string
	for _, r := range s.Snap.Repos {
		repos, types = append(repos, r.Name), append(types, r.Type)
	}
	for _, j := range s.Snap.Jobs {
		actions = append(actions, j.Action)
	}
	seen := map[string][]string{"repo": repos, "action": actions, "type": types}
	out := widget.FieldSet{}
	take := func(of widget.FieldSet) {
		for name, values := range of {
			values = append(slices.Clone(values), seen[name]...)
			for _, v := range values {
				if v != "" && !slices.Contains(out[name], v) {
					out[name] = append(out[name], v)
				}
			}
			if len(values) == 0 {
				out[name] = nil
			}
		}
	}
	switch s.nav.screen {
	case screenHistory:
		take(historyFields)
	case screenRepos:
		take(repoFields)
	case screenJobs:
		take(jobFields)
	case screenSources:
		return s.sourceFieldsSeen()
	case screenOverview:
		take(jobFields)
		take(repoFields)
	}
	for name := range out {
		slices.Sort(out[name])
	}
	return out
}

// filtersLists reports whether the present screen filters one of the two lists.
func (s State) filtersLists() bool {
	return s.nav.screen != screenHistory && s.nav.screen != screenSources && screens[s.nav.screen].found == nil
}

func filterRefusal(s State) string {
	if len(s.fields()) == 0 && screens[s.nav.screen].found == nil {
		return "there is nothing to filter on this screen"
	}
	return ""
}

// filterTerms parses the filter of the present screen for the list with these fields. The
// overview has one filter for both lists.
func (s State) filterTerms(own widget.FieldSet) widget.FilterTerms {
	known := own
	if s.nav.screen == screenOverview {
		known = widget.FieldSet{}
		for _, of := range []widget.FieldSet{jobFields, repoFields} {
			for name, values := range of {
				known[name] = slices.Clone(known[name])
				for _, v := range values {
					if !slices.Contains(known[name], v) {
						known[name] = append(known[name], v)
					}
				}
			}
		}
	}
	t := widget.ParseTerms(s.filter(), known)
	for name := range t.Fields {
		if _, ok := own[name]; !ok {
			delete(t.Fields, name)
		}
	}
	return t
}

// filterProblem describes the first invalid part of the filter.
func (s State) filterProblem() string {
	switch s.listed() {
	case paneRepos:
		return s.filterTerms(repoFields).Problem
	case paneSources:
		return s.filterTerms(sourceFields).Problem
	}
	return s.filterTerms(jobFields).Problem
}

// rowCache holds the displayed rows and the inputs that they were computed from.
type rowCache struct {
	snap   *snapshot.Snapshot
	screen screenID
	filter string
	orders [paneNone]widget.Order
	jobs   []snapshot.Job
	repos  []snapshot.Repo
	from   []snapshot.Source
}

// current reports whether r was computed from s.
func (r rowCache) current(s State) bool {
	return r.snap == s.Snap && r.screen == s.nav.screen && r.filter == s.filter() && r.orders == s.lists.orders[s.nav.screen]
}

// cacheRows stores the rows in the state, so that they are computed once a change and not once a
// use.
func (s State) cacheRows() State {
	if !s.lists.cache.current(s) {
		s.lists.cache = rowCache{snap: s.Snap, screen: s.nav.screen, filter: s.filter(), orders: s.lists.orders[s.nav.screen],
			jobs: s.findJobs(), repos: s.findRepos(), from: s.findSources()}
	}
	return s
}

// jobs returns the rows of the job list.
func (s State) jobs() []snapshot.Job {
	if s.lists.cache.current(s) {
		return s.lists.cache.jobs
	}
	return s.findJobs()
}

// repos returns the rows of the repository list.
func (s State) repos() []snapshot.Repo {
	if s.lists.cache.current(s) {
		return s.lists.cache.repos
	}
	return s.findRepos()
}

func (s State) findJobs() []snapshot.Job {
	out := s.Snap.Jobs
	if s.filter() != "" && s.filtersLists() {
		t := s.filterTerms(jobFields)
		out = nil
		for _, j := range s.Snap.Jobs {
			if t.Problem == "" && t.Matches("repo", j.Repository) && t.Matches("action", j.Action) && t.MatchesAny("state", jobStates(j)) &&
				widget.ContainsWords(strings.Join(t.Words, " "), j.Name, j.Repository, j.Action, j.State, j.Namespace, j.Message) {
				out = append(out, j)
			}
		}
	}
	return widget.Sorted(out, s.lists.orders[s.nav.screen][paneJobs], jobOrders)
}

func (s State) findRepos() []snapshot.Repo {
	out := s.Snap.Repos
	if s.filter() != "" && s.filtersLists() {
		t := s.filterTerms(repoFields)
		out = nil
		for _, r := range s.Snap.Repos {
			states := []string{repoState(r)}
			if r.Suspended {
				states = append(states, "suspended")
			}
			if t.Problem == "" && t.Matches("repo", r.Name) && t.Matches("type", r.Type) && t.MatchesAny("state", states) &&
				widget.ContainsWords(strings.Join(t.Words, " "), r.Name, r.Title, r.Type, r.Namespace, r.SyncState, r.URL) {
				out = append(out, r)
			}
		}
	}
	return widget.Sorted(out, s.lists.orders[s.nav.screen][paneRepos], repoOrders)
}

// jobStates returns the values of the field state that match a job.
func jobStates(j snapshot.Job) []string {
	out := []string{j.State}
	if j.State == "dead" {
		out = append(out, "error")
	}
	if j.Finished.IsZero() {
		switch {
		case !j.Undelivered.IsZero():
			out = []string{"unsent"}
		case j.Owner == "other":
			out = append(out, "other")
		case j.Owner == "" && !j.RetryAt.IsZero():
			out = append(out, "resting")
		}
	}
	return out
}

var jobOrders = []widget.Sorting[snapshot.Job]{
	{Name: "default order"},
	{Name: "job", Compare: func(a, b snapshot.Job) int { return cmp.Compare(a.Name, b.Name) }},
	{Name: "repository", Compare: func(a, b snapshot.Job) int { return cmp.Compare(a.Repository, b.Repository) }},
	{Name: "action", Compare: func(a, b snapshot.Job) int { return cmp.Compare(a.Action, b.Action) }},
	{Name: "state", Compare: func(a, b snapshot.Job) int { return cmp.Compare(severity(a.State), severity(b.State)) }},
	{Name: "progress", Compare: func(a, b snapshot.Job) int { return cmp.Compare(b.Progress, a.Progress) }},
	{Name: "age", Compare: func(a, b snapshot.Job) int { return a.Created.Compare(b.Created) }},
}

var repoOrders = []widget.Sorting[snapshot.Repo]{
	{Name: "name"},
	{Name: "state", Compare: func(a, b snapshot.Repo) int { return cmp.Compare(severity(repoState(a)), severity(repoState(b))) }},
	{Name: "type", Compare: func(a, b snapshot.Repo) int { return cmp.Compare(a.Type, b.Type) }},
	{Name: "synced", Compare: func(a, b snapshot.Repo) int { return a.Synced.Compare(b.Synced) }},
	{Name: "next pull", Compare: func(a, b snapshot.Repo) int { return a.Next.Compare(b.Next) }},
	{Name: "objects", Compare: func(a, b snapshot.Repo) int { return cmp.Compare(b.Resources, a.Resources) }},
}

// severity orders states: problems first.
func severity(state string) int {
	if i := slices.Index([]string{"error", "dead", "warning", "cancelled", "working", "pending"}, state); i >= 0 {
		return i
	}
	return 99
}

// orderNames returns the names of the orders of a pane.
func orderNames(of pane) (out []string) {
	switch of {
	case paneRepos:
		for _, o := range repoOrders {
			out = append(out, o.Name)
		}
	case paneSources:
		for _, o := range sourceOrders {
			out = append(out, o.Name)
		}
	default:
		for _, o := range jobOrders {
			out = append(out, o.Name)
		}
	}
	return out
}

// orderText returns the order of a list for its title, "" for the default order.
func (p *view) orderText(of pane) string {
	o := p.s.lists.orders[p.s.nav.screen][of]
	if o == (widget.Order{}) {
		return ""
	}
	return ", by " + orderNames(of)[o.By] + " " + p.arrow(o)
}

func (p *view) arrow(o widget.Order) string {
	if o.Reverse {
		return p.G.Down
	}
	return p.G.Up
}

// sortMenu selects the order of the focused list.
type sortMenu struct {
	of pane
	at int
}

func (s State) openSort() State {
	of := s.listed()
	s.overlay = sortMenu{of: of, at: int(s.lists.orders[s.nav.screen][of].By)}
	return s
}

func (m sortMenu) key(s State, name, _ string) (State, Outcome) {
	names := orderNames(m.of)
	switch name {
	case "up", "k":
		m.at = max(m.at-1, 0)
	case "down", "j":
		m.at = min(m.at+1, len(names)-1)
	case "enter", "o":
		o := &s.lists.orders[s.nav.screen][m.of]
		if int(o.By) == m.at && name == "enter" {
			o.Reverse = !o.Reverse
		} else if name == "enter" {
			*o = widget.Order{By: uint8(m.at)}
		}
		s.overlay = nil
		return s, Outcome{}
	default:
		s.overlay = nil
		return s, Outcome{}
	}
	s.overlay = m
	return s, Outcome{}
}

func (m sortMenu) hints(p *view) [][2]string {
	return [][2]string{{p.G.Up + p.G.Down, "move"}, {"enter", "sort, again reverses"}, {"esc", "close"}}
}

func (m sortMenu) draw(p *view) {
	names := orderNames(m.of)
	now := p.s.lists.orders[p.s.nav.screen][m.of]
	rows := min(len(names), p.H-4)
	w, h := min(36, p.W), rows+2
	x, y := p.Dialog(w, h)
	p.Box(p.G, x, y, w, h, "Sort by", "", "enter, again reverses", true)
	top := widget.Window(m.at, len(names), rows)
	for i, name := range names[top:min(top+rows, len(names))] {
		if top+i == m.at {
			p.Put(x+2, y+1+i, 1, widget.RoleKey, p.G.Cursor)
		}
		if top+i == int(now.By) && now != (widget.Order{}) {
			name += " " + p.arrow(now)
		}
		p.Put(x+4, y+1+i, w-6, widget.RolePlain, name)
		if top+i == m.at {
			p.PaintRow(x+3, y+1+i, x+w-2, widget.RoleCursor)
		}
	}
}

// maxFilters bounds the filter history.
const maxFilters = 20

// typeFilter returns the state after a key press in the filter line. Printable keys are text; up
// and down recall earlier filters, Tab completes.
func (s State) typeFilter(name, text string) State {
	before := s
	filter := &s.input.filters[s.nav.screen]
	switch name {
	case "enter":
		s.input.typing, s.input.pastAt = false, 0
		if *filter != "" {
			kept := slices.DeleteFunc(slices.Clone(s.input.past), func(l string) bool { return l == *filter })
			s.input.past = append(kept[max(len(kept)-maxFilters+1, 0):], *filter)
		}
	case "esc":
		s.input.typing, s.input.pastAt, *filter = false, 0, ""
	case "up", "down":
		back := s.input.pastAt + 1
		if name == "down" {
			back = s.input.pastAt - 1
		}
		if back < 0 || back > len(s.input.past) {
			return s
		}
		if s.input.pastAt, *filter = back, ""; back > 0 {
			*filter = s.input.past[len(s.input.past)-back]
		}
	case "tab":
		if whole := widget.Complete(*filter, s.fields()); len([]rune(whole)) <= widget.MaxLine {
			*filter = whole
		}
	default:
		*filter = widget.Edit(*filter, name, text)
	}
	s.lists.job = widget.KeepCursor(s.lists.job, widget.KeysOf(before.jobs(), jobKey), widget.KeysOf(s.jobs(), jobKey))
	s.lists.repo = widget.KeepCursor(s.lists.repo, widget.KeysOf(before.repos(), repoKey), widget.KeysOf(s.repos(), repoKey))
	s.lists.source = widget.KeepCursor(s.lists.source, widget.KeysOf(before.sources(), sourceKey), widget.KeysOf(s.sources(), sourceKey))
	s.changes.cursor = widget.KeepCursor(s.changes.cursor, widget.KeysOf(before.changed(), pathOf), widget.KeysOf(s.changed(), pathOf))
	return s
}

// Paste returns the state after text was pasted. It goes to the focused input line. Without one
// it is ignored; it never answers a confirmation.
func (s State) Paste(text string) State {
	switch over := s.overlay.(type) {
	case confirm:
		if over.name == "" {
			return s
		}
	case palette, help:
	default:
		if over != nil || !s.input.typing {
			return s
		}
	}
	s, _ = s.Key("paste", text)
	return s
}

// maxMarks bounds the marked rows of a list: each one is a separate request to the agent.
const maxMarks = 100

// listHere returns the list of the snapshot that the list keys act on, if the screen has one.
func (s State) listHere() (pane, bool) {
	switch s.nav.screen {
	case screenOverview, screenJobs, screenRepos, screenSources:
		return s.listed(), true
	}
	return paneNone, false
}

func listRefusal(s State) string {
	if _, ok := s.listHere(); !ok {
		return "there is no list of jobs or repositories on this screen"
	}
	return ""
}

func rowRefusal(s State) string {
	if why := listRefusal(s); why != "" {
		return why
	}
	if len(s.shownKeys()) == 0 {
		return "there is nothing under the cursor"
	}
	return ""
}

// shownKeys returns the keys of the rows of the present list.
func (s State) shownKeys() []string {
	switch of, ok := s.listHere(); {
	case !ok:
		return nil
	case of == paneRepos:
		return widget.KeysOf(s.repos(), repoKey)
	case of == paneSources:
		return widget.KeysOf(s.sources(), sourceKey)
	}
	return widget.KeysOf(s.jobs(), jobKey)
}

// mark toggles the mark of the row under the cursor and moves to the next row.
func (s State) mark() State {
	of, _ := s.listHere()
	cursor := s.lists.job
	switch of {
	case paneRepos:
		cursor = s.lists.repo
	case paneSources:
		cursor = s.lists.source
	}
	marks := slices.Clone(s.lists.marks[of])
	if i := slices.Index(marks, cursor); i >= 0 {
		marks = slices.Delete(marks, i, i+1)
	} else if len(marks) == maxMarks {
		return s.showToast(fmt.Sprintf("%d are marked; that is all that can be", maxMarks), true)
	} else {
		marks = append(marks, cursor)
	}
	s.lists.marks[of] = marks
	return s.move(1)
}

// markAll marks all displayed rows; when all are marked it removes the marks.
func (s State) markAll() State {
	of, _ := s.listHere()
	keys := s.shownKeys()
	all := keys[:min(len(keys), maxMarks)]
	if slices.Equal(s.lists.marks[of], all) {
		s.lists.marks[of] = nil
		return s
	}
	s.lists.marks[of] = slices.Clone(all)
	if len(keys) > len(all) {
		return s.showToast(fmt.Sprintf("the first %d of %s are marked; that is all that can be", maxMarks, text.Thousands(len(keys))), false)
	}
	return s
}

// keepMarks removes the marks of rows that are gone.
func (s State) keepMarks() State {
	gone := func(keys []string) func(string) bool {
		return func(k string) bool { return !slices.Contains(keys, k) }
	}
	if len(s.lists.marks[paneJobs]) > 0 {
		s.lists.marks[paneJobs] = slices.DeleteFunc(slices.Clone(s.lists.marks[paneJobs]), gone(widget.KeysOf(s.Snap.Jobs, jobKey)))
	}
	if len(s.lists.marks[paneRepos]) > 0 {
		s.lists.marks[paneRepos] = slices.DeleteFunc(slices.Clone(s.lists.marks[paneRepos]), gone(widget.KeysOf(s.Snap.Repos, repoKey)))
	}
	if len(s.lists.marks[paneSources]) > 0 {
		s.lists.marks[paneSources] = slices.DeleteFunc(slices.Clone(s.lists.marks[paneSources]), gone(widget.KeysOf(s.Snap.Sources, sourceKey)))
	}
	return s
}

// marked returns the marked rows that are displayed: actions never affect hidden rows.
func marked[T any](s State, of pane, list []T, key func(T) string) (out []T) {
	if in, ok := s.listHere(); !ok || in != of || len(s.lists.marks[of]) == 0 {
		return nil
	}
	for _, row := range list {
		if slices.Contains(s.lists.marks[of], key(row)) {
			out = append(out, row)
		}
	}
	return out
}

// markText counts the marks of a list for its edge.
func (p *view) markText(of pane, place string) string {
	if n := len(p.s.lists.marks[of]); n > 0 {
		return fmt.Sprintf("%d marked, %s", n, place)
	}
	return place
}
