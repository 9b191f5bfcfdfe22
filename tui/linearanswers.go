package tui

import (
	"fmt"
	"strconv"
	"strings"
)

// decide takes the answer to a question. An empty line decides nothing; what is no
// yes means no.
func (l linear) decide(q question, line string) (linear, reply) {
	if line == "" {
		return l, reply{}
	}
	l.s.over = nil
	chosen := -1
	n, err := strconv.Atoi(line)
	switch {
	case q.name != "":
		if line == q.name {
			chosen = 0
		}
	case strings.EqualFold(line, "yes"):
		chosen = 0
	case len(q.choices) > 1 && err == nil && n >= 1 && n <= len(q.choices):
		chosen = n - 1
	}
	if chosen < 0 {
		return l, says("No: nothing was done.")
	}
	var out Outcome
	l.s, out = q.choices[chosen].do(l.s)
	return l.answered(out)
}

// answered says what an action of the State has led to: what it said, what it asks.
func (l linear) answered(out Outcome) (linear, reply) {
	r := reply{Outcome: out}
	r.Copy = "" // there is no clipboard here; what would be copied is said
	if l.s.toast != "" {
		text := l.s.toast
		if l.s.toastBad {
			text = "Not done: " + text
		}
		r.lines = append(r.lines, text)
		l.s.toast = ""
	}
	switch over := l.s.over.(type) {
	case question:
		r.lines = append(r.lines, over.spoken()...)
	case errorsPane:
		l.s.over = nil
		r.lines = append(r.lines, l.errors()...)
	case inquiry:
		if over.test {
			r.lines = append(r.lines, "Test of "+over.of.Name+" begins.")
		}
		l.s, r.look = over.lack(l.s)
	default:
		l.s.over = nil
	}
	return l, r
}

// spoken is a question as it is read out.
func (q question) spoken() []string {
	out := append([]string{q.title}, q.lines...)
	switch {
	case q.name != "":
		return append(out, fmt.Sprintf("Type %s to go on (%s). Anything else means no.", q.name, q.choices[0].text))
	case len(q.choices) == 1:
		return append(out, fmt.Sprintf("Type yes to go on (%s). Anything else means no.", q.choices[0].text))
	}
	for i, c := range q.choices {
		out = append(out, fmt.Sprintf("%d: %s", i+1, c.text))
	}
	return append(out, "Type a number, or yes for the first. Anything else means no.")
}
