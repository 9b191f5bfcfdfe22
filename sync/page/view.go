package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What the page shows at most; the JSON has all of it.
const (
	maxRows   = 200
	maxLength = 400 // bytes of a text
)

// view has what the template shows.
type view struct {
	Status
	now time.Time
}

// rows are the first of a list, those that fail before the others.
type rows[T any] struct {
	Shown []T
	Bad   int // number of those that fail
	More  int // that are not shown
}

func newRows[T any](list []T, fails func(T) bool) (r rows[T]) {
	for _, bad := range []bool{true, false} {
		for _, one := range list {
			if fails(one) == bad {
				r.Shown = append(r.Shown, one)
			}
		}
		if bad {
			r.Bad = len(r.Shown)
		}
	}
	r.More = max(len(r.Shown)-maxRows, 0)
	r.Shown = r.Shown[:len(r.Shown)-r.More]
	return r
}

// Jobs are those that have not ended.
func (v view) Jobs() rows[snapshot.Job] {
	live := slices.DeleteFunc(slices.Clone(v.Live.Jobs), func(j snapshot.Job) bool { return !j.Finished.IsZero() })
	return newRows(live, func(j snapshot.Job) bool { return j.WaitReason != "" })
}

func (v view) Repos() rows[snapshot.Repo] {
	return newRows(v.Live.Repos, func(r snapshot.Repo) bool { return v.RepoState(r) == api.StateError })
}

func (v view) Sources() rows[snapshot.Source] {
	return newRows(v.Live.Sources, func(s snapshot.Source) bool { return s.Bad() })
}

// Failures are the last errors and warnings, newest first.
func (v view) Failures() rows[snapshot.Event] {
	list := slices.DeleteFunc(slices.Clone(v.Live.Events), func(e snapshot.Event) bool { return e.Level != "error" && e.Level != "warn" })
	slices.Reverse(list)
	return newRows(list, func(snapshot.Event) bool { return false })
}

func (v view) Since(t time.Time) string        { return text.Age(v.now.Sub(t)) }
func (v view) Until(t time.Time) string        { return text.Age(t.Sub(v.now)) }
func (v view) UTC(t time.Time) string          { return t.UTC().Format(time.RFC3339) }
func (v view) Short(ref string) string         { return text.OrDash(text.ShortRef(ref)) }
func (v view) Revision(revision string) string { return snapshot.ShortRevision(revision) }
func (v view) Line(s string) string            { return text.Line(s, maxLength) }
func (v view) Size(n int64) string             { return text.Size(n) }
func (v view) Due(s snapshot.Source) string    { return strings.Replace(s.Due(v.now), "<", "within ", 1) }

// RepoState is the state of a repository in a word, which is the class of its row too.
func (v view) RepoState(r snapshot.Repo) string {
	switch {
	case r.Suspended:
		return "suspended"
	case r.Failing(), r.DeleteError != "":
		return api.StateError
	}
	return cmp.Or(r.SyncState, api.StatePending)
}

// Note is why a repository fails, or what is to be known of it; "" for nothing.
func (v view) Note(r snapshot.Repo) string {
	if issues := r.Issues(); len(issues) > 0 && !r.Failing() {
		return v.Line(issues[0].Text)
	}
	return v.Line(r.Health)
}

func (v view) JobState(j snapshot.Job) string {
	switch {
	case !j.Undelivered.IsZero():
		return "undelivered"
	case j.RetryAt.After(v.now):
		return "retry"
	}
	return cmp.Or(j.State, api.StatePending)
}

// JobNote is what there is to say of a job.
func (v view) JobNote(j snapshot.Job) string {
	said := cmp.Or(j.WaitReason, j.Message)
	if len(j.Errors) > 0 {
		said = j.Errors[0]
	}
	if j.Owner == "other" {
		said = strings.Trim("another agent has it: "+said, ": ")
	}
	return v.Line(said)
}

// Took is the duration of a finished job.
func (v view) Took(r state.Record) string {
	if r.Started.IsZero() {
		return "-"
	}
	return text.Took(r.Finished.Sub(r.Started))
}
