package tui

import (
	"limpet/sync/snapshot"
)

// request asks the agent for something, of the thing that a name means.
func (l linear) request(v Verb, name string) (linear, reply) {
	job := v == Cancel || v == Retry
	act := func(jobs []snapshot.Job, repos []snapshot.Repo) (linear, reply) {
		var out Outcome
		l.s, out = l.s.request(l.s.aimsAt(aimOf(v), jobs, repos))
		return l.answered(out)
	}
	switch {
	case name == "" && job && l.s.screen == screenDetail:
		return act(l.s.jobsMeant(v), nil)
	case name == "" && !job && (l.s.screen == screenRepo || l.s.screen == screenDetail):
		if why := notSuspended(v, l.s.reposMeant()); why != "" {
			return l, says(why)
		}
		return act(nil, l.s.reposMeant())
	case name == "":
		return l, says("Say which: the word, then a name, as in: " + spokenVerb(v) + " NAME.")
	case job:
		some := l.jobsCalled(name)
		var can []snapshot.Job
		for _, j := range some {
			if _, why := l.s.aimsAt(v, []snapshot.Job{j}, nil); why == "" {
				can = append(can, j)
			}
		}
		if len(can) > 0 {
			some = can
		}
		return l.chooseJob(name, some, func(l linear, j snapshot.Job) (linear, reply) {
			var out Outcome
			l.s, out = l.s.request(l.s.aimsAt(v, []snapshot.Job{j}, nil))
			return l.answered(out)
		})
	}
	return l.chooseRepo(name, func(l linear, r snapshot.Repo) (linear, reply) {
		if why := notSuspended(v, []snapshot.Repo{r}); why != "" {
			return l, says(why)
		}
		var out Outcome
		l.s, out = l.s.request(l.s.aimsAt(aimOf(v), nil, []snapshot.Repo{r}))
		return l.answered(out)
	})
}

// aimOf is the verb of the key: one key suspends and resumes.
func aimOf(v Verb) Verb {
	switch v {
	case Resume:
		return Suspend
	case ResumeSource:
		return SuspendSource
	}
	return v
}

// notSuspended says why a word that does one of the two does nothing.
func notSuspended(v Verb, repos []snapshot.Repo) string {
	for _, r := range repos {
		switch {
		case v == Suspend && r.Suspended:
			return "Not done: " + r.Name + " is suspended already. resume " + r.Name + " ends that."
		case v == Resume && !r.Suspended:
			return "Not done: " + r.Name + " is not suspended."
		}
	}
	return ""
}

func spokenVerb(v Verb) string {
	if v == PullFull {
		return "full pull"
	}
	return string(v)
}
