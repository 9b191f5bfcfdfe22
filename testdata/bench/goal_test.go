package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three: %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four: %v", got)
	}
}

// TestJudge: a ratio is that of the rounds, not of their medians, and the verdict follows it.
func TestJudge(t *testing.T) {
	of := func(ms ...int) []sample {
		all := make([]sample, len(ms))
		for i, n := range ms {
			all[i] = sample{wall: time.Duration(n) * time.Millisecond}
		}
		return all
	}
	for _, c := range []struct {
		goal    goal
		limpet  []sample
		other   []sample
		ratio   float64
		verdict string
	}{
		{goal{figure: wall, pass: 0.8, aim: 0.5}, of(50, 100, 200), of(100, 200, 400), 0.5, "S"},
		{goal{figure: wall, pass: 0.8, aim: 0.5}, of(60, 60, 60), of(100, 100, 100), 0.6, "P"},
		{goal{figure: wall, pass: 0.8, aim: 0.5}, of(90, 90, 90), of(100, 100, 100), 0.9, "no"},
		{goal{figure: wall}, of(90), of(100), 0.9, "-"},
		{goal{figure: wall, pass: 1, most: 0.06}, of(30, 30), nil, 0.5, "P"},
	} {
		r := row{goal: c.goal}
		r.judge([][]sample{c.limpet, c.other, nil})
		if diff := r.ratio - c.ratio; diff > 1e-9 || diff < -1e-9 || r.verdict() != c.verdict {
			t.Errorf("%v over %v: %v %s, want %v %s", c.limpet, c.other, r.ratio, r.verdict(), c.ratio, c.verdict)
		}
	}
}

func TestBaseline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	measured := func(ratio, low float64) []row { return []row{{name: "a", ratio: ratio, low: low, rounds: 3}} }
	if err := writeBaseline(path, measured(0.5, 0.4)); err != nil {
		t.Fatal(err)
	}
	if err := compareBaseline(path, measured(0.59, 0.55)); err != nil {
		t.Errorf("1.18 times: %v", err)
	}
	if err := compareBaseline(path, measured(0.7, 0.45)); err != nil {
		t.Errorf("one round as good as before: %v", err)
	}
	if compareBaseline(path, measured(0.61, 0.55)) == nil {
		t.Error("1.22 times passes")
	}
	if compareBaseline(path, nil) == nil {
		t.Error("nothing measured passes")
	}
}

// TestDashboards: the files are JSON, and the same each time.
func TestDashboards(t *testing.T) {
	s := sizes["small"]
	for i := range 3 {
		data := s.dashboard(i, i)
		if !json.Valid(data) {
			t.Errorf("file %d is not JSON", i)
		}
		if !bytes.Equal(data, s.dashboard(i, i)) || bytes.Equal(data, s.dashboard(i, i+1)) {
			t.Errorf("file %d: its revision does not decide its bytes", i)
		}
	}
}
