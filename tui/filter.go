package tui

import (
	"slices"
	"strings"
)

// linesKept bounds the filters that are remembered.
const linesKept = 20

// typeFilter is the state after a key while the filter is being typed. All that
// prints is text; up and down bring back filters of before, Tab completes.
func (s State) typeFilter(name, text string) State {
	before := s
	filter := &s.filters[s.screen]
	switch name {
	case "enter":
		s.typing, s.typedBack = false, 0
		if *filter != "" {
			kept := slices.DeleteFunc(slices.Clone(s.typed), func(l string) bool { return l == *filter })
			s.typed = append(kept[max(len(kept)-linesKept+1, 0):], *filter)
		}
	case "esc":
		s.typing, s.typedBack, *filter = false, 0, ""
	case "up", "down":
		back := s.typedBack + 1
		if name == "down" {
			back = s.typedBack - 1
		}
		if back < 0 || back > len(s.typed) {
			return s
		}
		if s.typedBack, *filter = back, ""; back > 0 {
			*filter = s.typed[len(s.typed)-back]
		}
	case "tab":
		if whole := complete(*filter, s.fields()); len([]rune(whole)) <= lineLength {
			*filter = whole
		}
	default:
		*filter = edit(*filter, name, text)
	}
	s.jobUID = follow(s.jobUID, keysOf(before.jobs(), jobKey), keysOf(s.jobs(), jobKey))
	s.repoKey = follow(s.repoKey, keysOf(before.repos(), repoKey), keysOf(s.repos(), repoKey))
	s.sourceUID = follow(s.sourceUID, keysOf(before.sources(), sourceKey), keysOf(s.sources(), sourceKey))
	s.changes.cursor = follow(s.changes.cursor, keysOf(before.changed(), pathOf), keysOf(s.changed(), pathOf))
	return s
}

// complete completes the last word of a filter: the name of a field, then one of
// its values. Where the value is whole already it takes the next one.
func complete(line string, fields fieldSet) string {
	at := strings.LastIndexByte(line, ' ') + 1
	head, word := line[:at], line[at:]
	name, value, is := strings.Cut(word, ":")
	if !is {
		if begun := begins(fields.names(), word); len(begun) > 0 {
			return head + begun[0] + ":"
		}
		return line
	}
	values := fields[name]
	last := strings.LastIndexByte(value, ',') + 1
	typed := value[last:]
	next := ""
	if i := slices.Index(values, typed); i >= 0 {
		next = values[(i+1)%len(values)]
	} else if begun := begins(values, typed); len(begun) > 0 {
		next = begun[0]
	} else {
		return line
	}
	return head + name + ":" + value[:last] + next
}

// Paste returns the state after text was pasted, which goes where typed text goes.
// Elsewhere it means nothing: it is no answer to a question.
func (s State) Paste(text string) State {
	switch over := s.over.(type) {
	case question:
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
