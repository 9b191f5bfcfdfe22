package jobs

import (
	"math"
	"time"

	"limpet/state"
)

// maxSteps bounds the steps of a run that are kept; the last one goes on for the rest.
const maxSteps = 16

// Step is one part of a run, as the worker names it.
type Step struct {
	Text string
	At   time.Time     // when it began, by the local clock
	Took time.Duration // 0 while it goes on
}

// beginStep adds a step to those of a run, which are one behind the other: only the last
// one goes on. What took less than briefest is not kept: a pull with nothing to do, of
// which there is one a minute, has one or two.
func beginStep(s []Step, text string, now time.Time) []Step {
	text = clip(text, maxStepText)
	if n := len(s); n > 0 {
		last := &s[n-1]
		took := now.Sub(last.At)
		switch {
		case last.Text == text:
			return s
		case took < briefest:
			if s = s[:n-1]; n > 1 && s[n-2].Text == text {
				s[n-2].Took = 0 // it goes on
				return s
			}
		case n == maxSteps:
			return s
		default:
			last.Took = took
		}
	}
	return append(s, Step{Text: text, At: now})
}

// briefest is the shortest step worth keeping.
const briefest = 10 * time.Millisecond

// maxStepText bounds the name of a step, since each record carries it. Unit: bytes.
const maxStepText = 100

// finishedSteps returns the steps of a run that ended then, for its record.
func finishedSteps(s []Step, end time.Time) []state.Step {
	var out []state.Step
	for i, one := range s {
		if i == len(s)-1 {
			one.Took = end.Sub(one.At)
		}
		if one.Took >= briefest {
			out = append(out, state.Step{Text: one.Text, Seconds: math.Round(one.Took.Seconds()*1000) / 1000})
		}
	}
	return out
}
