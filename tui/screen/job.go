package screen

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// sectionID is a section of the job screen. Tab moves the focus, because the digits are the keys of
// the screens.
type sectionID uint8

const (
	sectionLog sectionID = iota
	sectionSummary
	sectionErrors
	sectionCount
)

type jobScreen struct {
	subject subject
	partial bool // only its row of the history is known
	record  fetched[string, snapshot.Job]
	focus   sectionID
	tops    [sectionCount]int // first lines of the sections; of the errors the line of the cursor
	paused  bool              // the log does not follow its end
	zoomed  bool              // the focused section has the whole screen

	// Of the last frame.
	shown [sectionCount]bool
	end   int       // first line of the log at its end
	issue *jobIssue // the error under the cursor; nil = none
}

func (d *jobScreen) focusIssues() {
	if d.focus == sectionLog && !d.zoomed && len(d.subject.object.job.Log) == 0 && !d.subject.object.job.Finished.IsZero() && len(jobIssues(*d.subject.object.job)) > 0 {
		d.focus = sectionErrors
	}
}

func (d *jobScreen) recordMissing() bool {
	_, _, err := d.record.of(d.subject.object.job.UID)
	return d.partial && err == ""
}

func (d *jobScreen) fetch(s *scene) Lookup {
	if !d.recordMissing() {
		return nil
	}
	uid := d.subject.object.job.UID
	return d.record.look(s, uid, func(ctx context.Context, src Source) (snapshot.Job, error) {
		return src.PastJob(ctx, uid)
	})
}

func (d *jobScreen) selection(*scene) []object {
	o := d.subject.object
	o.gone = !d.subject.live
	return []object{o}
}

func (d *jobScreen) hints(*scene) string {
	hints := screens[screenDetail].hints
	if d.focus == sectionErrors && d.issue != nil && d.issue.file != "" && d.changesRefusal() == "" {
		hints = strings.Replace(hints, "|tab", "|enter its file|tab", 1)
	}
	return hints
}

// open shows what the job has changed: the file of the error under the cursor, or all files.
func (d *jobScreen) open(*scene) (out Outcome) {
	switch {
	case d.focus == sectionErrors && d.issue == nil:
		out.toast = "this job has no errors"
	case d.focus == sectionErrors && d.issue.file != "":
		out.file = d.issue.file
	case d.focus == sectionErrors:
		out.toast = "this " + d.issue.state + " names no file; d shows what the job has changed"
	default:
		out.toast = d.changesRefusal()
		out.changes = out.toast == ""
	}
	return out
}

func (d *jobScreen) found(s *scene) string {
	return fmt.Sprintf("%d of %s of the log", len(d.matches(s)), text.Plural(len(d.subject.object.job.Log), "line"))
}

func (d *jobScreen) matches(s *scene) (out []snapshot.Event) {
	filter := s.filters[screenDetail]
	for _, e := range d.subject.object.job.Log {
		if filter == "" || widget.ContainsWords(filter, e.Text, e.Level) {
			out = append(out, e)
		}
	}
	return out
}

func (d *jobScreen) zoom() { d.zoomed = !d.zoomed }

// turn moves the focus to the next section on the screen, or with -1 to the previous one.
func (d *jobScreen) turn(by int) {
	if d.zoomed {
		d.zoomed, d.shown = false, [sectionCount]bool{true, true, true}
	}
	for range sectionCount {
		d.focus = sectionID((int(d.focus) + int(sectionCount) + by) % int(sectionCount))
		if d.shown[d.focus] {
			break
		}
	}
}

// scroll scrolls the focused section. A log that is scrolled up stays where it is.
func (d *jobScreen) scroll(by int) {
	d.tops[d.focus] += by
	if d.focus == sectionLog {
		d.paused = d.tops[sectionLog] < d.end
	}
}

// pauseLog stops the log at its present position, or lets it follow its end again.
func (d *jobScreen) pauseLog() (toast string) {
	if d.paused = !d.paused; d.paused {
		return "the log stays where it is; f follows it again"
	}
	return "the log follows its end"
}

// draw draws the head, the summary with the times, the errors and the log. A zoomed section gets
// all lines.
func (d *jobScreen) draw(p *view, at widget.Rect) {
	j, times := *d.subject.object.job, 0
	if p.c.W >= wideWidth {
		times = timesWidth
	}
	summary, errors, log := d.summary(p, at.W-4-times), d.errors(p, at.W-4), d.log(p, at.W-4)
	d.shown = [sectionCount]bool{}
	focused := map[sectionID]section{sectionLog: log, sectionSummary: summary, sectionErrors: errors}[d.focus]
	if d.zoomed {
		focused.Title = p.cut(j.Name, at.W/2) + "  " + focused.Title
		d.drawSection(p, at, d.focus, focused)
		return
	}
	head := d.head(p, at.W-4, at.H < 22)
	if at.H < 22 {
		head = head[:min(len(head), 4+at.H/18)]
	}
	box, at := at.Top(min(len(head)+2, at.H))
	what := strings.TrimSpace(j.Action + " " + j.Detail)
	p.c.Panel(box, widget.Box{Title: p.cut(j.Name, max(at.W/2-len(what)-2, 8)) + "  " + p.cut(what, at.W/3), Note: p.cut(j.Repository,
		at.W/3)}, head)
	switch {
	case at.H < 3:
		return
	case at.H < 9: // there is room for one section; Tab changes it
		d.drawSection(p, at, d.focus, focused)
		d.shown = [sectionCount]bool{true, true, true}
		return
	}
	first, second := len(summary.lines), 0
	room := at.H * 2 / 5
	if times > 0 {
		first = max(first, len(p.times(j))+len(j.Steps))
	}
	first = min(max(first, 2)+2, max(room, 3))
	if len(jobIssues(j)) > 0 {
		second = min(len(errors.lines)+2, max(room, 3))
		if len(j.Log) == 0 { // the errors need the lines of the log
			if second = min(len(errors.lines)+2, max(at.H-first-3, 3)); !j.Finished.IsZero() {
				second = at.H - first
			}
		}
	}
	if third := at.H - first - second; third < 3 {
		first += third
	}
	box, at = at.Top(first)
	if times > 0 {
		var side widget.Rect
		box, side = box.Left(box.W - times)
		p.c.Panel(side, widget.Box{Title: "Times"}, p.timeLines(j, side.W-4, side.H-2))
	}
	d.drawSection(p, box, sectionSummary, summary)
	box, at = at.Top(second)
	d.drawSection(p, box, sectionErrors, errors)
	d.drawSection(p, at, sectionLog, log)
}

type section struct {
	widget.Box
	lines []widget.TextLine
	of    []jobIssue // the issue of each line
}

func (d *jobScreen) drawSection(p *view, at widget.Rect, id sectionID, sec section) {
	if d.shown[id] = at.H >= 2; !d.shown[id] {
		return
	}
	n, room := len(sec.lines), at.H-2
	top := &d.tops[id]
	cursor := max(min(*top, n-1), 0)
	if sec.Focused = id == d.focus; sec.Focused && !d.zoomed {
		sec.Title = p.c.G.Cursor + " " + sec.Title // the focus is visible without colours too
	}
	if id == sectionLog {
		if d.end = max(n-room, 0); !d.paused {
			*top = d.end
		}
	}
	*top = max(min(*top, n-room), 0)
	from := *top
	if id == sectionErrors { // it has a cursor
		*top = cursor
		if from, d.issue = widget.Window(cursor, n, room), nil; len(sec.of) > 0 {
			d.issue = &sec.of[cursor]
		}
	}
	if rest := n - from - room; rest > 0 && sec.Note == "" {
		sec.Note = fmt.Sprintf("%d more below", rest)
	}
	p.c.Box(at, sec.Box)
	for i, l := range sec.lines[from:min(from+room, n)] {
		p.c.PutLine(at.X+2, at.Y+1+i, at.W-4, l)
	}
	if id == sectionErrors && sec.Focused && room > 0 {
		p.c.Put(at.X+1, at.Y+1+*top-from, 1, widget.RoleKey, p.c.G.Cursor)
	}
}

// head describes the job; short puts its links into one line.
func (d *jobScreen) head(p *view, w int, short bool) []widget.TextLine {
	j, state := *d.subject.object.job, p.shownState(*d.subject.object.job)
	if !d.subject.live && j.Finished.IsZero() {
		state = "unknown"
	}
	out := []widget.TextLine{widget.Styled(widget.StateRole(state), p.stateLine(j, state, w, p.pace(j, state, w)))}
	plain := func(txt string) { out = append(out, widget.Styled(widget.RolePlain, txt)) }
	facts := p.jobFacts(j, d.subject.live)
	message := widget.Wrap(facts[0][1], w-7)
	for i := range message[:min(len(message), 2)] {
		if i == 1 {
			message[i] = strings.Join(message[i:], " ")
		}
		plain(fmt.Sprintf("%-7s%s", widget.When(i == 0, "msg"), message[i]))
	}
	plain(fmt.Sprintf("%-7s%s", facts[1][0], facts[1][1]))
	for i, l := range j.URLs {
		line := widget.TextLine{Text: "url    " + l.Name + " " + l.URL, Links: []widget.Link{{Text: l.URL, URL: l.URL}}}
		if i == 0 || !short {
			out = append(out, line)
			continue
		}
		first := &out[len(out)-1]
		first.Text += "    " + l.Name
		first.Links = append(first.Links, widget.Link{Text: l.Name, URL: l.URL})
	}
	if c := j.Commit; c != nil { // author and time follow the message, where a narrow screen cuts them
		plain(fmt.Sprintf("commit %q%s%s", c.Subject, widget.When(c.Author != "", " by "+c.Author),
			widget.When(!c.At.IsZero(), ", "+widget.Ago(p.Now, c.At))))
	}
	plain(fmt.Sprintf("%-7s%s", facts[2][0], facts[2][1]))
	return out
}

// preview describes a job on h lines of w cells: state, progress, counts, errors, and the end of
// its log.
func (p *view) preview(j snapshot.Job, w, h int) []widget.TextLine {
	state := p.shownState(j)
	out := []widget.TextLine{widget.Styled(widget.StateRole(state), p.stateLine(j, state, w, "")),
		widget.Styled(widget.RolePlain, strings.TrimSpace(p.pace(j, state, w)))}
	facts := p.jobFacts(j, true)
	for _, f := range facts[:2] {
		out = widget.Wrapped(out, widget.RolePlain, f[0]+" "+f[1], w)
	}
	if len(j.Summary) > 0 {
		out = append(append(out, widget.TextLine{}), p.summaryLines(j, w)...)
	}
	if issues, _ := p.issueLines(j, w); len(issues) > 0 {
		out = append(append(out, widget.TextLine{}), issues...)
	}
	last := widget.Wrapped([]widget.TextLine{{}}, widget.RoleDim, facts[2][0]+" "+facts[2][1], w)
	if log := p.logEnd(j, h-len(out)-len(last)-1); len(log) > 0 {
		out = append(append(out, widget.TextLine{}), log...)
	}
	return append(out, last...)
}

// logEnd returns the last n lines of the log of a job, without those for debugging.
func (p *view) logEnd(j snapshot.Job, n int) (out []widget.TextLine) {
	for _, e := range j.Log {
		if level, _ := levelWord(e.Level); level != "DBG" {
			out = append(out, widget.Styled(widget.RoleDim, e.At.UTC().Format("15:04:05")+" "+level+" "+e.Text))
		}
	}
	return out[max(len(out)-max(n, 0), 0):]
}

// logged returns what the keys l and d act on: the selected job or source, or the newest known job
// of the selected repository.
func logged(s *State) (object, bool) {
	if j := s.repo.page.rows.here(); s.screen == screenRepo && j != nil {
		return jobObject(j), true
	}
	o, ok := s.one()
	switch {
	case ok && o.job != nil:
		return o, o.UID != ""
	case o.source != nil:
		return o, true
	}
	for job := range s.objects(onJob) {
		if ok && repoOf(&s.facts, job.job).same(o) {
			return job, true
		}
	}
	return o, false
}

// openLog shows the log of a job on the whole screen, or what else is known of one whose log is not
// kept. The last job of a repository may have to be looked up.
func openLog(s *State) {
	o, ok := logged(s)
	if s.onSources() {
		if s.screen != screenSource {
			s.goObject(o)
		}
		s.source.log, s.source.page.turned = !s.source.log, false
		s.source.page.top = far
		return
	}
	if s.screen != screenDetail {
		s.goObject(o)
	}
	if s.repo.opensLog = !ok; ok && (len(s.detail.subject.object.job.Log) > 0 || s.detail.subject.object.job.Finished.IsZero()) {
		s.detail.focus, s.detail.zoomed = sectionLog, true
	}
}

const (
	noJobHere    = "no job is under the cursor; h lists those that have ended"
	noSourceHere = "no source is under the cursor"
)

func (s *scene) onSources() bool { return s.screen == screenSources || s.screen == screenSource }

func logRefusal(s *State) string {
	if s.onSources() {
		return widget.When(len(s.selected) != 1, noSourceHere)
	}
	o, ok := logged(s)
	return widget.When(!ok && (o.repo == nil || s.screen == screenRepo), noJobHere)
}

func changesRefusal(s *State) string {
	if s.onSources() {
		if o, ok := s.one(); ok {
			return sourceChangesRefusal(&s.facts, *o.source)
		}
		return noSourceHere
	}
	o, ok := logged(s)
	if !ok || s.screen == screenDetail {
		return cmp.Or(widget.When(!ok, noJobHere), s.detail.changesRefusal())
	}
	o, live := s.current(o)
	return (&jobScreen{subject: subject{o, live}, partial: !live}).changesRefusal()
}

// stateLine returns the state of a job and a text in w cells, with a progress bar if the progress
// is known.
func (p *view) stateLine(j snapshot.Job, state string, w int, tail string) string {
	j.Progress = j.Percent()
	head, percent := p.c.StateGlyph(state)+" "+state, fmt.Sprintf(" %3.0f%%", j.Progress)
	room := w - displaywidth.String(head) - len(tail) - len(percent) - 3
	switch {
	case !j.Undelivered.IsZero():
		return head + ", waiting for the API " + text.Age(p.Now.Sub(j.Undelivered))
	case !j.Finished.IsZero() || j.State == "pending" || j.Progress < 0:
		return head + tail
	case room < 5:
		return head + percent + tail
	}
	return head + "   " + p.c.Bar(min(room, 60), j.Progress) + percent + tail
}

func (p *view) pace(j snapshot.Job, state string, w int) string {
	left := remaining(j, p.Now)
	if state != "working" {
		left = 0
	}
	rate := float64(j.Done) / p.Now.Sub(j.Started).Seconds()
	return widget.When(j.Total > 0, "   "+doneWords(j)) + "   " + p.elapsed(j) + widget.When(left > 0, "   ~"+text.Age(left)+" left") +
		widget.When(left > 0 && w >= 70, fmt.Sprintf("   %.1f/s", rate))
}

func remaining(j snapshot.Job, now time.Time) time.Duration {
	if j.Done <= 0 || j.Total <= j.Done || j.Started.IsZero() || !j.Finished.IsZero() {
		return 0
	}
	return time.Duration(float64(now.Sub(j.Started)) / float64(j.Done) * float64(j.Total-j.Done))
}

func (p *view) jobFacts(j snapshot.Job, live bool) [][2]string {
	attempt := fmt.Sprintf("attempt %d", j.Attempt) + widget.When(j.MaxAttempt > 0, fmt.Sprintf(" of %d", j.MaxAttempt))
	return [][2]string{
		{"msg", widget.Join(": ", text.OrDash(cmp.Or(j.Message, j.WaitReason)), widget.When(j.Transfer.Phase != "", j.Transfer.Text(p.Now)))},
		{"ref", widget.Join("; ", refText(j, p.c.G.Arrow), widget.When(!j.Started.IsZero(), "started "+j.Started.UTC().Format("15:04:05Z")))},
		{"lease", widget.Join("; ", p.leaseText(j, live), widget.When(j.Attempt > 0, attempt), widget.When(j.Priority != "",
			"priority "+j.Priority), "uid "+text.OrDash(j.UID))},
	}
}

func (p *view) leaseText(j snapshot.Job, live bool) string {
	in := func(t time.Time) string { return text.Age(t.Sub(p.Now)) }
	switch {
	case !j.Finished.IsZero():
		return "ended " + j.Finished.UTC().Format("15:04:05Z")
	case !live:
		return "no longer in the queue"
	case !j.Undelivered.IsZero():
		return "done; result not delivered yet"
	case waitsForRetry(p.facts, j):
		return "retry in " + in(j.RetryAt) + " (r: retry now)"
	case j.Owner == "this" && !p.offline():
		return "held by this agent" + widget.When(!j.RenewAt.IsZero(), ", renews in "+in(j.RenewAt)) +
			widget.When(!j.LeaseUntil.IsZero(), ", expires in "+in(j.LeaseUntil))
	case j.Owner == "other":
		return "held by another agent"
	case p.Gone != "" && j.LeaseUntil.After(p.Now):
		return "expires in " + in(j.LeaseUntil) + " unless it is renewed: " + p.unavailableReason()
	case p.offline():
		return "ended: " + p.unavailableReason()
	case j.WaitReason != "":
		return "not claimed by this agent"
	}
	return "not claimed yet"
}

func refText(j snapshot.Job, arrow string) string {
	if j.RefTo == "" {
		return text.OrDash(j.Branch)
	}
	return widget.Join(" @ ", j.Branch, // a record has only the commits
		widget.When(j.RefFrom != "" && j.RefFrom != j.RefTo, text.ShortRef(j.RefFrom)+" "+arrow+" ")+text.ShortRef(j.RefTo))
}
