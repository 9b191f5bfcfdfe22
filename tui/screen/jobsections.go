package screen

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// section is a part of the job screen that can have the focus. Tab moves the focus, because the
// digits are the keys of the screens.
type section uint8

const (
	sectionLog section = iota
	sectionSummary
	sectionErrors
	sectionCount
)

// turnSection moves the focus to the next section with contents, or with -1 to the previous one.
func (s State) turnSection(by int) State {
	p, w, h := s.layout()
	p.s.lists.zoomed[screenDetail] = false
	j, _ := s.job()
	shown := p.shares(w, h-p.detailHead(h, j), j)
	for range sectionCount {
		s.jobView.section = section((int(s.jobView.section) + int(sectionCount) + by) % int(sectionCount))
		if shown[s.jobView.section] > 0 {
			break
		}
	}
	return s
}

// shares returns the heights of the sections in h lines below the head. A zoomed section gets
// all lines.
func (p *view) shares(w, h int, j snapshot.Job) (out [sectionCount]int) {
	if p.s.lists.zoomed[screenDetail] {
		out[p.s.jobView.section] = h
		return out
	}
	lines := len(j.Summary)
	if j.WaitReason != "" {
		lines = len(widget.Wrap(j.WaitReason, w-4)) + 1
	}
	if p.timesWidth(w) > 0 {
		lines = max(lines, len(p.times(j))+len(j.Steps)-1)
	}
	most := h * 2 / 5
	if p.timesWidth(w) > 0 && len(j.Steps) > 0 {
		most = h / 2
	}
	summary := min(max(lines, 1)+3, max(most, 3))
	errors := 0
	if troubles := p.issueLines(j, w-4); len(troubles) > 0 {
		room := h * 2 / 5
		if len(j.Log) == 0 {
			room = h - summary - 3
		}
		errors = min(len(troubles)+2, max(room, 3))
	}
	if len(j.Log) > 0 { // the time line does not displace the last lines of the log
		summary = min(summary, max(h-errors-3, h*2/5, 3))
	}
	log := h - summary - errors
	if len(j.Log) == 0 && !j.Finished.IsZero() && errors > 0 {
		log = 0 // unavailable; the errors remain
		errors = h - summary
	}
	if log < 3 {
		summary, log = h-errors, 0
	}
	out[sectionSummary], out[sectionErrors], out[sectionLog] = summary, errors, log
	return out
}

// sectionLines returns the number of lines of a section, and how many of them fit.
func (p *view) sectionLines(w, h int, j snapshot.Job) (lines, room int) {
	room = p.shares(w, h, j)[p.s.jobView.section] - 2
	switch p.s.jobView.section {
	case sectionSummary:
		return len(j.Summary), widget.TableRoom(len(j.Summary), room-p.timesHeight(room+2, j))
	case sectionErrors:
		return len(p.issueLines(j, w-4)), 1 // it has a cursor
	}
	return len(p.logBody(j.Log, w-4)), room
}

// detailHead returns the height of the head, 0 when a section is zoomed.
func (p *view) detailHead(h int, j snapshot.Job) int {
	head := leastHead(j)
	switch {
	case p.s.lists.zoomed[screenDetail]:
		return 0
	case h < 18:
		return min(head, 6, h)
	case j.Commit != nil && (len(j.URLs) == 0 || h >= 22):
		head++
	}
	return head
}

// leastHead returns the height of the head without the commit.
func leastHead(j snapshot.Job) int {
	if len(j.URLs) > 0 {
		return 7
	}
	return 6
}

// moveSection scrolls the focused section within its lines.
func (s State) moveSection(by int) State {
	p, w, h := s.layout()
	j, _ := s.job()
	lines, room := p.sectionLines(w, h-p.detailHead(h, j), j)
	most := max(lines-max(room, 1), 0)
	if s.jobView.section == sectionLog {
		s.jobView.scroll = min(max(s.jobView.scroll-by, 0), most)
		s.jobView.paused = s.jobView.scroll > 0
		return s
	}
	s.jobView.tops[s.jobView.section] = min(max(s.jobView.tops[s.jobView.section]+by, 0), most)
	return s
}

// widthRefusal returns why w is disabled. widen gives names in lists their full width and wraps
// long lines of text.
func widthRefusal(s State) string {
	if s.nav.screen == screenDetail || s.nav.screen == screenDiff {
		return ""
	}
	return listRefusal(s)
}

func (s State) widen() State {
	if s.nav.screen == screenDetail || s.nav.screen == screenDiff {
		s.wraps = !s.wraps
		return s
	}
	s.wide = !s.wide
	return s
}

// pauseLog stops the log at its present position, or lets it follow its end again.
func (s State) pauseLog() State {
	s.jobView.paused = !s.jobView.paused
	if !s.jobView.paused {
		s.jobView.scroll = 0
		return s.showToast("the log follows its end", false)
	}
	return s.showToast("the log stays where it is; f follows it again", false)
}

// keepLogPosition keeps the position of a paused log when lines are added behind it.
func (s State) keepLogPosition(before snapshot.Job) State {
	j, _ := s.job()
	if !s.jobView.paused || j.UID != before.UID || len(before.Log) == 0 {
		return s
	}
	added := j.Log
	for i := len(j.Log) - 1; i >= 0; i-- {
		if j.Log[i] == before.Log[len(before.Log)-1] {
			added = j.Log[i+1:]
			break
		}
	}
	p, w, _ := s.layout()
	s.jobView.scroll = min(s.jobView.scroll+len(p.logBody(added, w-4)), max(len(p.logBody(j.Log, w-4))-1, 0))
	return s
}

// logBody lays out the log lines that match the filter in w cells.
func (p *view) logBody(log []snapshot.Event, w int) (out []widget.TextLine) {
	filter := p.s.input.filters[screenDetail]
	for _, e := range log {
		if filter != "" && !widget.ContainsWords(filter, e.Text, e.Level) {
			continue
		}
		r := widget.RolePlain
		switch e.Level {
		case "error":
			r = widget.RoleBad
		case "warn":
			r = widget.RoleWarn
		}
		out = append(out, p.FoldLine(r, e.At.UTC().Format("15:04:05.000")+" "+levelWord(e.Level)+" "+e.Text, w, p.s.wraps)...)
	}
	return out
}

// foundInLog describes the matches of the filter.
func foundInLog(s State) string {
	p, _, _ := s.layout()
	p.s.wraps = false
	j, _ := s.job()
	return fmt.Sprintf("%d of %s of the log", len(p.logBody(j.Log, 80)), text.Plural(len(j.Log), "line"))
}

// noLog returns why the log is unavailable: only the agent of the job keeps it, for a limited
// time.
func noLog(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero():
		return "No log of this job is kept here."
	case j.Owner == "other":
		return "The agent that runs it has the log."
	case j.Owner == "" && !j.RetryAt.IsZero():
		return "No log of its last attempt is kept here."
	case j.Owner == "":
		return "It has not begun."
	}
	return "It has said nothing yet."
}

func (p *view) logBox(x, y, w, h int, j snapshot.Job) {
	body := p.logBody(j.Log, w-4)
	scroll := min(p.s.jobView.scroll, max(len(body)-max(h-2, 1), 0))
	note := ""
	switch {
	case p.s.jobView.paused:
		note = fmt.Sprintf("held, %d below, f follows", scroll)
	case j.Finished.IsZero() && len(j.Log) > 0:
		note = "following"
	}
	p.Box(p.G, x, y, w, h, "Log", note, text.Plural(len(j.Log), "line"), p.s.jobView.section == sectionLog)
	if len(body) == 0 && len(j.Log) > 0 {
		p.Empty(x, y, w, h, []string{fmt.Sprintf("No line has %q. Esc clears the filter.", p.s.input.filters[screenDetail])})
	} else if len(body) == 0 {
		p.Empty(x, y, w, h, []string{noLog(j)})
	}
	end := len(body) - scroll
	for i, l := range body[max(end-(h-2), 0):end] {
		p.Put(x+2, y+1+i, w-4, l.Role, l.Text)
	}
}

// timesWidth returns the width of the times beside the summary on a screen of w cells; 0 = no
// room.
func (p *view) timesWidth(w int) int {
	if w < wideWidth || p.s.lists.zoomed[screenDetail] {
		return 0
	}
	return 46
}

// timesHeight returns the height of the times below a zoomed summary in h lines; 0 = no room.
func (p *view) timesHeight(h int, j snapshot.Job) int {
	if !p.s.lists.zoomed[screenDetail] || h < 8 {
		return 0
	}
	return min(len(p.times(j))+len(j.Steps)+2, max(h/2, h-max(len(j.Summary), 1)-3))
}

// times returns the known times of a job.
func (p *view) times(j snapshot.Job) (out []widget.Fact) {
	now := p.s.Now
	at := func(name, txt string) { out = append(out, widget.NewFact(widget.RolePlain, name, txt)) }
	if !j.Created.IsZero() {
		at("queued", widget.ClockTime(j.Created, now)+", "+widget.Ago(now, j.Created))
	}
	if !j.Started.IsZero() {
		txt := widget.ClockTime(j.Started, now)
		if wait := j.Started.Sub(j.Created); !j.Created.IsZero() && wait >= 0 {
			txt += ", after " + text.Age(wait)
		}
		at("started", txt)
	}
	switch left := remaining(j, now); {
	case !j.Finished.IsZero():
		txt := widget.ClockTime(j.Finished, now)
		if !j.Started.IsZero() {
			txt += ", after " + widget.SecondsText(j.Finished.Sub(j.Started))
		}
		at("ended", txt)
	case !j.Undelivered.IsZero():
		at("done", widget.ClockTime(j.Undelivered, now)+", "+widget.Ago(now, j.Undelivered))
	case p.s.waitsForRetry(j):
		at("again", widget.ClockTime(j.RetryAt, now)+", in "+text.Age(j.RetryAt.Sub(now)))
	case left > 0 && p.shownState(j) == "working":
		at("ends", "about "+widget.ClockTime(now.Add(left), now)+" at this pace")
	}
	return out
}

func (p *view) timesBox(x, y, w, h int, j snapshot.Job) {
	if w < 3 || h < 3 {
		return
	}
	p.Box(p.G, x, y, w, h, "Times", "", "", false)
	var lines []widget.TextLine
	for _, f := range p.times(j) {
		lines = append(lines, widget.Styled(f.Role, fmt.Sprintf("%-9s%s", f.Name, f.Text)))
	}
	p.PutLines(x, y, w, h, lines)
	p.timeLine(x+2, y+1+len(lines), w-4, h-2-len(lines), j)
}

// timeLine draws the steps of a run below each other, each as a part of the whole time. Without
// room for all, the longest are shown and the others counted.
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
		txt := fmt.Sprintf("%s %d shorter ones", p.G.More, rest)
		if h == 1 {
			txt = fmt.Sprintf("%s %d steps", p.G.More, rest)
		}
		p.Put(x, y+h-1, w, widget.RoleDim, txt)
		h--
	}
	for _, i := range longest(long, h) {
		step, r := j.Steps[i], widget.RolePlain
		if i == last && p.shownState(j) == "working" {
			r = widget.RoleWork
		}
		p.Put(x, y, name, r, widget.Cut(step.Text, name, p.G.More))
		txt := widget.SecondsText(long[i])
		if ms := long[i].Milliseconds(); ms > 0 && ms < 100 {
			txt = fmt.Sprintf("%dms", ms)
		}
		p.Right(x+name, x+name+took, y, r, txt)
		p.Put(x+name+took+2, y, room, r, p.Stretch(room, step.At.Sub(begin), long[i], whole))
		y++
	}
}

// tookOf returns the duration of a step of a job, up to now for a running one.
func tookOf(j snapshot.Job, step int, now time.Time) time.Duration {
	s := j.Steps[step]
	switch {
	case s.Took > 0 || step < len(j.Steps)-1:
		return max(s.Took, 0)
	case !j.Finished.IsZero():
		now = j.Finished
	case !j.Undelivered.IsZero():
		now = j.Undelivered
	}
	return max(now.Sub(s.At), 0)
}

// longest returns the indexes of the n longest durations, in their order.
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
