package tui

import (
	"limpet/sync/snapshot"
)

// copied puts text into the clipboard of the terminal, and shows it, so that it
// can be taken from the screen where the terminal refuses.
func (s State) copied(text string) (State, Outcome) {
	return s.say(text, false), Outcome{Copy: text}
}

// jobCommand and repoCommand are the commands that show the same as the row.
func (s State) jobCommand(verb string, j snapshot.Job) string {
	if verb == "show" && !j.Finished.IsZero() {
		return "limpet history show " + quote(j.UID)
	}
	twins := 0
	for _, other := range s.Snap.Jobs {
		if other.Name == j.Name && other.UID != j.UID {
			twins++
		}
	}
	if twins > 0 { // of several with a name the command takes the UID
		return "limpet job " + verb + " " + quote(j.UID)
	}
	return "limpet job " + verb + " " + quote(j.Name)
}

func (s State) repoCommand(verb string, r snapshot.Repo) string {
	text := "limpet repo " + verb + " " + quote(r.Name)
	for _, other := range s.Snap.Repos {
		if other.Name == r.Name && other.Namespace != r.Namespace {
			return text + " --namespace " + quote(r.Namespace)
		}
	}
	return text
}

// command is the command line that shows what is under the cursor, "" where
// there is nothing.
func (s State) command() string {
	if f := screens[s.screen].command; f != nil {
		return f(s)
	}
	if j, ok := s.selected(); ok || s.screen == screenDetail {
		if j.UID == "" {
			return ""
		}
		return s.jobCommand("show", j)
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
