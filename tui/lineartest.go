package tui

import (
	"strings"

	"limpet/sync/view"
)

// test has a repository tested, and says what was found.
func (l linear) test(name string) (linear, reply) {
	switch {
	case name == "" && len(l.s.reposMeant()) == 1 && (l.s.screen == screenRepo || l.s.screen == screenDetail):
		return l.inquire(repoSubject(l.s.reposMeant()[0]))
	case name == "":
		return l, says("Say which: test NAME, or test and its number in the list.")
	case trimFold(name, "source ") != name:
		return l.command("test " + name)
	}
	return l.chooseRepo(name, func(l linear, r view.Repo) (linear, reply) { return l.inquire(repoSubject(r)) })
}

// inquire asks the source for a test. Its answer is said when it comes.
func (l linear) inquire(of view.Subject) (linear, reply) {
	if why := l.s.noTests(); why != "" {
		return l, says("Not done: " + why)
	}
	l.s = l.s.inquire(of, true)
	return l.answered(Outcome{})
}

// spoken is the answer as it is read out.
func (q inquiry) spoken() []string {
	if q.fault != "" {
		return []string{"Test of " + q.of.Name + ": this cannot be told: " + q.fault}
	}
	out := []string{"Test of " + q.of.Name + ":"}
	for _, f := range q.found {
		out = append(out, strings.TrimSuffix(f.Name+", "+f.Result+": "+f.Detail, ": "))
	}
	return out
}
