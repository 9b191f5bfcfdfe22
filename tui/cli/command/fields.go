package command

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Fields writes one object for a person, a "key  value" line for each field.
type Fields struct {
	lines  [][]string
	states []string // of the lines; "" = none
}

// Add adds a value.
func (f *Fields) Add(key, value string) { f.AddState(key, "", value) }

// AddState adds a value whose first word has the colour of a state.
func (f *Fields) AddState(key, state, value string) {
	f.lines, f.states = append(f.lines, []string{key, value}), append(f.states, state)
}

// AddSet adds a value, unless it is empty.
func (f *Fields) AddSet(key, value string) {
	if value != "" {
		f.Add(key, value)
	}
}

// AddTime adds a time, unless it is zero.
func (f *Fields) AddTime(key string, at time.Time) {
	if !at.IsZero() {
		f.Add(key, at.UTC().Format(time.RFC3339))
	}
}

// Write writes the fields with aligned values, for a screen reader as "key: value".
func (f *Fields) Write(w io.Writer) {
	if !IsAccessible(w) {
		io.WriteString(w, Align(f.lines, ColorsOf(w).ofFields(f.states)))
		return
	}
	for _, line := range f.lines {
		key := strings.Replace(line[0], "!", "problem", 1)
		if key != "" {
			key += ": "
		}
		fmt.Fprintln(w, key+cleanCell(line[1]))
	}
}
