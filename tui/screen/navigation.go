package screen

import (
	"fmt"
	"maps"
	"slices"

	"limpet/sync/text"
	"limpet/tui/widget"
)

type location struct {
	screen screenID
	object object // on the screens of one object
	path   string // on screenDiff
}

// navigation is the present location, those before and after it, and the filters of the screens.
type navigation struct {
	location
	back     []location // targets of [ and Esc; the last is the newest
	forwards []location // targets of ]
	filters  [screenCount]string
}

// trailLength bounds the navigation history.
const trailLength = 32

// goTo shows a screen; Esc and [ return. The screens of an object share it.
func (n *navigation) goTo(to screenID) {
	if to == n.screen {
		return
	}
	n.back, n.forwards = append(slices.Clip(n.back[max(len(n.back)-trailLength+1, 0):]), n.location), nil
	n.screen, n.path = to, ""
}

func (s *navigation) filter() string { return s.filters[s.screen] }

func (s *navigation) setFilter(line string) { s.filters[s.screen] = line }

type filterLine struct {
	typing bool     // keys edit the filter
	past   []string // earlier filters, the newest last
	pastAt int      // position in past, counted from the newest
}

// overviewFields are the fields of both lists of the overview; a list ignores those of the other.
var overviewFields = widget.FieldSet{"repo": nil, "action": nil, "type": nil,
	"state": append(slices.Clone(jobKind.fields["state"]), "suspended")}

// filterFields returns the fields of the filter of the present screen; nil = it has none.
func (s *navigation) filterFields() widget.FieldSet {
	return map[screenID]widget.FieldSet{screenOverview: overviewFields, screenJobs: jobKind.fields, screenRepos: repoKind.fields,
		screenSources: sourceKind.fields, screenHistory: historyFields}[s.screen]
}

func (s *State) filterable() bool {
	_, found := s.at(s.screen).(finder)
	return found || s.filterFields() != nil
}

func (s *navigation) filterTerms() widget.FilterTerms {
	return widget.ParseTerms(s.filter(), s.filterFields())
}

// fieldValues returns the fields with their values: the possible ones or, for free texts, those of the snapshot.
func (s *inventory) fieldValues(fields widget.FieldSet) widget.FieldSet {
	out := maps.Clone(fields)
	see := func(name, value string) {
		if known, ok := fields[name]; ok && known == nil && value != "" && !slices.Contains(out[name], value) {
			out[name] = append(out[name], value)
		}
	}
	for _, r := range s.Snap.Repos {
		see("repo", r.Name)
		see("type", r.Type)
	}
	for i := range s.Snap.Jobs {
		see("action", s.Snap.Jobs[i].Action)
	}
	for _, from := range s.Snap.Sources {
		see("source", from.Name)
		see("namespace", from.Namespace)
		see("provider", from.Provider)
		see("reason", from.Reason)
	}
	for name, values := range out {
		out[name] = slices.Sorted(slices.Values(values))
	}
	return out
}

// maxFilters bounds the filter history.
const maxFilters = 20

// key handles a key in the filter line. Printable keys are text; up and down recall earlier filters, Tab completes.
func (in *filterLine) key(filter *string, values widget.FieldSet, name, typed string) {
	switch name {
	case "enter":
		in.typing, in.pastAt = false, 0
		if *filter != "" {
			past := slices.DeleteFunc(slices.Clone(in.past), func(l string) bool { return l == *filter })
			in.past = append(past[max(len(past)-maxFilters+1, 0):], *filter)
		}
	case "esc":
		in.typing, in.pastAt, *filter = false, 0, ""
	case "up", "down":
		back := in.pastAt + 1
		if name == "down" {
			back = in.pastAt - 1
		}
		if back < 0 || back > len(in.past) {
			return
		}
		if in.pastAt, *filter = back, ""; back > 0 {
			*filter = in.past[len(in.past)-back]
		}
	case "tab":
		if whole := widget.Complete(*filter, values); len([]rune(whole)) <= widget.MaxLine {
			*filter = whole
		}
	default:
		*filter = widget.Edit(*filter, name, typed)
	}
}

// filterText describes the matches of the filter. The filter covers the rows of the snapshot
// only, which may be the beginning of a longer queue.
func (s *State) filterText() string {
	if f, ok := s.at(s.screen).(finder); ok {
		return fmt.Sprintf("%q: %s; Esc clears", s.filter(), f.found(s))
	}
	if problem := s.filterTerms().Problem; problem != "" {
		return problem + "; Esc clears"
	}
	found := fmt.Sprintf("%d of %d jobs, %d of %d repositories", len(s.jobs.rows), len(s.Snap.Jobs), len(s.repos.rows), len(s.Snap.Repos))
	if s.screen == screenSources {
		found = fmt.Sprintf("%d of %s", len(s.sources.rows), text.Plural(len(s.Snap.Sources), "source"))
	}
	return fmt.Sprintf("filter %q: %s; Esc clears", s.filter(), found)
}
