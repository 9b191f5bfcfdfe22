package tui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"limpet/sync/view"
)

// What changes between two pictures, in sentences for somebody who hears them one
// after the other. So there are never more than can be heard: equal ones are told
// once, and of a burst the rest is counted.

// weight orders sentences: what needs a person is told first, and has room of its
// own where there is little.
type weight uint8

const (
	tellError weight = iota
	tellAgent
	tellEnd
	tellBegin
	tellOther
	tellProgress
)

// told is a sentence; of those with one key within foldFor only the first is said.
type told struct {
	weight weight
	key    string
	text   string
}

const (
	// tellRate is how many sentences a second are said in the long run, tellBurst how
	// many at once after a silence. tellSpare of them are kept for errors, for the
	// agent itself, and for the count of what was left out.
	tellRate, tellBurst, tellSpare = 3, 8, 3
	// foldFor is how long an equal sentence is not said again.
	foldFor = time.Minute
	// progressStep and progressEvery say when the progress of a job is told again:
	// after so many percent, or so much time.
	progressStep  = 10
	progressEvery = 10 * time.Second
	// waitQuiet is how long a job may wait before that is worth a sentence.
	waitQuiet = 2 * time.Second
)

// teller is what was told so far. It is a value: each of its functions returns the
// next one.
type teller struct {
	jobs    map[string]toldJob // by UID
	errors  map[uint64]int     // times of troubles, by their id
	folded  map[string]fold    // by the key of the sentence
	left    [tellProgress]int  // sentences left out, by their weight
	room    float64            // sentences that may be said now
	at      time.Time          // of room
	started bool               // there was a picture
}

// toldJob is what was said of a job.
type toldJob struct {
	phase  string
	step   int
	errors int
	seen   time.Time // since when it is in this phase
	at     time.Time // of the last sentence; zero = there was none
	text   string
	who    string
}

// fold is a sentence that came again within foldFor.
type fold struct {
	text  string
	at    time.Time // when it was said
	times int       // since then
}

// picture compares two states and returns what is to be said of it.
func (t teller) picture(was, s State) (teller, []string) {
	var all []told
	t.jobs, all = t.tellJobs(s)
	for _, e := range s.troubles.list {
		if e.times > t.errors[e.id] && !s.toldOtherwise(e) {
			all = append(all, told{tellError, e.who() + e.text, e.sentence()})
		}
	}
	t.errors = s.troubles.counts()
	if !t.started {
		t.started = true
		return t, nil // who comes in is greeted instead
	}
	all = append(all, tellAgents(was, s)...)
	all = append(all, tellRepos(was, s)...)
	return t.say(all, s.Now)
}

// say chooses what is said of all that there is to say.
func (t teller) say(all []told, now time.Time) (teller, []string) {
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(a.weight, b.weight) })
	t = t.refilled(now)
	t.folded = maps.Clone(t.folded)
	var out []string
	for _, one := range all {
		if f, ok := t.folded[one.key]; ok && one.key != "" {
			f.times, f.text = f.times+1, one.text
			t.folded[one.key] = f
			continue
		}
		need := 1.0
		if one.weight > tellAgent {
			need += tellSpare
		}
		if t.room < need {
			if one.weight < tellProgress { // the next step tells where it is
				t.left[one.weight]++
			}
			continue
		}
		t.room--
		if one.key != "" {
			if t.folded == nil {
				t.folded = map[string]fold{}
			}
			t.folded[one.key] = fold{text: one.text, at: now}
		}
		out = append(out, stamped(now, one.text))
	}
	return t, out
}

// later is what is said when nothing new has come: how much was left out, and how
// often what was said came again.
func (t teller) later(s State) (teller, []string) {
	var waiting []told
	if t.started {
		t.jobs, waiting = t.tellJobs(s)
	}
	t, out := t.say(waiting, s.Now)
	t.folded = maps.Clone(t.folded)
	for _, key := range slices.Sorted(maps.Keys(t.folded)) {
		f := t.folded[key]
		if s.Now.Sub(f.at) < foldFor {
			continue
		}
		delete(t.folded, key)
		if f.times == 0 || t.room < 1 {
			continue
		}
		t.room--
		t.folded[key] = fold{text: f.text, at: s.Now}
		out = append(out, stamped(s.Now, fmt.Sprintf("%s more: %s", timesText(f.times), f.text)))
	}
	var parts []string
	for w, n := range t.left {
		if what := leftOut[w]; n == 1 {
			parts = append(parts, "1 more "+what[0])
		} else if n > 1 {
			parts = append(parts, view.Thousands(n)+" more "+what[1])
		}
	}
	if len(parts) == 0 || t.room < 1 {
		return t, out
	}
	t.room--
	t.left = [tellProgress]int{}
	return t, append(out, stamped(s.Now, "and "+strings.Join(parts, ", ")))
}

// leftOut names what was left out, one and several.
var leftOut = [tellProgress][2]string{
	tellError: {"error: errors lists it", "errors: errors lists them"},
	tellAgent: {"change of the agent", "changes of the agent"},
	tellEnd:   {"job ended", "jobs ended"},
	tellBegin: {"job began", "jobs began"},
	tellOther: {"change", "changes"},
}

// refilled has the room that the time since then has made.
func (t teller) refilled(now time.Time) teller {
	if t.at.IsZero() {
		t.room = tellBurst
	} else if now.After(t.at) {
		t.room = min(t.room+now.Sub(t.at).Seconds()*tellRate, tellBurst)
	}
	t.at = now
	return t
}

func stamped(at time.Time, text string) string { return at.UTC().Format("15:04:05") + " " + text }

// tellJobs tells what has become of the jobs of the picture.
func (t teller) tellJobs(s State) (map[string]toldJob, []told) {
	next := make(map[string]toldJob, len(s.Snap.Jobs))
	var all []told
	for _, j := range s.Snap.Jobs {
		was, known := t.jobs[j.UID]
		now, one := s.tellJob(was, known, j)
		if now.errors < len(j.Errors) && j.Finished.IsZero() && t.started {
			for _, text := range j.Errors[now.errors:] {
				all = append(all, told{tellError, j.UID + text, fmt.Sprintf("%s: error, %s", jobWho(j), text)})
			}
		}
		now.errors = len(j.Errors)
		if !t.started { // it is in the greeting
			now.at = s.Now
		}
		next[j.UID] = now
		if one.text != "" && t.started {
			all = append(all, one)
		}
	}
	if len(s.Snap.Jobs) >= s.Snap.Counts.All() { // else it may be behind the end of the picture
		for _, uid := range slices.Sorted(maps.Keys(t.jobs)) {
			if was := t.jobs[uid]; was.phase != "ended" {
				if _, there := next[uid]; !there {
					all = append(all, told{tellEnd, "", was.who + ": gone from the queue"})
				}
			}
		}
	}
	return next, all
}

// tellJob is what is said of one job now; no text = nothing.
func (s State) tellJob(was toldJob, known bool, j view.Job) (toldJob, told) {
	now := was
	now.who = jobWho(j)
	phase := jobPhase(j, s.Now)
	step := int(j.Progress) / progressStep
	if !known || was.phase != phase {
		now.phase, now.seen, now.at, now.step = phase, s.Now, time.Time{}, step
	}
	one := told{weight: tellBegin, text: now.who + ": " + s.jobSentence(j)}
	switch {
	case phase == "pending":
		if !now.at.IsZero() || s.Now.Sub(now.seen) < waitQuiet && j.Waits == "" {
			return now, told{}
		}
		one.weight = tellOther
	case phase == "ended" && now.at.IsZero():
		one.weight = tellEnd
		if j.State == "error" || j.State == "dead" {
			one.weight = tellError
			one.text += ". Next: job " + j.Name
			one.key = strings.Join([]string{"ended", j.Namespace, j.Repository, j.Action, j.State, j.Message}, " ")
		}
	case now.at.IsZero():
		if phase == "resting" || phase == "unsent" {
			one.weight = tellOther
		}
	case phase == "working" && one.text != now.text && (step != now.step || s.Now.Sub(now.at) >= progressEvery):
		one.weight, now.step = tellProgress, step
	default:
		return now, told{}
	}
	now.at, now.text = s.Now, one.text
	return now, one
}

// jobWho names a job and what it is for.
func jobWho(j view.Job) string {
	if j.Repository == "" {
		return j.Name
	}
	return j.Name + " for " + j.Repository
}

// jobPhase is the part of its life that a job is in.
func jobPhase(j view.Job, now time.Time) string {
	switch {
	case !j.Finished.IsZero():
		return "ended"
	case !j.Unsent.IsZero():
		return "unsent"
	case j.State == "pending" && j.Owner == "" && j.RestsUntil.After(now):
		return "resting"
	case j.State == "pending" && j.Owner == "":
		return "pending"
	case j.Owner == "other":
		return "working elsewhere"
	}
	return "working"
}

// jobSentence says how a job is.
func (s State) jobSentence(j view.Job) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch jobPhase(j, s.Now) {
	case "ended":
		add("%s", j.State)
		if !j.Started.IsZero() {
			parts[0] += " after " + spoken(j.Finished.Sub(j.Started))
		}
		if text := summaryText(j.Summary); text != "" {
			add("%s", text)
		}
		if j.Message != "" && j.State != "success" {
			add("%s", j.Message)
		}
	case "unsent":
		add("done, the API has not taken its result yet")
	case "resting":
		add("pending, attempt %d in %s", j.Attempt, spoken(j.RestsUntil.Sub(s.Now)))
	case "pending":
		add("pending")
		if j.Waits != "" {
			add("%s", j.Waits)
		}
	case "working elsewhere":
		add("working on another agent")
	default:
		add("%s", j.State)
		if j.Progress >= 0 {
			add("%.0f percent", min(j.Progress, 100))
		}
		if j.Total > 0 {
			add("%d of %s", j.Done, thousands(j.Total, "file"))
		}
		if j.Attempt > 1 {
			add("attempt %d", j.Attempt)
		}
		if j.Progress < 0 && j.Message != "" {
			add("%s", j.Message)
		}
	}
	return strings.Join(parts, ", ")
}

// summaryText says what a job has done to all kinds together.
func summaryText(kinds []view.Summary) string {
	var sum view.Summary
	for _, k := range kinds {
		sum.Create, sum.Update, sum.Delete, sum.Error = sum.Create+k.Create, sum.Update+k.Update, sum.Delete+k.Delete, sum.Error+k.Error
	}
	var parts []string
	for _, n := range []struct {
		n    int64
		what string
	}{{sum.Create, "created"}, {sum.Update, "updated"}, {sum.Delete, "deleted"}, {sum.Error, "in error"}} {
		if n.n > 0 {
			parts = append(parts, view.Thousands(int(n.n))+" "+n.what)
		}
	}
	return strings.Join(parts, ", ")
}

// toldOtherwise says that a trouble is one that has another sentence: the end of its
// job, the API that is away, a source that does not answer.
func (s State) toldOtherwise(e trouble) bool {
	for _, j := range s.Snap.Jobs {
		if j.Name == e.job && (e.text == j.Message && !j.Finished.IsZero() || slices.Contains(j.Errors, e.text)) {
			return true
		}
	}
	return e.who() == "" && (e.text == "API: "+s.Snap.API.Error || e.text == s.Snap.Problem || e.text == s.Gone)
}

// sentence is a trouble with what to do next.
func (e trouble) sentence() string {
	next := "limpet doctor, in another terminal"
	switch {
	case e.job != "":
		next = "job " + e.job
	case e.repo != "":
		next = "repository " + e.repo
	}
	who := e.who()
	if who != "" {
		who += ": "
	}
	return who + "error, " + e.text + ". Next: " + next
}

// tellAgents tells what has become of the agent, of its API and of the way to it.
func tellAgents(was, s State) (all []told) {
	say := func(w weight, format string, args ...any) {
		all = append(all, told{weight: w, text: fmt.Sprintf(format, args...)})
	}
	if was.Gone != "" {
		say(tellAgent, "the daemon answers again: %s", s.Source)
	} else if was.Source != s.Source {
		say(tellAgent, "now %s", s.Source)
	}
	if s.Note != "" && s.Note != was.Note {
		say(tellAgent, "note: %s", s.Note)
	}
	before, now := was.Snap.API, s.Snap.API
	switch {
	case s.Source == FromDisk:
	case !now.Up && before.Up:
		say(tellError, "offline: the API does not answer, %s. Nothing is sent, and nothing is queued for later. Next: limpet doctor, in another terminal", view.OrDash(now.Error))
	case now.Up && !before.Up:
		say(tellAgent, "online: the API answers")
	}
	if before.Synced != now.Synced && now.Synced || !was.Snap.AsOf.IsZero() && s.Snap.AsOf.IsZero() {
		say(tellAgent, "the API was read: what is listed is live")
	}
	if p := s.Snap.Problem; p != was.Snap.Problem && p != "" {
		say(tellError, "problem: %s", p)
	} else if p != was.Snap.Problem {
		say(tellAgent, "the problem is over: %s", was.Snap.Problem)
	}
	a, b := was.Snap.Agent, s.Snap.Agent
	switch {
	case b.Draining.IsZero() && !a.Draining.IsZero():
		say(tellAgent, "claims jobs again")
	case !b.Draining.IsZero() && (a.Draining.IsZero() || (a.Busy == 0) != (b.Busy == 0)):
		say(tellAgent, "%s", drainText(b))
	}
	if lost := b.LostCount - a.LostCount; lost > 0 && a.PID == b.PID {
		say(tellError, "%s lost: another agent may take what ran. Next: agent", view.Plural(lost, "lease"))
	}
	return all
}

// tellRepos tells what has become of the repositories.
func tellRepos(was, s State) (all []told) {
	before := make(map[string]view.Repo, len(was.Snap.Repos))
	for _, r := range was.Snap.Repos {
		before[repoKey(r)] = r
	}
	for _, r := range s.Snap.Repos {
		old, known := before[repoKey(r)]
		delete(before, repoKey(r))
		say := func(w weight, key, format string, args ...any) {
			all = append(all, told{w, key, "repository " + r.Name + ": " + fmt.Sprintf(format, args...)})
		}
		if !known {
			say(tellOther, "", "is new")
		}
		if h := health(r); h != health(old) && h == "failing" {
			say(tellError, "health "+repoKey(r)+r.Health, "failing, %s. Next: repository %s", view.OrDash(r.Health), r.Name)
		} else if known && h == "healthy" && health(old) == "failing" {
			say(tellAgent, "", "healthy again")
		}
		switch {
		case known && r.Suspended && !old.Suspended:
			say(tellAgent, "", "suspended on this agent")
		case known && !r.Suspended && old.Suspended:
			say(tellAgent, "", "resumed")
		}
		if known && !r.Deleting.IsZero() && old.Deleting.IsZero() {
			say(tellOther, "", "is being deleted")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		all = append(all, told{weight: tellOther, text: "repository " + before[key].Name + ": is gone"})
	}
	return all
}

// lost is what is said when the source does not answer any more.
func (t teller) lost(was, s State) (teller, []string) {
	if was.Gone != "" {
		return t, nil
	}
	text := "the source does not answer: " + s.Gone + "; it is asked again by itself"
	if !s.Snap.At.IsZero() {
		text += ", and what is listed is as of " + clockTime(s.stale(), s.Now)
	}
	t.errors = s.troubles.counts()
	return t.say([]told{{weight: tellError, text: text}}, s.Now)
}

// spoken is a time span in words: "42 seconds", "5 minutes".
func spoken(d time.Duration) string {
	d = max(d, 0)
	n, unit := int(d.Seconds()), "second"
	switch {
	case d >= 48*time.Hour:
		n, unit = int(d.Hours()/24), "day"
	case d >= time.Hour:
		n, unit = int(d.Hours()), "hour"
	case d >= time.Minute:
		n, unit = int(d.Minutes()), "minute"
	}
	return view.Plural(n, unit)
}

// counts are the times of all troubles, by their id.
func (t troubles) counts() map[uint64]int {
	out := make(map[uint64]int, len(t.list))
	for _, e := range t.list {
		out[e.id] = e.times
	}
	return out
}
