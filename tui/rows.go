package tui

import (
	"cmp"
	"slices"
	"strings"

	"limpet/sync/snapshot"
)

// The rows of the two lists of the picture: what the filter lets through, in the
// order that a person has chosen.

// jobFields and repoFields are what a filter line may name. A list does not look
// at the fields of the other.
var (
	jobFields  = fieldSet{"repo": nil, "action": nil, "state": {"pending", "working", "resting", "other", "unsent", "success", "warning", "error", "cancelled", "dead"}}
	repoFields = fieldSet{"repo": nil, "type": nil, "state": {"pending", "working", "success", "warning", "error", "suspended"}}
)

// fields are those of the filter of the present screen, with the values that they
// can have or, for what may be anything, that they have in the picture.
func (s State) fields() fieldSet {
	var repos, actions, types []string
	for _, r := range s.Snap.Repos {
		repos, types = append(repos, r.Name), append(types, r.Type)
	}
	for _, j := range s.Snap.Jobs {
		actions = append(actions, j.Action)
	}
	seen := map[string][]string{"repo": repos, "action": actions, "type": types}
	out := fieldSet{}
	take := func(of fieldSet) {
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
	switch s.screen {
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

// filtersLists says that the filter of the present screen is one of the two lists.
func (s State) filtersLists() bool {
	return s.screen != screenHistory && s.screen != screenSources && screens[s.screen].found == nil
}

func filterRefusal(s State) string {
	if len(s.fields()) == 0 && screens[s.screen].found == nil {
		return "there is nothing to filter on this screen"
	}
	return ""
}

// filterTerms are the filter of the present screen taken apart, as the list with these
// fields reads it. On the overview one filter is for both.
func (s State) filterTerms(own fieldSet) filterTerms {
	known := own
	if s.screen == screenOverview {
		known = fieldSet{}
		for _, of := range []fieldSet{jobFields, repoFields} {
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
	t := parseTerms(s.filter(), known)
	for name := range t.fields {
		if _, ok := own[name]; !ok {
			delete(t.fields, name)
		}
	}
	return t
}

// filterProblem says what of the filter means nothing.
func (s State) filterProblem() string {
	switch s.listed() {
	case paneRepos:
		return s.filterTerms(repoFields).problem
	case paneSources:
		return s.filterTerms(sourceFields).problem
	}
	return s.filterTerms(jobFields).problem
}

// matches says that a value is one of those named, none named meaning all. Of a name
// the beginning will do.
func (t filterTerms) matches(field, value string) bool {
	named, ok := t.fields[field]
	return !ok || slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(strings.ToLower(value), strings.ToLower(n)) })
}

// rowCache are the lists as they are shown, and what they were made of.
type rowCache struct {
	snap   *snapshot.Snapshot
	screen screenID
	filter string
	orders [paneNone]order
	jobs   []snapshot.Job
	repos  []snapshot.Repo
	from   []snapshot.Source
}

// current says that r is what s shows.
func (r rowCache) current(s State) bool {
	return r.snap == s.Snap && r.screen == s.screen && r.filter == s.filter() && r.orders == s.orders[s.screen]
}

// cacheRows keeps the rows with the state, so that they are looked for once for a
// change and not once for each use.
func (s State) cacheRows() State {
	if !s.cache.current(s) {
		s.cache = rowCache{snap: s.Snap, screen: s.screen, filter: s.filter(), orders: s.orders[s.screen], jobs: s.findJobs(), repos: s.findRepos(), from: s.findSources()}
	}
	return s
}

// jobs are the rows of the job list.
func (s State) jobs() []snapshot.Job {
	if s.cache.current(s) {
		return s.cache.jobs
	}
	return s.findJobs()
}

// repos are the rows of the repository list.
func (s State) repos() []snapshot.Repo {
	if s.cache.current(s) {
		return s.cache.repos
	}
	return s.findRepos()
}

func (s State) findJobs() []snapshot.Job {
	out := s.Snap.Jobs
	if s.filter() != "" && s.filtersLists() {
		t := s.filterTerms(jobFields)
		out = nil
		for _, j := range s.Snap.Jobs {
			if t.problem == "" && t.matches("repo", j.Repository) && t.matches("action", j.Action) && t.matchesAny("state", jobStates(j)) &&
				matches(strings.Join(t.words, " "), j.Name, j.Repository, j.Action, j.State, j.Namespace, j.Message) {
				out = append(out, j)
			}
		}
	}
	return sorted(out, s.orders[s.screen][paneJobs], jobOrders)
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
			if t.problem == "" && t.matches("repo", r.Name) && t.matches("type", r.Type) && t.matchesAny("state", states) &&
				matches(strings.Join(t.words, " "), r.Name, r.Title, r.Type, r.Namespace, r.SyncState, r.URL) {
				out = append(out, r)
			}
		}
	}
	return sorted(out, s.orders[s.screen][paneRepos], repoOrders)
}

func (t filterTerms) matchesAny(field string, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return t.matches(field, v) })
}

// jobStates are the words for how a job is, as state: knows them.
func jobStates(j snapshot.Job) []string {
	out := []string{j.State}
	if j.State == "dead" {
		out = append(out, "error")
	}
	if j.Finished.IsZero() {
		switch {
		case !j.Unsent.IsZero():
			out = []string{"unsent"}
		case j.Owner == "other":
			out = append(out, "other")
		case j.Owner == "" && !j.RestsUntil.IsZero():
			out = append(out, "resting")
		}
	}
	return out
}

var jobOrders = []sorting[snapshot.Job]{
	{"as they come", nil},
	{"job", func(a, b snapshot.Job) int { return cmp.Compare(a.Name, b.Name) }},
	{"repository", func(a, b snapshot.Job) int { return cmp.Compare(a.Repository, b.Repository) }},
	{"action", func(a, b snapshot.Job) int { return cmp.Compare(a.Action, b.Action) }},
	{"state", func(a, b snapshot.Job) int { return cmp.Compare(severity(a.State), severity(b.State)) }},
	{"progress", func(a, b snapshot.Job) int { return cmp.Compare(b.Progress, a.Progress) }},
	{"age", func(a, b snapshot.Job) int { return a.Created.Compare(b.Created) }},
}

var repoOrders = []sorting[snapshot.Repo]{
	{"name", nil},
	{"state", func(a, b snapshot.Repo) int { return cmp.Compare(severity(repoState(a)), severity(repoState(b))) }},
	{"type", func(a, b snapshot.Repo) int { return cmp.Compare(a.Type, b.Type) }},
	{"synced", func(a, b snapshot.Repo) int { return a.Synced.Compare(b.Synced) }},
	{"next pull", func(a, b snapshot.Repo) int { return a.Next.Compare(b.Next) }},
	{"objects", func(a, b snapshot.Repo) int { return cmp.Compare(b.Resources, a.Resources) }},
}

// severity orders states: what needs a person first.
func severity(state string) int {
	if i := slices.Index([]string{"error", "dead", "warning", "cancelled", "working", "pending"}, state); i >= 0 {
		return i
	}
	return 99
}

// orderNames are those that the list of a pane can have.
func orderNames(of pane) (out []string) {
	switch of {
	case paneRepos:
		for _, o := range repoOrders {
			out = append(out, o.name)
		}
	case paneSources:
		for _, o := range sourceOrders {
			out = append(out, o.name)
		}
	default:
		for _, o := range jobOrders {
			out = append(out, o.name)
		}
	}
	return out
}

// orderText says in the title of a list how it is ordered, where that is not by
// itself.
func (p *view) orderText(of pane) string {
	o := p.s.orders[p.s.screen][of]
	if o == (order{}) {
		return ""
	}
	return ", by " + orderNames(of)[o.by] + " " + p.arrow(o)
}

func (p *view) arrow(o order) string {
	if o.reverse {
		return p.g.down
	}
	return p.g.up
}

// sortMenu chooses the order of the list with the focus.
type sortMenu struct {
	of pane
	at int
}

func (s State) openSort() State {
	of := s.listed()
	s.overlay = sortMenu{of: of, at: int(s.orders[s.screen][of].by)}
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
		o := &s.orders[s.screen][m.of]
		if int(o.by) == m.at && name == "enter" {
			o.reverse = !o.reverse
		} else if name == "enter" {
			*o = order{by: uint8(m.at)}
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
	return [][2]string{{p.g.up + p.g.down, "move"}, {"enter", "sort, again reverses"}, {"esc", "close"}}
}

func (m sortMenu) draw(p *view) {
	names := orderNames(m.of)
	now := p.s.orders[p.s.screen][m.of]
	rows := min(len(names), p.h-4)
	w, h := min(36, p.w), rows+2
	x, y := p.dialog(w, h)
	p.box(p.g, x, y, w, h, "Sort by", "", "enter, again reverses", true)
	top := window(m.at, len(names), rows)
	for i, name := range names[top:min(top+rows, len(names))] {
		if top+i == m.at {
			p.put(x+2, y+1+i, 1, roleKey, p.g.cursor)
		}
		if top+i == int(now.by) && now != (order{}) {
			name += " " + p.arrow(now)
		}
		p.put(x+4, y+1+i, w-6, rolePlain, name)
		if top+i == m.at {
			p.paintRow(x+3, y+1+i, x+w-2, roleCursor)
		}
	}
}
