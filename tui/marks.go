package tui

import (
	"fmt"
	"slices"

	"limpet/sync/text"
)

// maxMarks bounds the rows that a person can mark in a list: each is a request
// of its own to the agent.
const maxMarks = 100

// listHere is the list of the picture that the keys of lists mean; there is one
// where the screen has rows of the picture.
func (s State) listHere() (pane, bool) {
	switch s.screen {
	case screenOverview, screenJobs, screenRepos, screenSources:
		return s.listed(), true
	}
	return paneNone, false
}

func listRefusal(s State) string {
	if _, ok := s.listHere(); !ok {
		return "there is no list of jobs or repositories on this screen"
	}
	return ""
}

func rowRefusal(s State) string {
	if why := listRefusal(s); why != "" {
		return why
	}
	if len(s.shownKeys()) == 0 {
		return "there is nothing under the cursor"
	}
	return ""
}

// shownKeys are the rows of the list here.
func (s State) shownKeys() []string {
	switch of, ok := s.listHere(); {
	case !ok:
		return nil
	case of == paneRepos:
		return keysOf(s.repos(), repoKey)
	case of == paneSources:
		return keysOf(s.sources(), sourceKey)
	}
	return keysOf(s.jobs(), jobKey)
}

// mark marks the row under the cursor, or takes its mark away, and goes on to the
// next one.
func (s State) mark() State {
	of, _ := s.listHere()
	cursor := s.jobUID
	switch of {
	case paneRepos:
		cursor = s.repoKey
	case paneSources:
		cursor = s.sourceUID
	}
	marks := slices.Clone(s.marks[of])
	if i := slices.Index(marks, cursor); i >= 0 {
		marks = slices.Delete(marks, i, i+1)
	} else if len(marks) == maxMarks {
		return s.say(fmt.Sprintf("%d are marked; that is all that can be", maxMarks), true)
	} else {
		marks = append(marks, cursor)
	}
	s.marks[of] = marks
	return s.move(1)
}

// markAll marks all rows that are shown; where they are it takes the marks away.
func (s State) markAll() State {
	of, _ := s.listHere()
	keys := s.shownKeys()
	all := keys[:min(len(keys), maxMarks)]
	if slices.Equal(s.marks[of], all) {
		s.marks[of] = nil
		return s
	}
	s.marks[of] = slices.Clone(all)
	if len(keys) > len(all) {
		return s.say(fmt.Sprintf("the first %d of %s are marked; that is all that can be", maxMarks, text.Thousands(len(keys))), false)
	}
	return s
}

// keepMarks leaves the marks of rows out that are gone.
func (s State) keepMarks() State {
	gone := func(keys []string) func(string) bool {
		return func(k string) bool { return !slices.Contains(keys, k) }
	}
	if len(s.marks[paneJobs]) > 0 {
		s.marks[paneJobs] = slices.DeleteFunc(slices.Clone(s.marks[paneJobs]), gone(keysOf(s.Snap.Jobs, jobKey)))
	}
	if len(s.marks[paneRepos]) > 0 {
		s.marks[paneRepos] = slices.DeleteFunc(slices.Clone(s.marks[paneRepos]), gone(keysOf(s.Snap.Repos, repoKey)))
	}
	if len(s.marks[paneSources]) > 0 {
		s.marks[paneSources] = slices.DeleteFunc(slices.Clone(s.marks[paneSources]), gone(keysOf(s.Snap.Sources, sourceKey)))
	}
	return s
}

// marked are the rows of a list that are marked and shown: nothing is done to
// what a person does not see.
func marked[T any](s State, of pane, list []T, key func(T) string) (out []T) {
	if in, ok := s.listHere(); !ok || in != of || len(s.marks[of]) == 0 {
		return nil
	}
	for _, row := range list {
		if slices.Contains(s.marks[of], key(row)) {
			out = append(out, row)
		}
	}
	return out
}

// markText counts the marks of a list for its edge.
func (p *view) markText(of pane, place string) string {
	if n := len(p.s.marks[of]); n > 0 {
		return fmt.Sprintf("%d marked, %s", n, place)
	}
	return place
}
