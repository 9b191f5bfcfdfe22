package tui

import (
	"fmt"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// preview shows what is under the cursor of the overview beside the lists.
func (p *view) preview(x, y, w, h int) {
	if r, ok := p.previewRepo(); ok {
		p.box(p.g, x, y, w, h, cut(r.Name, w-8, p.g.more), "", "enter opens", false)
		p.putLines(x, y, w, h, p.repoFacts(r, true, w-4, true))
		p.link(x+2, y+1, w-4, h-2, r.URL)
		return
	}
	j, ok := p.s.selected()
	if !ok {
		p.box(p.g, x, y, w, h, "Job", "", "", false)
		p.empty(x, y, w, h, []string{"The job under the cursor is shown here."})
		return
	}
	p.box(p.g, x, y, w, h, cut(j.Name, w-8, p.g.more), "", "enter opens", false)
	p.putLines(x, y, w, h, p.jobLines(j, w-4, h-2))
}

// previewRepo is the repository under the cursor, when the focus is on their list.
func (p *view) previewRepo() (snapshot.Repo, bool) {
	if p.s.focus == paneRepos {
		for _, r := range p.s.repos() {
			if repoKey(r) == p.s.repoKey {
				return r, true
			}
		}
	}
	return snapshot.Repo{}, false
}

// jobLines tell of a job on h lines of w cells: how it goes, what it has done, what
// went wrong, and with the room that is left what it said last.
func (p *view) jobLines(j snapshot.Job, w, h int) (out []textLine) {
	state := p.shownState(j)
	add := func(r role, texts ...string) {
		for _, txt := range texts {
			out = append(out, textLine{r, txt})
		}
	}
	add(stateRole(state), p.barLine(j, state, w))
	if j.Total > 0 {
		txt := doneWords(j)
		if left := remaining(j, p.s.Now); left > 0 && state == "working" {
			txt += "   ~" + text.Age(left) + " left"
		}
		add(rolePlain, txt)
	}
	if until := p.lease(j); j.Owner == "this" && until != "-" && !j.RenewAt.IsZero() && !p.s.offline() {
		add(rolePlain, "lease "+until+", renews in "+text.Age(j.RenewAt.Sub(p.s.Now)))
	} else {
		add(rolePlain, wrap(p.leaseText(j, true), w)...)
	}
	if txt := strings.TrimSpace(p.attemptText(j)); txt != "" {
		add(rolePlain, txt)
	}
	if j.Branch+j.RefTo != "" {
		add(rolePlain, refText(j, p.g.arrow))
	}
	if j.Message != "" && len(j.Errors) == 0 && !genericMessage(j.Message) {
		add(rolePlain, wrap(j.Message, w)...)
	}
	if len(j.Summary) > 0 {
		add(rolePlain, "")
		add(roleHead, fmt.Sprintf("%-*s%5s%5s%5s%5s", w-20, "KIND", "NEW", "UPD", "DEL", "ERR"))
	}
	for _, s := range j.Summary {
		r := rolePlain
		if s.Error > 0 {
			r = roleBad
		}
		add(r, tableLine(s.Kind, w, p.g.more, s.Create, s.Update, s.Delete, s.Error))
	}
	if troubles := p.issueLines(j, w); len(troubles) > 0 {
		add(rolePlain, "")
		out = append(out, troubles...)
	}
	if room := h - len(out) - 1; room > 0 && len(j.Log) > 0 {
		add(rolePlain, "")
		for _, e := range j.Log[max(len(j.Log)-room, 0):] {
			add(roleDim, e.At.UTC().Format("15:04:05")+" "+levelWord(e.Level)+" "+e.Text)
		}
	}
	return out
}

// barLine is the state of a job with a bar, as far as it is known how far it is.
func (p *view) barLine(j snapshot.Job, state string, w int) string {
	glyph, ok := p.g.state[state]
	if !ok {
		glyph = p.g.state["unknown"]
	}
	head := glyph + " " + state
	if e := p.elapsed(j); e != "-" {
		head += "  " + e
	}
	percent := fmt.Sprintf(" %3.0f%%", j.Progress)
	room := w - displaywidth.String(head) - len(percent) - 2
	if !j.Finished.IsZero() || !j.Unsent.IsZero() || j.State == "pending" || j.Progress < 0 || room < 5 {
		return head
	}
	return head + "  " + p.bar(room, j.Progress) + percent
}
