package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

const (
	// progressStep and progressEvery say when the progress of a job is told again:
	// after so many percent, or so much time.
	progressStep  = 10
	progressEvery = 10 * time.Second
	// waitQuiet is how long a job may wait before that is worth a sentence.
	waitQuiet = 2 * time.Second
)

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

// tellJobs tells what has become of the jobs of the picture.
func (t teller) tellJobs(s State) (map[string]toldJob, []told) {
	next := make(map[string]toldJob, len(s.Snap.Jobs))
	var all []told
	for _, j := range s.Snap.Jobs {
		was, known := t.jobs[j.UID]
		now, one := s.tellJob(was, known, j)
		if now.errors < len(j.Errors) && j.Finished.IsZero() && t.started {
			for _, txt := range j.Errors[now.errors:] {
				all = append(all, told{tellError, j.UID + txt, fmt.Sprintf("%s: error, %s", jobWho(j), txt)})
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
func (s State) tellJob(was toldJob, known bool, j snapshot.Job) (toldJob, told) {
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
func jobWho(j snapshot.Job) string {
	if j.Repository == "" {
		return j.Name
	}
	return j.Name + " for " + j.Repository
}

// jobPhase is the part of its life that a job is in.
func jobPhase(j snapshot.Job, now time.Time) string {
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
func (s State) jobSentence(j snapshot.Job) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch jobPhase(j, s.Now) {
	case "ended":
		add("%s", j.State)
		if !j.Started.IsZero() {
			parts[0] += " after " + spoken(j.Finished.Sub(j.Started))
		}
		if txt := summaryText(j.Summary); txt != "" {
			add("%s", txt)
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
			add("%s of %s", text.Thousands(int(j.Done)), thousands(j.Total, "file"))
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
func summaryText(kinds []snapshot.Summary) string {
	var sum snapshot.Summary
	for _, k := range kinds {
		sum.Create, sum.Update, sum.Delete, sum.Error = sum.Create+k.Create, sum.Update+k.Update, sum.Delete+k.Delete, sum.Error+k.Error
	}
	var parts []string
	for _, n := range []struct {
		n    int64
		what string
	}{{sum.Create, "created"}, {sum.Update, "updated"}, {sum.Delete, "deleted"}, {sum.Error, "in error"}} {
		if n.n > 0 {
			parts = append(parts, text.Thousands(int(n.n))+" "+n.what)
		}
	}
	return strings.Join(parts, ", ")
}
