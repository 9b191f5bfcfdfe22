package tui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// timesWidth is the room for the times of a job beside its summary on a screen of w
// cells; 0 = there is none.
func (p *view) timesWidth(w int) int {
	if w < wideWidth || p.s.zoomed[screenDetail] {
		return 0
	}
	return 46
}

// timesHeight is the room for them below a summary of h lines that is zoomed; 0 = there
// is none.
func (p *view) timesHeight(h int, j snapshot.Job) int {
	if !p.s.zoomed[screenDetail] || h < 8 {
		return 0
	}
	return min(len(p.times(j))+len(j.Steps)+2, max(h/2, h-max(len(j.Summary), 1)-3))
}

// times are the turns in the life of a job as far as they are known.
func (p *view) times(j snapshot.Job) (out []fact) {
	now := p.s.Now
	at := func(name, txt string) { out = append(out, fact{rolePlain, name, txt}) }
	if !j.Created.IsZero() {
		at("queued", clockTime(j.Created, now)+", "+ago(now, j.Created))
	}
	if !j.Started.IsZero() {
		txt := clockTime(j.Started, now)
		if wait := j.Started.Sub(j.Created); !j.Created.IsZero() && wait >= 0 {
			txt += ", after " + text.Age(wait)
		}
		at("started", txt)
	}
	switch left := remaining(j, now); {
	case !j.Finished.IsZero():
		txt := clockTime(j.Finished, now)
		if !j.Started.IsZero() {
			txt += ", after " + secondsText(j.Finished.Sub(j.Started))
		}
		at("ended", txt)
	case !j.Unsent.IsZero():
		at("done", clockTime(j.Unsent, now)+", "+ago(now, j.Unsent))
	case p.s.waitsForRetry(j):
		at("again", clockTime(j.RestsUntil, now)+", in "+text.Age(j.RestsUntil.Sub(now)))
	case left > 0 && p.shownState(j) == "working":
		at("ends", "about "+clockTime(now.Add(left), now)+" at this pace")
	}
	return out
}

func (p *view) timesBox(x, y, w, h int, j snapshot.Job) {
	if w < 3 || h < 3 {
		return
	}
	p.box(p.g, x, y, w, h, "Times", "", "", false)
	var lines []textLine
	for _, f := range p.times(j) {
		lines = append(lines, textLine{f.role, fmt.Sprintf("%-9s%s", f.name, f.text)})
	}
	p.putLines(x, y, w, h, lines)
	p.timeLine(x+2, y+1+len(lines), w-4, h-2-len(lines), j)
}

// timeLine shows the steps of a run under each other, each with its part of the whole
// time. Where there is no room for all, the longest stay and the others are counted.
func (p *view) timeLine(x, y, w, h int, j snapshot.Job) {
	const took = 6
	name := max(22, w/2-2)
	room := w - name - took - 2
	if len(j.Steps) == 0 || room < 1 || h < 1 {
		return
	}
	long := make([]time.Duration, len(j.Steps))
	for i := range j.Steps {
		long[i] = tookOf(j, i, p.s.Now)
	}
	begin := j.Steps[0].At
	last := len(j.Steps) - 1
	whole := j.Steps[last].At.Add(long[last]).Sub(begin)
	if rest := len(j.Steps) - (h - 1); rest > 1 {
		txt := fmt.Sprintf("%s %d shorter ones", p.g.more, rest)
		if h == 1 {
			txt = fmt.Sprintf("%s %d steps", p.g.more, rest)
		}
		p.put(x, y+h-1, w, roleDim, txt)
		h--
	}
	for _, i := range longest(long, h) {
		step, r := j.Steps[i], rolePlain
		if i == last && p.shownState(j) == "working" {
			r = roleWork
		}
		p.put(x, y, name, r, cut(step.Text, name, p.g.more))
		txt := secondsText(long[i])
		if ms := long[i].Milliseconds(); ms > 0 && ms < 100 {
			txt = fmt.Sprintf("%dms", ms)
		}
		p.right(x+name, x+name+took, y, r, txt)
		p.put(x+name+took+2, y, room, r, p.stretch(room, step.At.Sub(begin), long[i], whole))
		y++
	}
}

// tookOf is how long a step of a job took, or takes by now.
func tookOf(j snapshot.Job, step int, now time.Time) time.Duration {
	s := j.Steps[step]
	switch {
	case s.Took > 0 || step < len(j.Steps)-1:
		return max(s.Took, 0)
	case !j.Finished.IsZero():
		now = j.Finished
	case !j.Unsent.IsZero():
		now = j.Unsent
	}
	return max(now.Sub(s.At), 0)
}

// longest are the places of the n longest, in their order.
func longest(all []time.Duration, n int) []int {
	at := make([]int, len(all))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(all[b], all[a]) })
	at = at[:min(n, len(at))]
	slices.Sort(at)
	return at
}
