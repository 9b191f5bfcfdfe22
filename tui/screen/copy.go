package screen

import (
	"fmt"
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// copied copies text to the clipboard of the terminal. It also shows the text, for terminals
// that refuse the copy.
func (s State) copied(text string) (State, Outcome) {
	return s.showToast(text, false), Outcome{Copy: text}
}

// jobCommand and repoCommand return the commands that show the object of a row.
func (s State) jobCommand(verb string, j snapshot.Job) string {
	if verb == "show" && !j.Finished.IsZero() {
		return "limpet history show " + widget.Quote(j.UID)
	}
	twins := 0
	for _, other := range s.Snap.Jobs {
		if other.Name == j.Name && other.UID != j.UID {
			twins++
		}
	}
	if twins > 0 { // the UID selects one of several jobs with the same name
		return "limpet job " + verb + " " + widget.Quote(j.UID)
	}
	return "limpet job " + verb + " " + widget.Quote(j.Name)
}

func (s State) repoCommand(verb string, r snapshot.Repo) string {
	text := "limpet repo " + verb + " " + widget.Quote(r.Name)
	for _, other := range s.Snap.Repos {
		if other.Name == r.Name && other.Namespace != r.Namespace {
			return text + " --namespace " + widget.Quote(r.Namespace)
		}
	}
	return text
}

// command returns the command line that shows the object under the cursor, "" when there is
// none.
func (s State) command() string {
	if f := screens[s.nav.screen].command; f != nil {
		return f(s)
	}
	if at := s.selection(); at.job != nil {
		if at.job.UID == "" {
			return ""
		}
		return s.jobCommand("show", *at.job)
	}
	if rows := s.targetRepos(); len(rows) > 0 {
		return s.repoCommand("show", rows[0])
	}
	return ""
}

func commandRefusal(s State) string {
	if s.command() == "" {
		return "there is nothing under the cursor"
	}
	return ""
}

// exporting copies the command line that exports all rows of the history as JSON, beyond those
// on the screen.
func (s State) exporting() (State, Outcome) { return s.copied(exportLine(s)) }

func exportLine(s State) string {
	q, _ := historyQuery(s.input.filters[screenHistory], s.Now)
	text := "limpet history export"
	for _, flag := range [][2]string{{"repository", q.Repository}, {"namespace", q.Namespace}, {"action", q.Action},
		{"status", strings.Join(q.States, ",")}, {"since", stamp(q.Since)}, {"until", stamp(q.Until)}} {
		if flag[1] != "" {
			text += " --" + flag[0] + " " + widget.Quote(flag[1])
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

// exportRefusal returns why there is no such command line; "" = there is one.
func exportRefusal(s State) string {
	switch q, problem := historyQuery(s.input.filters[screenHistory], s.Now); {
	case problem != "":
		return problem
	case q.Ref != "" || len(q.Words) > 0:
		return "an export is narrowed by repo, state, action, since and until alone"
	}
	return ""
}

// links returns the web addresses of the object under the cursor.
func (s State) links() []snapshot.Link {
	if s.listed() == paneSources {
		return s.sourceLinks()
	}
	if at := s.selection(); at.job != nil && len(at.job.URLs) > 0 {
		return at.job.URLs
	}
	if rows := s.targetRepos(); len(rows) == 1 && strings.HasPrefix(rows[0].URL, "http") {
		return []snapshot.Link{{Name: "repository", URL: rows[0].URL}}
	}
	return nil
}

func linkRefusal(s State) string {
	if len(s.links()) == 0 {
		return "no web address is known here"
	}
	return ""
}

// copyLink copies an address; the next press copies the next one.
func (s State) copyLink() (State, Outcome) {
	all := s.links()
	l := all[s.linkAt%len(all)]
	s.linkAt = (s.linkAt + 1) % len(all)
	text := l.Name + ": " + l.URL
	if len(all) > 1 {
		text += fmt.Sprintf(" (u: %s)", all[s.linkAt].Name)
	}
	return s.showToast(text, false), Outcome{Copy: l.URL}
}

// commit returns the commit of the object under the cursor, "" = none.
func (s State) commit() string {
	if s.listed() == paneSources {
		if rows := s.targetSources(); len(rows) == 1 {
			return rows[0].Commit()
		}
		return ""
	}
	if at := s.selection(); at.job != nil {
		return at.job.RefTo
	}
	if rows := s.targetRepos(); len(rows) == 1 {
		return rows[0].LastRef
	}
	return ""
}

func commitRefusal(s State) string {
	if s.commit() == "" {
		return "no commit is known here"
	}
	return ""
}
