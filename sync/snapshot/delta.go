package snapshot

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Delta turns the snapshot From into another one. Of the lists it contains only changed rows: for a quiet agent one
// kilobyte instead of a megabyte.
type Delta struct {
	From    uint64       `json:"from"`
	Head    Snapshot     `json:"head"` // all but the lists below
	Jobs    List[Job]    `json:"jobs,omitempty"`
	Repos   List[Repo]   `json:"repos,omitempty"`
	Sources List[Source] `json:"sources,omitempty"`
	Events  List[Event]  `json:"events,omitempty"`
}

// List is a list in parts.
type List[T any] []Part[T]

// Part is either N rows of the old list or new rows.
type Part[T any] struct {
	At   int `json:"at,omitempty"` // index in the old list
	N    int `json:"n,omitempty"`
	Rows []T `json:"rows,omitempty"`
}

// Diff returns the delta from was to is.
func Diff(was, is *Snapshot) *Delta {
	d := &Delta{From: was.Seq, Head: *is}
	d.Head.Jobs, d.Head.Repos, d.Head.Sources, d.Head.Events = nil, nil, nil, nil
	d.Jobs = diffList(was.Jobs, is.Jobs, func(j *Job) string { return j.UID })
	d.Repos = diffList(was.Repos, is.Repos, func(r *Repo) string { return r.Namespace + "/" + r.Name })
	d.Sources = diffList(was.Sources, is.Sources, func(s *Source) string { return s.UID })
	d.Events = diffList(was.Events, is.Events, func(e *Event) string { return e.At.String() + e.Text })
	return d
}

// diffList finds the old version of a row by its key. Rows that are equal and neighbours in both lists become one part.
func diffList[T any](was, is []T, key func(*T) string) (out List[T]) {
	old := make(map[string]int, len(was))
	for i := range was {
		old[key(&was[i])] = i
	}
	for i := range is {
		at, known := old[key(&is[i])]
		same := known && reflect.DeepEqual(&was[at], &is[i])
		var last *Part[T]
		if len(out) > 0 {
			last = &out[len(out)-1]
		}
		switch {
		case same && last != nil && last.N > 0 && last.At+last.N == at:
			last.N++
		case same:
			out = append(out, Part[T]{At: at, N: 1})
		case last != nil && last.N == 0:
			last.Rows = append(last.Rows, is[i])
		default:
			out = append(out, Part[T]{Rows: []T{is[i]}})
		}
	}
	return out
}

// Apply returns s changed by d. s stays as it is; both share rows. It returns an error when d is for another snapshot.
func Apply(s *Snapshot, d *Delta) (*Snapshot, error) {
	if d.From != s.Seq {
		return nil, fmt.Errorf("the delta is for snapshot %d, this is %d", d.From, s.Seq)
	}
	out := d.Head
	err := errors.Join(applyList(&out.Jobs, s.Jobs, d.Jobs), applyList(&out.Repos, s.Repos, d.Repos),
		applyList(&out.Sources, s.Sources, d.Sources), applyList(&out.Events, s.Events, d.Events))
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func applyList[T any](out *[]T, was []T, list List[T]) error {
	if len(list) == 1 && list[0].At == 0 && list[0].N == len(was) && len(list[0].Rows) == 0 {
		*out = slices.Clip(was)
		return nil
	}
	*out = nil
	for _, part := range list {
		if part.At < 0 || part.N < 0 || part.At > len(was) || part.N > len(was)-part.At {
			return fmt.Errorf("the delta has rows %d to %d of a list of %d", part.At, part.At+part.N, len(was))
		}
		*out = append(append(*out, was[part.At:part.At+part.N]...), part.Rows...)
	}
	return nil
}
