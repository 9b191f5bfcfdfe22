package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// step is one round of a side.
type step func() (sample, error)

// figure is which figure of a sample a goal compares.
type figure int

const (
	wall figure = iota
	cpu
	rss
	received
	each // wall by count
)

func (f figure) of(s sample) float64 {
	switch f {
	case cpu:
		return s.cpu.Seconds()
	case rss:
		return float64(s.rss)
	case received:
		return float64(s.bytes)
	case each:
		return s.wall.Seconds() / s.count
	}
	return s.wall.Seconds()
}

func (f figure) String() string { return [...]string{"wall", "cpu", "rss", "bytes", "each"}[f] }

// race is what has rounds in turn: limpet, and what it is compared with.
type race struct {
	sizes []string // of repositories; none: it needs none
	once  bool     // on the first medium only
	// limpet and against prepare a side. Without limpet the goals are not measured.
	limpet  func(b *bench, binary string) (step, error)
	against func(b *bench) (step, error)
	goals   []goal
}

// goal is a figure of limpet over that of the other side.
type goal struct {
	id     string
	what   string
	figure figure
	pass   float64 // the ratio at most; 0: it is printed only
	aim    float64
}

// row is what was measured for a goal.
type row struct {
	goal
	name   string // the goal, the repository and the medium
	limpet sample
	other  sample
	ratio  float64 // the median of the rounds
	low    float64
	high   float64
	rounds int
	vs     float64 // over the other binary; 0: none
	err    error
}

// run has the sides take turns and returns a row for each goal.
func (b *bench) run(r *race) []row {
	taken, err := b.turns(r)
	rows := make([]row, len(r.goals))
	for i, g := range r.goals {
		rows[i] = row{goal: g, name: b.title(g.id), err: err}
		if err == nil {
			rows[i].judge(taken)
		}
	}
	return rows
}

func (b *bench) turns(r *race) ([][]sample, error) {
	defer b.clean()
	limpet, err := r.limpet(b, b.limpet)
	if err != nil {
		return nil, err
	}
	other, err := r.against(b)
	if err != nil {
		return nil, err
	}
	steps := []step{limpet, other}
	if b.vs != "" {
		older, err := r.limpet(b, b.vs)
		if err != nil {
			return nil, err
		}
		steps = append(steps, older)
	}
	taken := make([][]sample, len(steps))
	for range b.rounds {
		for i, step := range steps {
			s, err := step()
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "%s %s: %s\n", b.title(r.goals[0].id), []string{"limpet", "reference", "-vs"}[i], s)
			taken[i] = append(taken[i], s)
		}
	}
	return taken, nil
}

// judge compares the rounds of the sides.
func (r *row) judge(taken [][]sample) {
	r.rounds = len(taken[0])
	r.limpet = middle(taken[0])
	r.other = middle(taken[1])
	ratios := r.ratios(taken[0], taken[1])
	r.ratio = median(ratios)
	r.low = slices.Min(ratios)
	r.high = slices.Max(ratios)
	if len(taken) > 2 {
		r.vs = median(r.ratios(taken[0], taken[2]))
	}
}

// ratios compares round by round, so that a machine that slows down does not count.
func (g goal) ratios(a, b []sample) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = g.figure.of(a[i]) / g.figure.of(b[i])
	}
	return all
}

// verdict is S or P where the aim or the limit is met, "no" where it is not.
func (r row) verdict() string {
	switch {
	case r.err != nil:
		return "failed"
	case r.pass == 0:
		return "-"
	case r.aim > 0 && r.ratio <= r.aim:
		return "S"
	case r.ratio <= r.pass:
		return "P"
	}
	return "no"
}

// middle takes the median of each figure.
func middle(all []sample) sample {
	return sample{
		wall:  median(figures(all, func(s sample) time.Duration { return s.wall })),
		cpu:   median(figures(all, func(s sample) time.Duration { return s.cpu })),
		rss:   median(figures(all, func(s sample) int64 { return s.rss })),
		bytes: median(figures(all, func(s sample) int64 { return s.bytes })),
		count: median(figures(all, func(s sample) float64 { return s.count })),
	}
}

func figures[T any](all []sample, of func(sample) T) []T {
	values := make([]T, len(all))
	for i, s := range all {
		values[i] = of(s)
	}
	return values
}

func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
