package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// Rows of each list on the page; the JSON has all of them.
const (
	maxRows   = 200
	maxLines  = 50 // of problems and of events
	maxLength = 300
)

// view has what the template shows.
type view struct {
	Status
	now time.Time
}

// rows are the first of a list.
type rows[T any] struct {
	Shown []T
	More  int // that are not shown
}

func first[T any](list []T, most int) rows[T] {
	return rows[T]{list[:min(len(list), most)], max(len(list)-most, 0)}
}

// Jobs are those that have not ended.
func (v view) Jobs() rows[snapshot.Job] {
	live := slices.DeleteFunc(slices.Clone(v.Live.Jobs), func(j snapshot.Job) bool { return !j.Finished.IsZero() })
	return first(live, maxRows)
}

// Repos are those that fail, then the others.
func (v view) Repos() rows[snapshot.Repo] {
	return first(failingFirst(v.Live.Repos, func(r snapshot.Repo) bool { return v.RepoState(r) == api.StateError }), maxRows)
}

// Sources are those that fail, then the others.
func (v view) Sources() rows[snapshot.Source] {
	return first(failingFirst(v.Live.Sources, func(s snapshot.Source) bool { return s.Bad() }), maxRows)
}

func failingFirst[T any](list []T, fails func(T) bool) (out []T) {
	for _, want := range []bool{true, false} {
		for _, one := range list {
			if fails(one) == want {
				out = append(out, one)
			}
		}
	}
	return out
}

// problem is a line of a problem, and the command that is to be run next; "" = none.
type problem struct{ State, Text, Next string }

// Problems are what is wrong, then the warnings.
func (v view) Problems() rows[problem] {
	var out []problem
	for i, list := range [][]string{v.Why, v.Warnings} {
		for _, line := range list {
			said, next := line, ""
			if at := strings.LastIndex(line, ": limpet "); at >= 0 {
				said, next = line[:at], line[at+2:]
			}
			out = append(out, problem{[]string{"error", "warning"}[i], text.Line(said, maxLength), next})
		}
	}
	return first(out, maxLines)
}

// Failures are the last errors and warnings, newest first.
func (v view) Failures() rows[snapshot.Event] {
	var out []snapshot.Event
	for i := len(v.Live.Events) - 1; i >= 0; i-- {
		if e := v.Live.Events[i]; e.Level == "error" || e.Level == "warn" {
			e.Text = text.Line(e.Text, maxLength)
			out = append(out, e)
		}
	}
	return first(out, maxLines)
}

// Word is the state of the agent in a word, as 'limpet status --watch' has it.
func (v view) Word() string {
	switch {
	case !v.Live.API.Up:
		return "offline"
	case !v.Live.Agent.Draining.IsZero():
		return "drained"
	case !v.OK:
		return "degraded"
	}
	return "ok"
}

// Mark is the class of the word.
func (v view) Mark() string {
	if v.Word() == "drained" {
		return "warning"
	}
	return map[bool]string{true: "success", false: "error"}[v.OK && v.Live.API.Up]
}

// Ago returns the age of a time, "never" for none.
func (v view) Ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return text.Age(v.now.Sub(t)) + " ago"
}

// For returns how long something lasts, "-" when its start is not known.
func (v view) For(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(v.now.Sub(t))
}

// Next returns when something is due.
func (v view) Next(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !t.After(v.now):
		return "now"
	}
	return "in " + text.Age(t.Sub(v.now))
}

// UTC returns a time in full.
func (v view) UTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (v view) Short(ref string) string         { return text.OrDash(text.ShortRef(ref)) }
func (v view) Revision(revision string) string { return text.OrDash(snapshot.ShortRevision(revision)) }
func (v view) Line(s string) string            { return text.Line(s, maxLength) }
func (v view) Size(n int64) string             { return text.Size(n) }
func (v view) Count(n int64) string            { return text.Thousands(int(n)) }

// Due returns when a source is due.
func (v view) Due(s snapshot.Source) string { return strings.Replace(s.Due(v.now), "<", "within ", 1) }

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
	if r.Failing() {
		return text.Line(r.Health, maxLength)
	}
	for _, i := range r.Issues() {
		return text.Line(i.Text, maxLength)
	}
	return ""
}

// SourceState is that of a source.
func (v view) SourceState(s snapshot.Source) string {
	if s.Suspended {
		return "suspended"
	}
	return s.State
}

// JobState is that of a job in the queue.
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
	return text.Line(said, maxLength)
}

// Percent is the progress of a job; below 0 = unknown.
func (v view) Percent(j snapshot.Job) int { return int(j.Percent()) }

// Took is the duration of a finished job.
func (v view) Took(r state.Record) string {
	if r.Started.IsZero() {
		return "-"
	}
	return text.Took(r.Finished.Sub(r.Started))
}

// Tile is a number with its name.
type Tile struct {
	Name  string
	Count int
	Mark  string // class; "" = plain
}

// Tiles are the counts.
func (v view) Tiles() []Tile {
	failing, unready := 0, 0
	for _, r := range v.Live.Repos {
		if state := v.RepoState(r); state == api.StateError {
			failing++
		}
	}
	for i := range v.Live.Sources {
		if v.Live.Sources[i].Bad() {
			unready++
		}
	}
	bad := func(name string, n int) Tile { return Tile{name, n, map[bool]string{true: "error"}[n > 0]} }
	c := v.Live.Counts
	out := []Tile{
		{"working", c.Working, ""}, {"pending", c.Pending, ""}, {"waiting to retry", c.Resting, ""},
		{"on other agents", c.Elsewhere, ""}, {"repositories", len(v.Live.Repos), ""}, bad("failing", failing),
	}
	if len(v.Live.Sources) > 0 {
		out = append(out, Tile{"sources", len(v.Live.Sources), ""}, bad("not ready", unready))
	}
	return out
}

// Ended says what ended in the last hours.
func (v view) Ended() string {
	var sum snapshot.Hour
	for _, h := range v.Hours {
		sum.Success += h.Success
		sum.Warning += h.Warning
		sum.Error += h.Error
		sum.Cancelled += h.Cancelled
		sum.Seconds += h.Seconds
	}
	if sum.All() == 0 {
		return "no job ended"
	}
	mean := time.Duration(sum.Seconds / float64(sum.All()) * float64(time.Second))
	return fmt.Sprintf("%s, %d in warning, %d in error, %s on average", text.Plural(sum.All(), "job"), sum.Warning, sum.Error, text.Took(mean))
}
