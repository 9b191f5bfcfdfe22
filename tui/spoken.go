package tui

import (
	"fmt"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// The screens as they are read out: a name and what it is on each line, and no
// columns.

// block is an entry of a list: a numbered name, then facts.
type block []string

func (b *block) add(name, txt string) {
	if txt != "" && txt != "-" {
		*b = append(*b, name+": "+txt)
	}
}

// reader is a painter whose words are read out.
func (l linear) reader() *painter {
	return &painter{s: l.s, g: l.s.Caps.glyphs(), caps: l.s.Caps, reads: true}
}

// firstSteps are those of a fresh limpet.
func (l linear) firstSteps() (out []string) {
	for _, line := range l.reader().welcomeLines() {
		if line.text != "" {
			out = append(out, line.text)
		}
	}
	return out
}

// status says in a few lines what goes on.
func (l linear) status() []string {
	s, b := l.s, block{}
	b.add("source", s.Source)
	b.add("agent", fmt.Sprintf("host %s, process %d, claims %d of %d", text.OrDash(s.Snap.Agent.Host), s.Snap.Agent.PID, s.Snap.Agent.Claims, s.Snap.Agent.Drivers))
	if a := s.Snap.Agent; !a.Draining.IsZero() {
		b.add("draining", drainText(a)+", for "+spoken(s.Now.Sub(a.Draining)))
	}
	b.add("API", l.apiText())
	b.add("jobs", jobsNote(s.Snap.Counts))
	b.add("repositories", l.reposText())
	if len(s.Snap.Sources) > 0 {
		b.add("sources", l.sourcesText())
	}
	b.add("problem", s.Snap.Problem)
	if n := s.troubles.unread(); n > 0 {
		b.add("errors", fmt.Sprintf("%d not looked at yet: the word errors lists them", n))
	}
	return b
}

func (l linear) apiText() string {
	s, api := l.s, l.s.Snap.API
	txt := text.OrDash(api.Server) + ", "
	switch {
	case s.Gone != "":
		return txt + "not known: the daemon does not answer, what is listed is as of " + clockTime(s.stale(), s.Now)
	case s.Source == FromDisk:
		return txt + "not asked: no agent works on this file, what is listed is as of " + clockTime(s.stale(), s.Now)
	case !api.Up:
		return txt + "down for " + spoken(s.Now.Sub(api.Since)) + ", " + text.OrDash(api.Error)
	case !api.Synced:
		return txt + "not read yet"
	}
	if api.Insecure {
		txt += "certificate not checked, "
	}
	return txt + "up"
}

func (l linear) reposText() string {
	var failing []string
	for _, r := range l.s.Snap.Repos {
		if repoState(r) == "error" {
			failing = append(failing, r.Name)
		}
	}
	txt := fmt.Sprint(len(l.s.Snap.Repos))
	if len(failing) > 0 {
		txt += fmt.Sprintf(", %d failing: %s", len(failing), strings.Join(failing[:min(len(failing), 5)], ", "))
	}
	return txt
}

// listJobs says the jobs of the picture.
func (l linear) listJobs() (linear, reply) {
	rows := l.s.jobs()
	l.jobs = keysOf(rows, jobKey)
	counts := l.s.Snap.Counts
	head := []string{"Jobs: " + jobsNote(counts)}
	switch problem := l.s.filterProblem(); {
	case problem != "":
		return l, says(problem)
	case l.s.filter() != "":
		head = []string{fmt.Sprintf("Jobs that match %s: %d of %d", l.s.filter(), len(rows), counts.All())}
	}
	if l.s.offline() {
		head[0] += ", as of " + clockTime(l.s.stale(), l.s.Now)
	}
	var blocks [][]string
	for i, j := range rows {
		b := block{fmt.Sprintf("%d: job %s", i+1, j.Name)}
		b.add("repository", j.Repository)
		b.add("action", strings.TrimSpace(j.Action+" "+j.Detail))
		b.add("state", l.stateText(j))
		b.add("time", l.timeText(j))
		blocks = append(blocks, b)
	}
	if more := counts.All() - len(l.s.Snap.Jobs); more > 0 {
		blocks = append(blocks, []string{fmt.Sprintf("%s more jobs are not in this picture: limpet job list, in another terminal, has them.", text.Thousands(more))})
	}
	return l.page(head, blocks)
}

// stateText says how a job is; what is not live is unknown.
func (l linear) stateText(j snapshot.Job) string {
	if l.reader().shown(j) == "unknown" {
		return "unknown: it was " + l.s.jobSentence(j)
	}
	return l.s.jobSentence(j)
}

// timeText is how long a job works, or waits; of one that has ended its state says
// that.
func (l linear) timeText(j snapshot.Job) string {
	switch {
	case !j.Finished.IsZero() || l.s.offline():
		return ""
	case !j.Started.IsZero():
		return spoken(l.s.Now.Sub(j.Started))
	case !j.Created.IsZero():
		return spoken(l.s.Now.Sub(j.Created))
	}
	return ""
}

// listRepos says the repositories.
func (l linear) listRepos() (linear, reply) {
	rows := l.s.repos()
	l.repos = keysOf(rows, repoKey)
	head := []string{"Repositories: " + l.reposText()}
	switch problem := l.s.filterProblem(); {
	case problem != "":
		return l, says(problem)
	case l.s.filter() != "":
		head = []string{fmt.Sprintf("Repositories that match %s: %d of %d", l.s.filter(), len(rows), len(l.s.Snap.Repos))}
	}
	if l.s.offline() {
		head[0] += ", as of " + clockTime(l.s.stale(), l.s.Now)
	}
	p := l.reader()
	var blocks [][]string
	for i, r := range rows {
		b := block{fmt.Sprintf("%d: repository %s", i+1, r.Name)}
		b.add("health", health(r))
		b.add("sync", p.syncText(r))
		b.add("next pull", p.nextText(r))
		if r.Suspended {
			b.add("suspended", "on this agent")
		}
		blocks = append(blocks, b)
	}
	return l.page(head, blocks)
}

// jobFacts say a job whole.
func (l linear) jobFacts() []string {
	j, live := l.s.job()
	b := block{"job " + j.Name}
	b.add("repository", j.Repository)
	b.add("action", strings.TrimSpace(j.Action+" "+j.Detail))
	if !live && j.Finished.IsZero() {
		b.add("state", "unknown: the job is gone from the queue")
	} else {
		b.add("state", l.stateText(j))
	}
	b.add("message", j.Message)
	b.add("time", l.timeText(j))
	if left := remaining(j, l.s.Now); left > 0 && live && !l.s.offline() {
		b.add("left", "about "+spoken(left))
	}
	if j.Owner == "this" && live && j.Finished.IsZero() && !l.s.offline() && !j.LeaseUntil.IsZero() {
		b.add("lease", "held by this agent, expires in "+spoken(j.LeaseUntil.Sub(l.s.Now)))
	}
	if j.Attempt > 0 {
		b.add("attempt", fmt.Sprintf("%d of %d", j.Attempt, max(j.MaxAttempt, j.Attempt)))
	}
	b.add("priority", j.Priority)
	b.add("branch", j.Branch)
	b.add("commit", text.ShortRef(j.RefTo))
	b.add("commit before", text.ShortRef(j.RefFrom))
	if c := j.Commit; c != nil {
		b.add("commit says", commitText(*c))
	}
	if !j.Started.IsZero() {
		b.add("started", clockTime(j.Started, l.s.Now))
	}
	if !j.Finished.IsZero() {
		b.add("finished", clockTime(j.Finished, l.s.Now))
	}
	b.add("uid", j.UID)
	for i, one := range j.Steps {
		b.add("step", fmt.Sprintf("%s, %.1f seconds", one.Text, tookOf(j, i, l.s.Now).Seconds()))
	}
	for _, k := range j.Summary {
		b.add(k.Kind, fmt.Sprintf("%d created, %d updated, %d deleted, %d as before, %d warnings, %d errors", k.Create, k.Update, k.Delete, k.Noop, k.Warn, k.Error))
	}
	for _, e := range j.Errors {
		b.add("error", e)
	}
	for _, e := range j.Warnings {
		b.add("warning", e)
	}
	from := max(len(j.Log)-pageBlocks, 0)
	if from > 0 {
		b = append(b, fmt.Sprintf("log, the last %d of %d lines:", len(j.Log)-from, len(j.Log)))
	}
	for _, e := range j.Log[from:] {
		b = append(b, stamped(e.At, strings.TrimPrefix(e.Level+", ", "info, ")+e.Text))
	}
	if noChanges(l.s) == "" {
		b = append(b, "The word changes lists the files that it has changed.")
	}
	return b
}

// repoFacts say a repository whole.
func (l linear) repoFacts() []string {
	r, live := l.s.repo()
	b := block{"repository " + r.Name}
	b.add("title", r.Title)
	b.add("type", r.Type)
	for _, f := range l.reader().factsOf(r, live, false) {
		b.add(f.name, f.text)
	}
	for _, c := range r.Conditions {
		b.add(c.Type, strings.TrimSuffix(strings.Join([]string{c.Status, c.Reason, c.Message}, ", "), ", "))
	}
	for _, j := range l.s.Snap.Jobs {
		if j.Namespace == r.Namespace && j.Repository == r.Name {
			b.add("job "+j.Name, l.stateText(j))
		}
	}
	return b
}

// agentFacts say the agent whole.
func (l linear) agentFacts() []string {
	b := block{}
	for _, f := range l.reader().agentSheet() {
		switch {
		case f.text == "":
			b = append(b, f.name)
		case f.name == "":
			b = append(b, f.text)
		default:
			b.add(f.name, f.text)
		}
	}
	return b
}

// errors say what went wrong, the newest first, each with what to do next.
func (l linear) errors() []string {
	list := slices.Clone(l.s.troubles.list)
	slices.Reverse(list)
	out := []string{"Errors: " + fmt.Sprint(len(list))}
	for i, e := range list[:min(len(list), 2*pageBlocks)] {
		out = append(out, fmt.Sprintf("%d: %s %s. Next: %s", i+1, clockTime(e.at, l.s.Now), e.body(), e.next()))
	}
	if rest := len(list) - 2*pageBlocks; rest > 0 {
		out = append(out, fmt.Sprintf("%d older ones are not said.", rest))
	}
	return out
}

// listPast says what of the history was not said yet.
func (l linear) listPast() (linear, reply) {
	p := l.s.past
	problem := l.s.pastProblem()
	switch {
	case problem != "":
		return l, says(problem)
	case p.fault != "":
		return l, says("The history cannot be read: " + p.fault)
	case !p.known:
		return l, says("The history cannot be read now: " + text.OrDash(l.s.Gone))
	case len(p.items) == 0 && l.s.filter() != "":
		return l, says(fmt.Sprintf("None of %s matches %s.", text.Plural(p.all, "job"), l.s.filter()))
	case len(p.items) == 0:
		return l, says("No job has ended here yet.")
	}
	var head []string
	if l.past == 0 {
		l.jobs = nil
		head = []string{"History, newest first: " + l.reader().pastNote()}
	}
	var blocks [][]string
	for _, item := range p.items[min(l.past, len(p.items)):] {
		r := item.row
		if item.fold > 0 {
			blocks = append(blocks, []string{fmt.Sprintf("%d more like these, back to %s", item.fold, clockTime(item.till, l.s.Now))})
			continue
		}
		l.jobs = append(slices.Clip(l.jobs), r.UID)
		b := block{fmt.Sprintf("%d: job %s", len(l.jobs), r.Name)}
		b.add("finished", clockTime(r.Finished, l.s.Now))
		b.add("repository", r.Repository)
		b.add("action", r.Action)
		state := r.State
		if !r.Started.IsZero() {
			state += " after " + spoken(r.Finished.Sub(r.Started))
		}
		b.add("state", state)
		b.add("commit", text.ShortRef(r.RefTo))
		b.add("message", r.Message)
		blocks = append(blocks, b)
	}
	l.past = len(p.items)
	return l.page(head, blocks)
}
