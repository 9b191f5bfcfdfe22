package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// sectionID is a section of the job screen that can have the focus. Tab moves the focus, because
// the digits are the keys of the screens.
type sectionID uint8

const (
	sectionLog sectionID = iota
	sectionSummary
	sectionErrors
	sectionCount
)

// jobScreen is the screen of one job.
type jobScreen struct {
	subject
	partial bool // only its row of the history is known
	record  fetched[string, snapshot.Job]
	focus   sectionID
	tops    [sectionCount]int // first lines of the sections; of the log the lines that it is scrolled up
	paused  bool              // the log does not follow its end
	zoomed  bool              // the focused section has the whole screen
}

// set shows a job. Of a job that has left the snapshot only its history row is known.
func (d *jobScreen) set(s *State, o object, live bool) {
	*d = jobScreen{subject: subject{o, live}, partial: !live}
	s.linkAt, s.filterLine.filters[screenDetail] = 0, ""
	d.focusIssues()
}

// focusIssues focuses the errors of a job without a log.
func (d *jobScreen) focusIssues() {
	if d.focus == sectionLog && len(d.job.Log) == 0 && !d.job.Finished.IsZero() && len(jobIssues(*d.job)) > 0 {
		d.focus = sectionErrors
	}
}

// followJob follows the job in the snapshot. A paused log keeps its position when lines are
// added behind it.
func (d *jobScreen) followJob(s *State) {
	before := d.job.Log
	d.follow(s)
	d.partial = d.partial && !d.live
	if !d.paused || len(before) == 0 {
		return
	}
	added := d.job.Log
	if i := slices.Index(added, before[len(before)-1]); i >= 0 {
		added = added[i+1:]
	}
	p, at := s.layout()
	d.tops[sectionLog] = min(d.tops[sectionLog]+len(d.log(p, added, at.W-4)), max(len(d.log(p, d.job.Log, at.W-4))-1, 0))
}

// recordMissing reports whether the full record must be fetched.
func (d *jobScreen) recordMissing() bool {
	_, _, err := d.record.of(d.job.UID)
	return d.partial && err == ""
}

func (d *jobScreen) fetch(s *State) Lookup {
	if !d.recordMissing() {
		return nil
	}
	uid := d.job.UID
	return d.record.look(s, uid, func(s *State) *fetched[string, snapshot.Job] {
		if s.detail.job.UID != uid {
			return nil
		}
		return &s.detail.record
	}, func(ctx context.Context, src Source) (snapshot.Job, error) { return src.PastJob(ctx, uid) })
}

// takeRecord applies the record of a job when it has arrived.
func (d *jobScreen) takeRecord() {
	if j, known, _ := d.record.of(d.job.UID); d.partial && known {
		j.Progress = percent(j.Progress)
		d.object, d.partial = jobObject(&j), false
		d.focusIssues()
	}
}

func (d *jobScreen) selection(*State) []object {
	o := d.object
	o.gone = !d.live
	return []object{o}
}

func (d *jobScreen) hints(p *view) string {
	hints := screens[screenDetail].hints
	if f, _ := d.issueAtCursor(p.s); d.focus == sectionErrors && f.file != "" && p.s.changesRefusal() == "" {
		hints = strings.Replace(hints, "|tab", "|enter its file|tab", 1)
	}
	return hints
}

// open shows what the job has changed: the file of the error under the cursor, or all files.
func (d *jobScreen) open(s *State) {
	f, ok := d.issueAtCursor(s)
	why := s.changesRefusal()
	switch {
	case d.focus == sectionErrors && !ok:
		s.showToast("this job has no errors", false)
	case d.focus == sectionErrors && f.file != "":
		s.openFile(f.file)
	case d.focus == sectionErrors && why != "":
		s.showToast("this "+f.state+" names no file", false)
	case d.focus == sectionErrors:
		s.showToast("this "+f.state+" names no file; d shows what the job has changed", false)
	case why != "":
		s.showToast(why, false)
	default:
		s.openChanges()
	}
}

// found describes the matches of the filter.
func (d *jobScreen) found(s *State) string {
	p, _ := s.layout()
	wraps := s.wraps
	s.wraps = false
	defer func() { s.wraps = wraps }()
	return fmt.Sprintf("%d of %s of the log", len(d.log(p, d.job.Log, 80)), text.Plural(len(d.job.Log), "line"))
}

// turn moves the focus to the next section with contents, or with -1 to the previous one.
func (d *jobScreen) turn(s *State, by int) {
	d.zoomed = false
	p, at := s.layout()
	_, sections := d.sections(p, at)
	for range sectionCount {
		d.focus = sectionID((int(d.focus) + int(sectionCount) + by) % int(sectionCount))
		if sections[d.focus].at.H > 0 {
			break
		}
	}
}

// scroll scrolls the focused section within its lines.
func (d *jobScreen) scroll(s *State, by int) {
	p, at := s.layout()
	_, sections := d.sections(p, at)
	room := sections[d.focus].at.H - 2
	if d.focus == sectionErrors {
		room = 1 // it has a cursor
	}
	if d.focus == sectionLog {
		by = -by
	}
	top := &d.tops[d.focus]
	*top = min(max(*top+by, 0), max(len(sections[d.focus].lines)-max(room, 1), 0))
	if d.focus == sectionLog {
		d.paused = *top > 0
	}
}

// pauseLog stops the log at its present position, or lets it follow its end again.
func (s *State) pauseLog() {
	d := &s.detail
	if d.paused = !d.paused; d.paused {
		s.showToast("the log stays where it is; f follows it again", false)
		return
	}
	d.tops[sectionLog] = 0
	s.showToast("the log follows its end", false)
}

// section is a section of the screen, laid out.
type section struct {
	widget.Box
	at    widget.Rect
	lines []widget.TextLine
}

// draw draws the head, the summary with the times, the errors and the log.
func (d *jobScreen) draw(p *view, at widget.Rect) {
	head, sections := d.sections(p, at)
	if head.H > 0 {
		d.drawHead(p, head)
	}
	for _, id := range []sectionID{sectionSummary, sectionErrors, sectionLog} {
		sec := sections[id]
		if sec.at.H == 0 {
			continue
		}
		if id == sectionSummary && p.timesWidth() > 0 && !d.zoomed {
			var side widget.Rect
			sec.at, side = sec.at.Left(sec.at.W - p.timesWidth())
			p.Canvas.Box(side, widget.Box{Title: "Times"})
			p.Lines(side, p.timeLines(*d.job, side.W-4, side.H-2))
		}
		sec.Focused = id == d.focus
		d.drawSection(p, sec, id)
	}
}

func (d *jobScreen) drawSection(p *view, sec section, id sectionID) {
	n, room := len(sec.lines), max(sec.at.H-2, 0)
	top := widget.Scrolled(d.tops[id], n, sec.at.H)
	cursor := max(min(d.tops[id], n-1), 0)
	switch id {
	case sectionLog:
		top = widget.Scrolled(max(n-room-d.tops[id], 0), n, sec.at.H)
	case sectionErrors:
		top = widget.Window(cursor, n, room)
	case sectionSummary:
		if rest := n - top - room; rest > 0 {
			sec.Foot = fmt.Sprintf("%d more below", rest)
		}
	}
	p.Canvas.Box(sec.at, sec.Box)
	for i, l := range sec.lines[top:min(top+room, n)] {
		if id == sectionErrors && !sec.Focused && i == room-1 && n-top-i > 1 && i > 0 {
			l = widget.Styled(widget.RoleDim, fmt.Sprintf("%s %d more lines", p.G.More, n-top-i))
		}
		p.PutCut(sec.at.X+2, sec.at.Y+1+i, sec.at.W-4, l.Role, l.Text)
	}
	if id == sectionErrors && sec.Focused {
		p.Put(sec.at.X+1, sec.at.Y+1+cursor-top, 1, widget.RoleKey, p.G.Cursor)
	}
}

// headHeight returns the height of the head in h lines: with the commit if there is room.
func (d *jobScreen) headHeight(h int) int {
	head := d.leastHead()
	switch {
	case d.zoomed:
		return 0
	case h < 18:
		return min(head, 6, h)
	case d.job.Commit != nil && (len(d.job.URLs) == 0 || h >= 22):
		head++
	}
	return head
}

// leastHead returns the height of the head without the commit.
func (d *jobScreen) leastHead() int {
	if len(d.job.URLs) > 0 {
		return 7
	}
	return 6
}

// sections lays out the screen. A zoomed section gets all lines.
func (d *jobScreen) sections(p *view, at widget.Rect) (head widget.Rect, out [sectionCount]section) {
	j := *d.job
	head, at = at.Top(d.headHeight(at.H))
	out[sectionSummary] = d.summary(p, at.W)
	out[sectionErrors] = d.errors(p, at.W)
	out[sectionLog] = d.logSection(p, at.W)
	if d.zoomed {
		out[d.focus].at = at
		return head, out
	}
	if at.H < 3 {
		return head, out
	}
	h, most, lines := at.H, at.H*2/5, len(out[sectionSummary].lines)
	if p.timesWidth() > 0 {
		lines = max(lines, len(p.times(j))+len(j.Steps))
		if len(j.Steps) > 0 {
			most = h / 2
		}
	}
	summary, errors := min(max(lines, 2)+2, max(most, 3)), 0
	if n := len(out[sectionErrors].lines); len(jobIssues(j)) > 0 {
		room := h * 2 / 5
		if len(j.Log) == 0 {
			room = h - summary - 3
		}
		errors = min(n+2, max(room, 3))
	}
	if len(j.Log) > 0 { // the time line does not displace the last lines of the log
		summary = min(summary, max(h-errors-3, h*2/5, 3))
	}
	log := h - summary - errors
	if len(j.Log) == 0 && !j.Finished.IsZero() && errors > 0 {
		log, errors = 0, h-summary // there is no log; the errors remain
	}
	if log < 3 {
		summary, log = h-errors, 0
	}
	out[sectionSummary].at, at = at.Top(summary)
	out[sectionErrors].at, at = at.Top(errors)
	out[sectionLog].at, _ = at.Top(log)
	return head, out
}

func (d *jobScreen) drawHead(p *view, at widget.Rect) {
	j := *d.job
	what := strings.TrimSpace(j.Action + " " + j.Detail)
	state := p.shownState(j)
	if !d.live && j.Finished.IsZero() {
		state = "unknown"
	}
	lines := []widget.TextLine{widget.Styled(widget.StateRole(state), p.stateLine(j, state, at.W-4, p.pace(j, state, at.W)))}
	for _, f := range p.jobFacts(j, d.live, at.H > d.leastHead()) {
		lines = append(lines, widget.Styled(widget.RolePlain, fmt.Sprintf("%-7s%s", f[0], f[1])))
	}
	url := ""
	if len(j.URLs) > 0 {
		url = j.URLs[0].URL
		lines = append(lines, widget.Styled(widget.RolePlain, "url    "+j.URLs[0].Name+" "+url))
	}
	p.Panel(at, widget.Box{Title: p.cut(j.Name, max(at.W/2-len(what)-2, 8)) + "  " + p.cut(what, at.W/3),
		Note: p.cut(j.Repository, at.W/3)}, lines[:min(len(lines), max(at.H-2, 0))], url)
}

// preview describes a job on h lines of w cells: state, progress, errors, and in the remaining
// lines the end of its log.
func (p *view) preview(j snapshot.Job, w, h int) []widget.TextLine {
	state := p.shownState(j)
	out := []widget.TextLine{widget.Styled(widget.StateRole(state), p.stateLine(j, state, w, ""))}
	out = append(out, widget.Styled(widget.RolePlain, strings.TrimSpace(p.pace(j, state, w))))
	for _, f := range p.jobFacts(j, true, false) {
		out = widget.Wrapped(out, widget.RolePlain, f[0]+" "+f[1], w)
	}
	if len(j.Summary) > 0 {
		out = append(append(out, widget.TextLine{}), p.summaryLines(j, w)...)
	}
	if issues, _ := p.issueLines(j, w); len(issues) > 0 {
		out = append(append(out, widget.TextLine{}), issues...)
	}
	if room := h - len(out) - 1; room > 0 && len(j.Log) > 0 {
		out = append(out, widget.TextLine{})
		for _, e := range j.Log[max(len(j.Log)-room, 0):] {
			level, _ := levelWord(e.Level)
			out = append(out, widget.Styled(widget.RoleDim, e.At.UTC().Format("15:04:05")+" "+level+" "+e.Text))
		}
	}
	return out
}

// stateLine returns the state of a job and a text in w cells, with a progress bar between them
// if the progress is known.
func (p *view) stateLine(j snapshot.Job, state string, w int, tail string) string {
	head, percent := p.StateGlyph(state)+" "+state, fmt.Sprintf(" %3.0f%%", j.Progress)
	room := w - displaywidth.String(head) - len(tail) - len(percent) - 3
	switch {
	case !j.Undelivered.IsZero():
		return head + ", waiting for the API " + text.Age(p.s.Now.Sub(j.Undelivered))
	case !j.Finished.IsZero() || j.State == "pending" || j.Progress < 0:
		return head + tail
	case room < 5:
		return head + percent + tail
	}
	return head + "   " + p.Bar(min(room, 60), j.Progress) + percent + tail
}

// pace returns the files and the time of a job, and how long the rest takes.
func (p *view) pace(j snapshot.Job, state string, w int) string {
	left := remaining(j, p.s.Now)
	if state != "working" {
		left = 0
	}
	rate := float64(j.Done) / p.s.Now.Sub(j.Started).Seconds()
	return widget.When(j.Total > 0, "   "+doneWords(j)) + "   " + p.elapsed(j) + widget.When(left > 0, "   ~"+text.Age(left)+" left") +
		widget.When(left > 0 && w >= 70, fmt.Sprintf("   %.1f/s", rate))
}

// remaining extrapolates the pace to the rest of the work.
func remaining(j snapshot.Job, now time.Time) time.Duration {
	if j.Done <= 0 || j.Total <= j.Done || j.Started.IsZero() || !j.Finished.IsZero() {
		return 0
	}
	return time.Duration(float64(now.Sub(j.Started)) / float64(j.Done) * float64(j.Total-j.Done))
}

// jobFacts describes a job by name and text.
func (p *view) jobFacts(j snapshot.Job, live, commit bool) [][2]string {
	out := [][2]string{{"lease", widget.Join("; ", p.leaseText(j, live), p.attemptText(j), widget.When(j.Priority != "", "priority "+j.Priority))},
		{"ref", widget.Join("; ", refText(j, p.G.Arrow), widget.When(!j.Started.IsZero(), "started "+j.Started.UTC().Format("15:04:05Z")),
			"uid "+text.OrDash(j.UID))}}
	if c := j.Commit; c != nil && commit { // author and time follow the message, where a narrow screen cuts them
		out = append(out, [2]string{"commit", widget.Quoted(c.Subject) + widget.When(c.Author != "", " by "+c.Author) +
			widget.When(!c.At.IsZero(), ", "+widget.Ago(p.s.Now, c.At))})
	}
	return append(out, [2]string{"msg", text.OrDash(j.Message)})
}

// leaseText describes the holder and the expiry of a lease.
func (p *view) leaseText(j snapshot.Job, live bool) string {
	in := func(t time.Time) string { return text.Age(t.Sub(p.s.Now)) }
	switch {
	case !j.Finished.IsZero():
		return "ended " + j.Finished.UTC().Format("15:04:05Z")
	case !live:
		return "the job is gone from the queue"
	case !j.Undelivered.IsZero():
		return "done; the result is kept and sent when the API is back"
	case p.s.waitsForRetry(j):
		return "rests for " + in(j.RetryAt) + ", r does not wait"
	case j.Owner == "this" && !p.s.offline():
		return "held by this agent" + widget.When(!j.RenewAt.IsZero(), ", renews in "+in(j.RenewAt)) +
			widget.When(!j.LeaseUntil.IsZero(), ", expires in "+in(j.LeaseUntil))
	case j.Owner == "other":
		return "held by another agent"
	case p.s.Gone != "" && j.LeaseUntil.After(p.s.Now):
		return "expires in " + in(j.LeaseUntil) + " unless it is renewed: " + p.s.unavailableReason()
	case p.s.offline():
		return "ended: " + p.s.unavailableReason()
	case j.WaitReason != "":
		return "left alone"
	}
	return "not claimed yet"
}

// attemptText returns the attempt of a job; "" = unknown.
func (p *view) attemptText(j snapshot.Job) string {
	of := widget.When(j.MaxAttempt > 0, fmt.Sprintf(" of %d", j.MaxAttempt))
	switch {
	case j.Attempt > 1 && of != "" && p.s.waitsForRetry(j):
		return fmt.Sprintf("after attempt %d%s", j.Attempt-1, of)
	case j.Attempt > 0:
		return fmt.Sprintf("attempt %d%s", j.Attempt, of)
	}
	return ""
}

// refText returns the branch of a job and the commits before and after it.
func refText(j snapshot.Job, arrow string) string {
	if j.RefTo == "" {
		return text.OrDash(j.Branch)
	}
	return widget.Join(" @ ", j.Branch, // a record has only the commits
		widget.When(j.RefFrom != "" && j.RefFrom != j.RefTo, text.ShortRef(j.RefFrom)+" "+arrow+" ")+text.ShortRef(j.RefTo))
}
