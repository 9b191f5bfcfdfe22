package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Delta turns the snapshot From into the snapshot Seq. Of the lists it contains only
// changed rows: for a quiet agent some hundred bytes instead of a megabyte.
type Delta struct {
	From    uint64      `json:"from"`
	Seq     uint64      `json:"seq"`
	At      time.Time   `json:"at"`
	Agent   *Agent      `json:"agent,omitempty"` // nil = unchanged, as below
	API     *API        `json:"api,omitempty"`
	Counts  Counts      `json:"counts"`
	AsOf    time.Time   `json:"asOf,omitzero"`
	Problem string      `json:"problem,omitempty"`
	Jobs    *Rows[Job]  `json:"jobs,omitempty"`
	Repos   *Rows[Repo] `json:"repos,omitempty"`
	Events  *Lines      `json:"events,omitempty"`

	Sources      *Rows[Source] `json:"sources,omitempty"`
	SourcesError string        `json:"sourcesError,omitempty"`

	UnhealthyConnections []Connection `json:"unhealthyConnections,omitempty"` // the full list
}

// Rows is the change of a list: deleted rows, and rows that are new, changed or
// moved. The other rows keep their order.
type Rows[T any] struct {
	Len  int      `json:"len"`            // of the new list
	Gone []string `json:"gone,omitempty"` // keys: the UID of a job or a source, namespace/name of a repository
	Put  []Put[T] `json:"put,omitempty"`  // by index
}

// Put is one row and its index in the list.
type Put[T any] struct {
	At  int    `json:"at"`
	Row T      `json:"row"`
	Log *Lines `json:"log,omitempty"` // change of the Log of a known job; Log of Row is empty then
}

// Lines is the change of a list of lines that grows at its end and is cut at its
// beginning: the last Keep lines of the old list, then Add.
type Lines struct {
	Keep int     `json:"keep"`
	Add  []Event `json:"add,omitempty"`
}

// ErrGap reports that a delta does not apply to a snapshot. The reader needs a full
// snapshot.
var ErrGap = errors.New("the delta does not apply to the snapshot")

// Diff returns the delta from was to is, nil when two rows of a list have the same
// key.
func Diff(was, is *Snapshot) *Delta {
	d := &Delta{
		From:                 was.Seq,
		Seq:                  is.Seq,
		At:                   is.At,
		Counts:               is.Counts,
		AsOf:                 is.AsOf,
		Problem:              is.Problem,
		SourcesError:         is.SourcesError,
		UnhealthyConnections: is.UnhealthyConnections,
	}
	if was.Agent != is.Agent {
		d.Agent = &is.Agent
	}
	if was.API != is.API {
		d.API = &is.API
	}
	var ok bool
	if d.Jobs, ok = diffRows(was.Jobs, is.Jobs, jobKey, sameJob, putJob); !ok {
		return nil
	}
	if d.Repos, ok = diffRows(was.Repos, is.Repos, repoKey, sameRepo, putRepo); !ok {
		return nil
	}
	if d.Sources, ok = diffRows(was.Sources, is.Sources, sourceKey, sameSource, putSource); !ok {
		return nil
	}
	d.Events = diffLines(was.Events, is.Events)
	return d
}

// Apply returns s changed by d. s stays as it is; both share the rows that did not
// change. A delta may come from an untrusted peer, so it is validated. The error
// wraps ErrGap.
func Apply(s *Snapshot, d *Delta) (*Snapshot, error) {
	if d.From != s.Seq {
		return nil, fmt.Errorf("%w: it is for snapshot %d, this is %d", ErrGap, d.From, s.Seq)
	}
	out := *s
	out.Seq, out.At, out.Counts, out.AsOf, out.Problem = d.Seq, d.At, d.Counts, d.AsOf, d.Problem
	out.SourcesError, out.UnhealthyConnections = d.SourcesError, d.UnhealthyConnections
	if d.Agent != nil {
		out.Agent = *d.Agent
	}
	if d.API != nil {
		out.API = *d.API
	}
	var err error
	if out.Jobs, err = applyRows(s.Jobs, d.Jobs, jobKey, growLog); err != nil {
		return nil, err
	}
	if out.Repos, err = applyRows(s.Repos, d.Repos, repoKey, nil); err != nil {
		return nil, err
	}
	if out.Sources, err = applyRows(s.Sources, d.Sources, sourceKey, nil); err != nil {
		return nil, err
	}
	if out.Events, err = applyLines(s.Events, d.Events); err != nil {
		return nil, err
	}
	return &out, nil
}

func jobKey(j *Job) string       { return j.UID }
func repoKey(r *Repo) string     { return r.Namespace + "/" + r.Name }
func sourceKey(s *Source) string { return s.UID }

// putJob omits the log lines that the old row has.
func putJob(was, is *Job) Put[Job] {
	p := Put[Job]{Row: *is}
	if was == nil {
		return p
	}
	p.Row.Log = nil
	if p.Log = diffLines(was.Log, is.Log); p.Log == nil {
		p.Log = &Lines{Keep: len(is.Log)}
	}
	return p
}

func putRepo(_, is *Repo) Put[Repo]       { return Put[Repo]{Row: *is} }
func putSource(_, is *Source) Put[Source] { return Put[Source]{Row: *is} }

// growLog adds the log of the old row to the new one; nil means that there was no old
// row.
func growLog(was *Job, p *Put[Job]) (row Job, err error) {
	row = p.Row
	if p.Log == nil {
		return row, nil
	}
	if was == nil {
		return row, fmt.Errorf("%w: log of a job that was not there", ErrGap)
	}
	row.Log, err = applyLines(was.Log, p.Log)
	return row, err
}

// diffRows compares two lists. It omits rows that are equal and in the same order in
// both. ok is false when keys are not unique.
func diffRows[T any](was, is []T, key func(*T) string, same func(a, b *T) bool, put func(was, is *T) Put[T]) (*Rows[T], bool) {
	const isNew = -1
	place := make(map[string]int, len(was)) // in was, or isNew
	for i := range was {
		place[key(&was[i])] = i
	}
	if len(place) != len(was) {
		return nil, false
	}
	rows := &Rows[T]{Len: len(is)}
	there := make([]bool, len(was))
	last := -1 // place of the last row that is left out
	for at := range is {
		k := key(&is[at])
		i, known := place[k]
		switch {
		case known && (i == isNew || there[i]):
			return nil, false
		case !known:
			place[k] = isNew
			rows.Put = append(rows.Put, putAt(at, put(nil, &is[at])))
			continue
		}
		there[i] = true
		if i > last && same(&was[i], &is[at]) {
			last = i
			continue
		}
		rows.Put = append(rows.Put, putAt(at, put(&was[i], &is[at])))
	}
	for i, stays := range there {
		if !stays {
			rows.Gone = append(rows.Gone, key(&was[i]))
		}
	}
	if len(rows.Put) == 0 && len(rows.Gone) == 0 {
		return nil, true
	}
	return rows, true
}

func putAt[T any](at int, p Put[T]) Put[T] {
	p.At = at
	return p
}

// applyRows applies rows to a list. grow completes a row from its old version; nil
// means that rows are complete.
func applyRows[T any](was []T, rows *Rows[T], key func(*T) string, grow func(was *T, p *Put[T]) (T, error)) ([]T, error) {
	if rows == nil {
		return was, nil
	}
	away := make(map[string]int, len(rows.Gone)+len(rows.Put)) // the places of rows that do not stay where they are
	for _, k := range rows.Gone {
		away[k] = -1
	}
	for i := range rows.Put {
		away[key(&rows.Put[i].Row)] = -1
	}
	if len(away) != len(rows.Gone)+len(rows.Put) {
		return nil, fmt.Errorf("%w: a row comes twice", ErrGap)
	}
	stay := 0
	for i := range was {
		if k := key(&was[i]); mark(away, k, i) {
			continue
		}
		stay++
	}
	for _, k := range rows.Gone {
		if away[k] < 0 {
			return nil, fmt.Errorf("%w: a row goes that was not there", ErrGap)
		}
	}
	if rows.Len != stay+len(rows.Put) {
		return nil, fmt.Errorf("%w: %d rows, %d expected", ErrGap, stay+len(rows.Put), rows.Len)
	}
	out, from := make([]T, 0, rows.Len), 0
	rest := func(to int) { // copies what stays until there are so many rows
		for ; from < len(was) && len(out) < to; from++ {
			if _, moved := away[key(&was[from])]; !moved {
				out = append(out, was[from])
			}
		}
	}
	for i := range rows.Put {
		p := &rows.Put[i]
		if rest(p.At); len(out) != p.At {
			return nil, fmt.Errorf("%w: no place %d", ErrGap, p.At)
		}
		row := p.Row
		if grow != nil {
			var before *T
			if at := away[key(&p.Row)]; at >= 0 {
				before = &was[at]
			}
			var err error
			if row, err = grow(before, p); err != nil {
				return nil, err
			}
		}
		out = append(out, row)
	}
	rest(rows.Len)
	return out, nil
}

// mark sets the index of a key that is in the map.
func mark(places map[string]int, key string, at int) bool {
	_, ok := places[key]
	if ok {
		places[key] = at
	}
	return ok
}

// diffLines returns nil when the lines are the same.
func diffLines(was, is []Event) *Lines {
	if sameLines(was, is) {
		return nil
	}
	for i := range was {
		if kept := was[i:]; len(kept) <= len(is) && slices.Equal(kept, is[:len(kept)]) {
			return &Lines{Keep: len(kept), Add: is[len(kept):]}
		}
	}
	return &Lines{Add: is}
}

func applyLines(was []Event, l *Lines) ([]Event, error) {
	switch {
	case l == nil:
		return was, nil
	case l.Keep < 0 || l.Keep > len(was):
		return nil, fmt.Errorf("%w: %d lines of %d kept", ErrGap, l.Keep, len(was))
	}
	return slices.Concat(was[len(was)-l.Keep:], l.Add), nil
}

// sameLines recognises lists that share their memory without reading them: the logs
// of finished jobs are many and long, and do not change.
func sameLines(a, b []Event) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}
