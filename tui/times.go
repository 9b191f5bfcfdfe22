package tui

import (
	"fmt"

	"limpet/sync/view"
)

// timesWidth is the room for the times of a job beside its summary on a screen of w
// cells; 0 = there is none.
func (p *painter) timesWidth(w int) int {
	if w < wideWidth || p.s.zoomed[screenDetail] {
		return 0
	}
	return 46
}

// times are the turns in the life of a job as far as they are known.
func (p *painter) times(j view.Job) (out []fact) {
	now := p.s.Now
	at := func(name, text string) { out = append(out, fact{rolePlain, name, text}) }
	if !j.Created.IsZero() {
		at("queued", clockTime(j.Created, now)+", "+ago(now, j.Created))
	}
	if !j.Started.IsZero() {
		text := clockTime(j.Started, now)
		if wait := j.Started.Sub(j.Created); !j.Created.IsZero() && wait >= 0 {
			text += ", after " + view.Age(wait)
		}
		at("started", text)
	}
	switch left := remaining(j, now); {
	case !j.Finished.IsZero():
		text := clockTime(j.Finished, now)
		if !j.Started.IsZero() {
			text += ", after " + secondsText(j.Finished.Sub(j.Started))
		}
		at("ended", text)
	case !j.Unsent.IsZero():
		at("done", clockTime(j.Unsent, now)+", "+ago(now, j.Unsent))
	case j.RestsUntil.After(now) && j.Owner == "":
		at("again", clockTime(j.RestsUntil, now)+", in "+view.Age(j.RestsUntil.Sub(now)))
	case left > 0 && p.shown(j) == "working":
		at("ends", "about "+clockTime(now.Add(left), now)+" at this pace")
	}
	return out
}

func (p *painter) timesBox(x, y, w, h int, j view.Job) {
	p.box(p.g, x, y, w, h, "Times", "", "", false)
	var lines []laidOut
	for _, f := range p.times(j) {
		lines = append(lines, laidOut{f.role, fmt.Sprintf("%-9s%s", f.name, f.text)})
	}
	p.lay(x, y, w, h, lines)
}
