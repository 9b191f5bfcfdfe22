package tui

import (
	"strings"
	"time"
)

// exporting hands the person the command line that writes the rows of the history as
// JSON, all of them, and not only those that are on the screen.
func (s State) exporting() (State, Outcome) { return s.copied(exportLine(s)) }

func exportLine(s State) string {
	q, _ := historyQuery(s.filters[screenHistory], s.Now)
	text := "limpet history export"
	for _, flag := range [][2]string{{"repository", q.Repository}, {"namespace", q.Namespace}, {"action", q.Action}, {"status", strings.Join(q.States, ",")}, {"since", stamp(q.Since)}, {"until", stamp(q.Until)}} {
		if flag[1] != "" {
			text += " --" + flag[0] + " " + quote(flag[1])
		}
	}
	return text + " > history.jsonl"
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// exportRefusal says why there is no such line; "" = there is.
func exportRefusal(s State) string {
	switch q, problem := historyQuery(s.filters[screenHistory], s.Now); {
	case problem != "":
		return problem
	case q.Ref != "" || len(q.Words) > 0:
		return "an export is narrowed by repo, state, action, since and until alone"
	}
	return ""
}
