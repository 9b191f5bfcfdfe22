package tui

import (
	"fmt"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// leastJobs is how many lines the jobs of a repository keep on a wide screen, with
// their heads and edges.
const leastJobs = 9

// repoWide is one repository on a wide screen: how it does at the left; its day, what
// it has made and its conditions at the right; its jobs below.
func (p *view) repoWide(x, y, w, h int) {
	r, live := p.s.repo()
	left := w * 9 / 20
	right := w - left
	facts := p.repoFacts(r, live, left-4, false)
	contents := p.contentLines(r, right-4)
	conditions := p.conditionLines(r, right-4)
	beside := dayHeight + len(conditions) + 2
	if len(contents) > 0 {
		beside += len(contents) + 2
	}
	head := min(max(len(facts)+2, beside), h-leastJobs)
	p.box(p.g, x, y, left, head, cut(r.Name+"  "+r.Type, left/2, p.g.more), cut(r.Title, left/3, p.g.more), "", true)
	p.putLines(x, y, left, head, facts)
	p.link(x+2, y+1, left-4, head-2, r.URL)
	p.dayBox(x+left, y, right)
	at, room := y+dayHeight, head-dayHeight
	if n := min(len(contents)+2, room-3); len(contents) > 0 && n >= 3 {
		p.box(p.g, x+left, at, right, n, "Made here", "", "", false)
		p.putLines(x+left, at, right, n, contents)
		at, room = at+n, room-n
	}
	if room >= 3 {
		p.box(p.g, x+left, at, right, room, "Conditions", "", "", false)
		p.putLines(x+left, at, right, room, conditions)
	}
	p.jobsOfRepo(x, y+head, w, h-head)
}

// contentLines are the kinds of objects that a repository has made, with their
// numbers.
func (p *view) contentLines(r snapshot.Repo, w int) (out []textLine) {
	for _, c := range r.Contents {
		n := text.Thousands(int(c.Count))
		name := cut(c.Resource, max(w-displaywidth.String(n)-2, 4), p.g.more)
		out = append(out, textLine{rolePlain, fmt.Sprintf("%s%*s", name, max(min(w, 40)-displaywidth.String(name), len(n)+2), n)})
	}
	return out
}
