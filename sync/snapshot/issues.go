package snapshot

import (
	"fmt"
	"strings"

	"limpet/sync/api"
	"limpet/sync/text"
)

// Issue is something that is wrong, or a warning. It decides the exit code of 'limpet status' and the heartbeat.
type Issue struct {
	Namespace string
	Text      string
	Next      string // arguments of the next command; "" = the text has it
	Failing   bool   // else it is a warning
}

const maxProblem = 100 // bytes of the problem of a source

// Issues returns what is wrong with the agent and its objects.
func (s *Snapshot) Issues() (out []Issue) {
	switch {
	case s.Problem != "":
		out = append(out, Issue{Text: s.Problem, Failing: true})
	case !s.API.Up:
		out = append(out, Issue{Text: "api: " + s.API.Error, Failing: true})
	}
	for _, repo := range s.Repos {
		out = append(out, repo.Issues()...)
	}
	for i := range s.Sources {
		from := &s.Sources[i]
		for _, c := range from.Conditions {
			if c.Type == api.ConditionSinkReady && c.Status == "False" && !from.Suspended {
				out = append(out, Issue{from.Namespace, fmt.Sprintf("the sink directory of source %s is not up to date: %s", from.Name,
					text.Line(c.Message, maxProblem)), "source show " + from.Name, true})
			}
		}
		if from.Unready() {
			out = append(out, Issue{from.Namespace, fmt.Sprintf("source %s is not ready: %s", from.Name,
				text.Line(strings.Trim(from.Reason+": "+text.WithoutLocalPorts(from.Message), ": "), maxProblem)),
				"source show " + from.Name, from.Bad()})
		}
	}
	for _, job := range s.Jobs {
		if job.WaitReason != "" {
			out = append(out, Issue{job.Namespace, fmt.Sprintf("job %s waits: %s", job.Name, job.WaitReason), "job show " + job.Name, true})
		}
	}
	return out
}

// Issues returns why the repository fails, or has unread files; and that it is suspended, or that its last pull has other
// warnings.
func (r Repo) Issues() (out []Issue) {
	add := func(failing bool, next, format string, args ...any) {
		out = append(out, Issue{r.Namespace, fmt.Sprintf(format, args...), "repo " + next + " " + r.Name, failing})
	}
	cause := ""
	for _, c := range r.Conditions {
		switch {
		case c.Type == api.ConditionSyncStatus && c.Message != "":
			cause = ": " + c.Message
		case c.Type == api.ConditionSinkReady && c.Status == "False":
			add(true, "show", "the sink directory of %s is not up to date: %s", r.Name, c.Message)
		case c.Type == api.ConditionDrifted && c.Status == "True":
			add(false, "diff", "%s has drifted: %s", r.Name, c.Message)
		}
	}
	switch {
	case r.DeleteError != "":
		add(true, "show", "%s cannot be deleted: %s", r.Name, r.DeleteError)
	case r.Suspended:
		add(false, "resume", "%s is suspended on this agent", r.Name)
	case r.Failing():
		add(true, "show", "%s is not healthy: %s", r.Name, r.Health)
	case r.SyncState == api.StateError:
		add(true, "show", "the last pull of %s ended in error%s", r.Name, cause)
	case r.Unread.Count() > 0:
		add(true, "show", "unread files in %s: %d", r.Name, r.Unread.Count())
	case r.SyncState == api.StateWarning:
		add(false, "show", "the last pull of %s ended in warning%s", r.Name, cause)
	}
	if r.Pinned != "" && r.RolledBack {
		out = append(out, Issue{r.Namespace, fmt.Sprintf("%s is pinned to %s", r.Name, text.ShortRef(r.Pinned)),
			"repo set " + r.Name + " --unpin", false})
	}
	return out
}
