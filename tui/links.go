package tui

import (
	"fmt"
	"strings"

	"limpet/sync/snapshot"
)

// links are the web addresses of what is under the cursor.
func (s State) links() []snapshot.Link {
	if s.listed() == paneSources {
		return s.sourceLinks()
	}
	if j, ok := s.selected(); (ok || s.screen == screenDetail) && len(j.URLs) > 0 {
		return j.URLs
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
	return s.say(text, false), Outcome{Copy: l.URL}
}

// commit is that of what is under the cursor, "" = it has none.
func (s State) commit() string {
	if s.listed() == paneSources {
		if rows := s.targetSources(); len(rows) == 1 {
			return rows[0].Commit()
		}
		return ""
	}
	if j, ok := s.selected(); ok || s.screen == screenDetail {
		return j.RefTo
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
