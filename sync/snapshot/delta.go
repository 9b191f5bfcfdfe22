package snapshot

import (
	"fmt"
	"reflect"
	"slices"
)

// Delta turns the snapshot From into another one. Of the lists it contains only changed
// rows: for a quiet agent one kilobyte instead of a megabyte.
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
	kept := overlap(was.Events, is.Events)
	d.Events = List[Event]{{At: len(was.Events) - kept, N: kept}, {Rows: is.Events[kept:]}}
	return d
}

// diffList finds the old version of a row by its key. Rows that are equal and neighbours
// in both lists become one part.
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

// overlap returns how many lines at the end of was are the first lines of is: the list
// grows at its end and is cut at its beginning.
func overlap(was, is []Event) int {
	for n := min(len(was), len(is)); n > 0; n-- {
		if slices.Equal(was[len(was)-n:], is[:n]) {
			return n
		}
	}
	return 0
}

// Apply returns s changed by d. s stays as it is; both share rows. It returns an error
// when d is for another snapshot.
func Apply(s *Snapshot, d *Delta) (*Snapshot, error) {
	if d.From != s.Seq {
		return nil, fmt.Errorf("the delta is for snapshot %d, this is %d", d.From, s.Seq)
	}
	out := d.Head
	var errs [4]error
	out.Jobs, errs[0] = applyList(s.Jobs, d.Jobs)
	out.Repos, errs[1] = applyList(s.Repos, d.Repos)
	out.Sources, errs[2] = applyList(s.Sources, d.Sources)
	out.Events, errs[3] = applyList(s.Events, d.Events)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return &out, nil
}

func applyList[T any](was []T, list List[T]) ([]T, error) {
	if len(list) == 1 && list[0].At == 0 && list[0].N == len(was) && len(list[0].Rows) == 0 {
		return slices.Clip(was), nil
	}
	var out []T
	for _, part := range list {
		if part.At < 0 || part.N < 0 || part.At > len(was) || part.N > len(was)-part.At {
			return nil, fmt.Errorf("the delta has rows %d to %d of a list of %d", part.At, part.At+part.N, len(was))
		}
		out = append(append(out, was[part.At:part.At+part.N]...), part.Rows...)
	}
	return out, nil
}
