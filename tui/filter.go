package tui

import (
	"slices"
)

// maxFilters bounds the filters that are remembered.
const maxFilters = 20

// typeFilter is the state after a key while the filter is being typed. All that
// prints is text; up and down bring back filters of before, Tab completes.
func (s State) typeFilter(name, text string) State {
	before := s
	filter := &s.filters[s.screen]
	switch name {
	case "enter":
		s.typing, s.filterAt = false, 0
		if *filter != "" {
			kept := slices.DeleteFunc(slices.Clone(s.filterHistory), func(l string) bool { return l == *filter })
			s.filterHistory = append(kept[max(len(kept)-maxFilters+1, 0):], *filter)
		}
	case "esc":
		s.typing, s.filterAt, *filter = false, 0, ""
	case "up", "down":
		back := s.filterAt + 1
		if name == "down" {
			back = s.filterAt - 1
		}
		if back < 0 || back > len(s.filterHistory) {
			return s
		}
		if s.filterAt, *filter = back, ""; back > 0 {
			*filter = s.filterHistory[len(s.filterHistory)-back]
		}
	case "tab":
		if whole := complete(*filter, s.fields()); len([]rune(whole)) <= maxLine {
			*filter = whole
		}
	default:
		*filter = edit(*filter, name, text)
	}
	s.jobUID = keepCursor(s.jobUID, keysOf(before.jobs(), jobKey), keysOf(s.jobs(), jobKey))
	s.repoKey = keepCursor(s.repoKey, keysOf(before.repos(), repoKey), keysOf(s.repos(), repoKey))
	s.sourceUID = keepCursor(s.sourceUID, keysOf(before.sources(), sourceKey), keysOf(s.sources(), sourceKey))
	s.changes.cursor = keepCursor(s.changes.cursor, keysOf(before.changed(), pathOf), keysOf(s.changed(), pathOf))
	return s
}

// Paste returns the state after text was pasted, which goes where typed text goes.
// Elsewhere it means nothing: it is no answer to a question.
func (s State) Paste(text string) State {
	switch over := s.overlay.(type) {
	case confirm:
		if over.name == "" {
			return s
		}
	case palette, help:
	default:
		if over != nil || !s.typing {
			return s
		}
	}
	s, _ = s.Key("paste", text)
	return s
}
