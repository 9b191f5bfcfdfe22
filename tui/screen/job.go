package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

var detailScreen = screen{
	selection: func(s State) selection {
		j, live := s.job()
		return selection{job: &j, gone: !live}
	},
	under: screenJobs, panes: int(sectionCount), draw: (*view).jobDetail, fetch: State.fetchJob,
	hints: func(p *view) [][2]string {
		hints := [][2]string{{"esc", "back"}, {p.G.Up + p.G.Down, "scroll"}, {"tab", "section"}, {"d", "changes"}, {"z", "zoom"},
			{"x", "cancel"}, {"p", "pull"}, {"f", "follow"}, {"/", "find"}, {"u", "url"}}
		if f, _ := p.s.issueAtCursor(); p.s.jobView.section == sectionErrors && f.file != "" && changesRefusal(p.s) == "" {
			hints = slices.Insert(hints, 2, [2]string{"enter", "its file"})
		}
		return hints
	},
	open: func(s State) State {
		if s.jobView.section == sectionErrors {
			return s.openJobIssue()
		}
		if why := changesRefusal(s); why != "" {
			return s.showToast(why, false)
		}
		return s.openChanges()
	},
	move: State.moveSection, found: foundInLog,
}

// setJob sets the job of the detail screen; brief means that only its history row is known.
func (s State) setJob(j snapshot.Job, brief bool) State {
	s.jobView.uid, s.jobView.seen, s.jobView.partial, s.jobView.scroll = j.UID, &j, brief, 0
	s.jobView.record.err = ""
	s.jobView.section, s.jobView.tops, s.jobView.paused, s.linkAt, s.lists.zoomed[screenDetail] = sectionLog, [sectionCount]int{},
		false, 0, false
	s.input.filters[screenDetail] = ""
	return s.focusIssues(j)
}

// focusIssues focuses the errors of a job without a log.
func (s State) focusIssues(j snapshot.Job) State {
	if s.jobView.section == sectionLog && len(j.Log) == 0 && !j.Finished.IsZero() && len(jobIssues(j)) > 0 {
		s.jobView.section = sectionErrors
	}
	return s
}

// jobDetail draws one job: head, summary, errors, log.
func (p *view) jobDetail(x, y, w, h int) {
	j, live := p.s.job()
	if head := p.detailHead(h, j); head > 0 {
		p.jobHead(x, y, w, head, j, live)
		y, h = y+head, h-head
	}
	if h < 3 {
		return
	}
	share := p.shares(w, h, j)
	if n := share[sectionSummary]; n > 0 {
		times, below := p.timesWidth(w), p.timesHeight(n, j)
		p.summaryBox(x, y, w-times, n-below, j)
		p.timesBox(x+w-times, y, times, n, j)
		p.timesBox(x, y+n-below, w, below, j)
		y += n
	}
	if n := share[sectionErrors]; n > 0 {
		p.issuesBox(x, y, w, n, j)
		y += n
	}
	if n := share[sectionLog]; n > 0 {
		p.logBox(x, y, w, n, j)
	}
}

func (p *view) jobHead(x, y, w, h int, j snapshot.Job, live bool) {
	what := strings.TrimSpace(j.Action + " " + j.Detail)
	title := widget.Cut(j.Name, max(w/2-len(what)-2, 8), p.G.More) + "  " + widget.Cut(what, w/3, p.G.More)
	p.Box(p.G, x, y, w, h, title, widget.Cut(j.Repository, w/3, p.G.More), "", false)
	state := p.shownState(j)
	if !live && j.Finished.IsZero() {
		state = "unknown"
	}
	var lines []widget.Line
	one := func(r widget.Role, txt string) {
		lines = append(lines, widget.Line{Cells: []string{txt}, Roles: []widget.Role{r}})
	}
	one(widget.StateRole(state), p.stateLine(j, state, w-4))
	one(widget.RolePlain, p.leaseText(j, live)+p.attemptText(j))
	one(widget.RolePlain, refLine(j, p.G.Arrow))
	if j.Commit != nil && h > leastHead(j) {
		one(widget.RolePlain, "commit "+p.commitLine(*j.Commit))
	}
	one(widget.RolePlain, "msg    "+text.OrDash(j.Message))
	for _, l := range j.URLs[:min(len(j.URLs), 1)] {
		one(widget.RolePlain, "url    "+l.Name+" "+l.URL)
	}
	for i, l := range lines {
		if i < h-2 {
			p.Put(x+2, y+1+i, w-4, l.Roles[0], widget.Cut(l.Cells[0], w-4, p.G.More))
		}
	}
	for _, l := range j.URLs[:min(len(j.URLs), 1)] {
		p.Link(x+2, y+1, w-4, h-2, l.URL)
	}
}

func (p *view) stateLine(j snapshot.Job, state string, w int) string {
	glyph, ok := p.G.State[state]
	if !ok {
		glyph = p.G.State["unknown"]
	}
	head := glyph + " " + state
	tail := ""
	if j.Total > 0 {
		tail += "   " + doneWords(j)
	}
	tail += "   " + p.elapsed(j)
	if left := remaining(j, p.s.Now); left > 0 && state == "working" {
		tail += "   ~" + text.Age(left) + " left"
		if rate := float64(j.Done) / p.s.Now.Sub(j.Started).Seconds(); w >= 70 {
			tail += fmt.Sprintf("   %.1f/s", rate)
		}
	}
	if !j.Undelivered.IsZero() {
		return head + ", waiting for the API " + text.Age(p.s.Now.Sub(j.Undelivered))
	}
	if !j.Finished.IsZero() || j.State == "pending" || j.Progress < 0 {
		return head + tail
	}
	percent := fmt.Sprintf(" %3.0f%%", j.Progress)
	room := w - len([]rune(head)) - len(tail) - len(percent) - 3
	if room < 5 {
		return head + percent + tail
	}
	return head + "   " + p.Bar(min(room, 60), j.Progress) + percent + tail
}

// remaining extrapolates the pace to the rest of the work.
func remaining(j snapshot.Job, now time.Time) time.Duration {
	if j.Done <= 0 || j.Total <= j.Done || j.Started.IsZero() || !j.Finished.IsZero() {
		return 0
	}
	return time.Duration(float64(now.Sub(j.Started)) / float64(j.Done) * float64(j.Total-j.Done))
}

// leaseText describes the holder and the expiry of a lease.
func (p *view) leaseText(j snapshot.Job, live bool) string {
	txt := "lease  "
	switch {
	case !j.Finished.IsZero():
		txt += "ended " + j.Finished.UTC().Format("15:04:05Z")
	case !live:
		txt += "the job is gone from the queue"
	case !j.Undelivered.IsZero():
		txt += "done; the result is kept and sent when the API is back"
	case p.s.waitsForRetry(j):
		txt += "rests for " + text.Age(j.RetryAt.Sub(p.s.Now)) + ", r does not wait"
	case j.Owner == "this" && !p.s.offline():
		txt += "held by this agent"
		if a := p.s.Snap.Agent; p.W >= wideWidth && a.Host != "" {
			txt += fmt.Sprintf(" (%s/%d)", a.Host, a.PID)
		}
		if !j.RenewAt.IsZero() {
			txt += ", renews in " + text.Age(j.RenewAt.Sub(p.s.Now))
		}
		if !j.LeaseUntil.IsZero() {
			txt += ", expires in " + text.Age(j.LeaseUntil.Sub(p.s.Now))
		}
	case j.Owner == "other":
		txt += "held by another agent"
	case p.s.Gone != "" && j.LeaseUntil.After(p.s.Now):
		txt += "expires in " + text.Age(j.LeaseUntil.Sub(p.s.Now)) + " unless it is renewed: " + p.s.unavailableReason()
	case p.s.offline():
		txt += "ended: " + p.s.unavailableReason()
	case j.WaitReason != "":
		txt += "left alone"
	default:
		txt += "not claimed yet"
	}
	return txt
}

// attemptText returns the attempt of a job, and its priority if it has its own; "" = unknown.
func (p *view) attemptText(j snapshot.Job) (txt string) {
	switch {
	case j.Attempt > 1 && j.MaxAttempt > 0 && p.s.waitsForRetry(j):
		txt += fmt.Sprintf("   after attempt %d of %d", j.Attempt-1, j.MaxAttempt)
	case j.Attempt > 0:
		txt += fmt.Sprintf("   attempt %d", j.Attempt)
		if j.MaxAttempt > 0 {
			txt += fmt.Sprintf(" of %d", j.MaxAttempt)
		}
	}
	if j.Priority != "" {
		txt += "   priority " + j.Priority
	}
	return txt
}

func refLine(j snapshot.Job, arrow string) string {
	txt := "ref    " + refText(j, arrow)
	if !j.Started.IsZero() {
		txt += "   started " + j.Started.UTC().Format("15:04:05Z")
	}
	return txt + "   uid " + text.OrDash(j.UID)
}

// commitLine describes a commit. Author and time follow the message, where a narrow screen cuts
// them.
func (p *view) commitLine(c snapshot.Commit) string {
	txt := commitText(c)
	if !c.At.IsZero() {
		txt += ", " + widget.Ago(p.s.Now, c.At)
	}
	return txt
}

func commitText(c snapshot.Commit) string {
	txt := widget.Quoted(c.Subject)
	if c.Author != "" {
		txt += " by " + c.Author
	}
	return txt
}

// refText returns the branch of a job and the commits before and after it.
func refText(j snapshot.Job, arrow string) string {
	txt := text.OrDash(j.Branch)
	if j.RefTo != "" {
		if txt += " @ "; j.Branch == "" { // a record has only the commits
			txt = ""
		}
		if j.RefFrom != "" && j.RefFrom != j.RefTo {
			txt += text.ShortRef(j.RefFrom) + " " + arrow + " "
		}
		txt += text.ShortRef(j.RefTo)
	}
	return txt
}

func (p *view) summaryBox(x, y, w, h int, j snapshot.Job) {
	room := widget.TableRoom(len(j.Summary), h-2)
	top := min(p.s.jobView.tops[sectionSummary], max(len(j.Summary)-room, 0))
	foot := ""
	if rest := len(j.Summary) - top - room; rest > 0 {
		foot = fmt.Sprintf("%d more below", rest)
	}
	p.Box(p.G, x, y, w, h, "Summary", "", foot, p.s.jobView.section == sectionSummary)
	if len(j.Summary) == 0 {
		txt := "Nothing written yet."
		switch {
		case !j.Finished.IsZero():
			txt = "Nothing was written."
		case j.WaitReason != "":
			txt = "This agent leaves the job alone: " + j.WaitReason
		}
		p.Empty(x, y, w, h, []string{txt})
		return
	}
	columns := []widget.Column{widget.Col("KIND", 12, 0), widget.NumCol("TOTAL", 6, 3), widget.NumCol("CREATE", 7, 0),
		widget.NumCol("UPDATE", 7, 0), widget.NumCol("DELETE", 7, 0), widget.NumCol("NOOP", 6, 2), widget.NumCol("WARN", 6, 1),
		widget.NumCol("ERROR", 6, 0)}
	p.List(x+1, y+1, w-2, h-2, columns, 0, len(j.Summary)-top, -1, false, func(i int) widget.Line {
		s := j.Summary[top+i]
		l := widget.Line{Cells: []string{s.Kind}, Roles: []widget.Role{widget.RolePlain}}
		for k, n := range []int64{total(s), s.Create, s.Update, s.Delete, s.Noop, s.Warn, s.Error} {
			r := widget.RolePlain
			switch {
			case k == 6 && n > 0:
				r = widget.RoleBad
			case k == 5 && n > 0:
				r = widget.RoleWarn
			}
			txt := fmt.Sprint(n)
			if k == 0 && n <= 0 {
				txt = "-"
			}
			l.Cells, l.Roles = append(l.Cells, txt), append(l.Roles, r)
		}
		return l
	})
}

// total returns the number of resources of a kind in a job, 0 when it is unknown. Servers and
// agents may omit it. The other counters contain each resource once, a renamed one twice.
func total(s snapshot.Summary) int64 {
	if s.Total > 0 {
		return s.Total
	}
	sum := int64(0)
	for _, n := range []int64{s.Create, s.Update, s.Delete, s.Noop, s.Warn, s.Error} {
		if sum += n; n < 0 || sum < 0 {
			return 0
		}
	}
	return sum
}
