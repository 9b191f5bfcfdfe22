package screen

import (
	"fmt"
	"maps"
	"slices"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// order is the order of a list: the index of a sorting, 0 for that of the snapshot.
type order struct {
	by      int
	reverse bool
}

// position is the cursor of a list, its marks and its order.
type position struct {
	keys   []string // of the rows
	cursor string   // key of the row under the cursor
	marks  []string // keys of marked rows
	order  order
	sorts  []string // the names of the orders
}

// list is a list of rows with a cursor that stays on its row.
type list[T any] struct {
	position
	kind *kind[T]
	rows []T
}

// kind describes the rows of a list.
type kind[T any] struct {
	key     func(*T) string
	object  func(*T) object // nil = its rows are no objects
	follows bool            // a cursor on the first row stays on the first row
	fields  widget.FieldSet // of a filter line; none = any value
	match   func(T, *widget.FilterTerms) bool
	sorts   []sorting[T]
}

type sorting[T any] struct {
	name    string
	compare func(a, b T) int
}

func newList[T any](of *kind[T]) list[T] {
	l := list[T]{kind: of}
	for _, o := range of.sorts {
		l.sorts = append(l.sorts, o.name)
	}
	return l
}

// find shows the rows that match the filter, in the order of the list; nil = no filter.
func (l *list[T]) find(all []T, filter *widget.FilterTerms) {
	rows := all
	if filter != nil {
		rows = nil
		for _, row := range all {
			if filter.Problem == "" && l.kind.match(row, filter) {
				rows = append(rows, row)
			}
		}
	}
	if l.order != (order{}) {
		rows = slices.Clone(rows)
		if compare := l.kind.sorts[l.order.by].compare; compare != nil {
			slices.SortStableFunc(rows, compare)
		}
		if l.order.reverse {
			slices.Reverse(rows)
		}
	}
	l.show(rows)
}

func (l *list[T]) show(rows []T) {
	l.rows = rows
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = l.kind.key(&rows[i])
	}
	// A cursor whose row is gone goes to the one in its place. Actions never affect hidden rows, so
	// their marks are dropped.
	was := slices.Index(l.keys, l.cursor)
	switch {
	case len(keys) == 0:
		l.cursor = ""
	case l.kind.follows && was <= 0 && (was == 0 || l.cursor == ""), was < 0 && !slices.Contains(keys, l.cursor):
		l.cursor = keys[0]
	case !slices.Contains(keys, l.cursor):
		l.cursor = keys[min(was, len(keys)-1)]
	}
	l.keys = keys
	if len(l.marks) > 0 {
		l.marks = slices.DeleteFunc(slices.Clone(l.marks), func(k string) bool { return !slices.Contains(keys, k) })
	}
}

func (l *list[T]) here() *T {
	if len(l.rows) == 0 {
		return nil
	}
	return &l.rows[l.index()]
}

// selection returns the marked rows, else the one under the cursor.
func (l *list[T]) selection(*scene) (out []object) {
	for i := 0; len(l.marks) > 0 && i < len(l.rows); i++ {
		if slices.Contains(l.marks, l.keys[i]) {
			out = append(out, l.kind.object(&l.rows[i]))
		}
	}
	if row := l.here(); len(out) == 0 && row != nil {
		out = append(out, l.kind.object(row))
	}
	return out
}

// open opens the row under the cursor.
func (l *list[T]) open(*scene) (out Outcome) {
	if row := l.here(); row != nil {
		out.object = l.kind.object(row)
	}
	return out
}

func (l *position) listPosition() *position { return l }

// index returns the row of the cursor, 0 when no row has its key.
func (l *position) index() int { return max(slices.Index(l.keys, l.cursor), 0) }

func (l *position) move(by int) {
	if len(l.keys) > 0 {
		l.cursor = l.keys[min(max(l.index()+by, 0), len(l.keys)-1)]
	}
}

// maxMarks bounds the marked rows of a list: each one is a separate request to the agent.
const maxMarks = 100

// mark toggles the mark under the cursor and moves on. It returns what is to be said, and whether
// it is a refusal.
func (l *position) mark() (said string, bad bool) {
	marks := slices.Clone(l.marks)
	switch i := slices.Index(marks, l.cursor); {
	case i >= 0:
		l.marks = slices.Delete(marks, i, i+1)
	case len(marks) == maxMarks:
		return fmt.Sprintf("%d are marked; that is all that can be", maxMarks), true
	default:
		l.marks = append(marks, l.cursor)
	}
	l.move(1)
	return "", false
}

// markAll marks all displayed rows; when all are marked it removes the marks.
func (l *position) markAll() (said string) {
	all := l.keys[:min(len(l.keys), maxMarks)]
	if slices.Equal(l.marks, all) {
		l.marks = nil
		return ""
	}
	l.marks = slices.Clone(all)
	return widget.When(len(l.keys) > len(all), fmt.Sprintf("the first %d of %s are marked; that is all that can be", maxMarks,
		text.Thousands(len(l.keys))))
}

func (s *scene) filter() string { return s.filters[s.screen] }

func (s *scene) setFilter(line string) { s.filters[s.screen] = line }

type filterLine struct {
	typing bool     // keys edit the filter
	past   []string // earlier filters, the newest last
	pastAt int      // position in past, counted from the newest
}

// overviewFields are the fields of both lists of the overview; a list ignores those of the other.
var overviewFields = widget.FieldSet{"repo": nil, "action": nil, "type": nil,
	"state": append(slices.Clone(jobKind.fields["state"]), "suspended")}

// filterFields returns the fields of the filter of the present screen; nil = it has none.
func (s *scene) filterFields() widget.FieldSet {
	return map[screenID]widget.FieldSet{screenOverview: overviewFields, screenJobs: jobKind.fields, screenRepos: repoKind.fields,
		screenSources: sourceKind.fields,
		screenHistory: historyFields, screenFiles: fileKind.fields}[s.screen]
}

func (s *scene) filterTerms() widget.FilterTerms {
	return widget.ParseTerms(s.filter(), s.filterFields())
}

// fieldValues returns the fields with their values: the possible ones or, for free texts, those of
// the snapshot.
func fieldValues(s *facts, fields widget.FieldSet) widget.FieldSet {
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

// key handles a key in the filter line. Printable keys are text; up and down recall earlier
// filters, Tab completes.
func (in *filterLine) key(filter *string, values widget.FieldSet, name, typed string) {
	switch name {
	case "enter":
		in.typing, in.pastAt = false, 0
		if *filter != "" {
			past := slices.DeleteFunc(slices.Clone(in.past), func(l string) bool { return l == *filter })
			in.past = append(past[max(len(past)-maxFilters+1, 0):], *filter)
		}
	case "esc":
		in.typing, in.pastAt = false, 0
		*filter = ""
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

// filterText describes the matches of the filter, in the rows of the snapshot only: the queue may
// be longer.
func filterText(s *State) string {
	if f, ok := s.at(s.screen).(finder); ok {
		return fmt.Sprintf("%q: %s; Esc clears", s.filter(), f.found(&s.scene))
	}
	if problem := s.filterTerms().Problem; problem != "" {
		return problem + "; Esc clears"
	}
	found := fmt.Sprintf("%d of %d jobs, %d of %d repositories", len(s.jobs.rows), len(s.Snap.Jobs), len(s.repos.rows), len(s.Snap.Repos))
	switch s.screen {
	case screenJobs:
		found = fmt.Sprintf("%d of %s", len(s.jobs.rows), text.Plural(len(s.Snap.Jobs), "job"))
	case screenRepos:
		found = fmt.Sprintf("%d of %d repositories", len(s.repos.rows), len(s.Snap.Repos))
	case screenSources:
		found = fmt.Sprintf("%d of %s", len(s.sources.rows), text.Plural(len(s.Snap.Sources), "source"))
	}
	return fmt.Sprintf("filter %q: %s; Esc clears", s.filter(), found)
}

// severity orders states: problems first.
func severity(state string) int {
	states := []string{"error", "dead", snapshot.SourceStalled, snapshot.SourceFailed, "warning", snapshot.SourceUnknown, "cancelled",
		"suspended", "working", "pending"}
	if i := slices.Index(states, state); i >= 0 {
		return i
	}
	return len(states)
}
