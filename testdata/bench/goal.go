package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// step is one round of a side.
type step func() (sample, error)

// figure is what a goal compares: all but rss for each that was done.
type figure string

const (
	wall  figure = "wall"
	cpu   figure = "cpu"
	rss   figure = "rss"
	sent  figure = "bytes"
	calls figure = "calls"
	share figure = "share" // of a core
)

func (f figure) of(s sample) float64 {
	each := max(s.count, 1)
	switch f {
	case cpu:
		return s.cpu.Seconds() / each
	case rss:
		return float64(s.rss)
	case sent:
		return float64(s.bytes) / each
	case calls:
		return float64(s.calls) / each
	case share:
		return s.cpu.Seconds() / s.wall.Seconds()
	}
	return s.wall.Seconds() / each
}

// race is what has rounds in turn: limpet, and what it is compared with.
type race struct {
	sizes  []string // of repositories; none: it needs none
	once   bool     // on the first medium only
	rounds int      // at most; 0: as many as asked for
	// limpet and against prepare a side. Without limpet the goals are not measured; without
	// against each has a figure of its own to compare with.
	limpet  func(b *bench, binary string) (step, error)
	against func(b *bench) (step, error)
	goals   []goal
}

// goal is a figure of limpet over that of the other side, or over a constant.
type goal struct {
	id     string
	what   string
	figure figure
	pass   float64 // the ratio at most; 0: it is printed only
	aim    float64
	most   float64 // 0: the other side; else what the figure is compared with
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
	names := []string{"limpet"}
	sides := []func() (step, error){func() (step, error) { return r.limpet(b, b.limpet) }}
	if r.against != nil {
		names = append(names, "reference")
		sides = append(sides, func() (step, error) { return r.against(b) })
	}
	if b.vs != "" {
		names = append(names, "-vs")
		sides = append(sides, func() (step, error) { return r.limpet(b, b.vs) })
	}
	steps := make([]step, len(sides))
	for i, open := range sides {
		var err error
		if steps[i], err = open(); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	rounds := b.rounds
	if r.rounds > 0 {
		rounds = min(rounds, r.rounds)
	}
	taken := map[string][]sample{}
	for range rounds {
		for i, step := range steps {
			s, err := step()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			fmt.Fprintf(os.Stderr, "%s %s: %s\n", b.title(r.goals[0].id), names[i], s)
			taken[names[i]] = append(taken[names[i]], s)
		}
	}
	return [][]sample{taken["limpet"], taken["reference"], taken["-vs"]}, nil
}

// judge compares the rounds of the sides.
func (r *row) judge(taken [][]sample) {
	r.rounds = len(taken[0])
	r.limpet = middle(taken[0])
	ratios := r.ratios(taken[0], taken[1])
	r.ratio = median(ratios)
	r.low = slices.Min(ratios)
	r.high = slices.Max(ratios)
	if r.most == 0 {
		r.other = middle(taken[1])
	}
	if taken[2] != nil {
		r.vs = median(goal{figure: r.figure}.ratios(taken[0], taken[2]))
	}
}

// ratios compares round by round, so that a machine that slows down does not count.
func (g goal) ratios(a, b []sample) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		other := g.most
		if other == 0 {
			other = g.figure.of(b[i])
		}
		all[i] = g.figure.of(a[i]) / other
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
	if len(all) == 0 {
		return sample{}
	}
	return sample{
		wall:  median(figures(all, func(s sample) time.Duration { return s.wall })),
		cpu:   median(figures(all, func(s sample) time.Duration { return s.cpu })),
		rss:   median(figures(all, func(s sample) int64 { return s.rss })),
		bytes: median(figures(all, func(s sample) int64 { return s.bytes })),
		calls: median(figures(all, func(s sample) int64 { return s.calls })),
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
