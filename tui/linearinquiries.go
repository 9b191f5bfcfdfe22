package tui

import (
	"strings"

	"limpet/sync/snapshot"
)

// test has a repository tested, and says what was found.
func (l linear) test(name string) (linear, reply) {
	switch {
	case name == "" && len(l.s.reposMeant()) == 1 && (l.s.screen == screenRepo || l.s.screen == screenDetail):
		return l.inquire(repoSubject(l.s.reposMeant()[0]), true)
	case name == "":
		return l, says("Say which: test NAME, or test and its number in the list.")
	case trimFold(name, "source ") != name:
		return l.command("test " + name)
	}
	return l.chooseRepo(name, func(l linear, r snapshot.Repo) (linear, reply) { return l.inquire(repoSubject(r), true) })
}

// yaml says an object of the API: what was said last, or what a name means.
func (l linear) yaml(name string) (linear, reply) {
	if name == "" {
		at := l.s.screen == screenRepo || l.s.screen == screenDetail || l.s.screen == screenSource
		if of := l.s.subjects(false); at && len(of) == 1 {
			return l.inquire(of[0], false)
		}
		return l, says("Say which: yaml NAME, yaml job NAME, or yaml source NAME.")
	}
	if job := trimFold(name, "job "); job != name {
		return l.chooseJob(job, l.jobsCalled(job), func(l linear, j snapshot.Job) (linear, reply) { return l.inquire(jobSubject(j), false) })
	}
	if source := trimFold(name, "source "); source != name {
		return l.chooseSource(source, func(l linear, from snapshot.Source) (linear, reply) { return l.inquire(sourceSubject(from), false) })
	}
	return l.chooseRepo(name, func(l linear, r snapshot.Repo) (linear, reply) { return l.inquire(repoSubject(r), false) })
}

// inquire asks the source for a test, or for the object. Its answer is said when it comes.
func (l linear) inquire(of snapshot.Subject, test bool) (linear, reply) {
	why := l.s.noTests()
	if !test {
		why = l.s.noYAML(of)
	}
	if why != "" {
		return l, says("Not done: " + why)
	}
	l.s = l.s.inquire(of, test)
	return l.answered(Outcome{})
}

// told says an answer.
func (l linear) told(q inquiry) (linear, reply) {
	what := q.of.Kind + " " + q.of.Name
	if q.test {
		what = "Test of " + q.of.Name
	}
	if q.fault != "" {
		return l, says(what + ": this cannot be told: " + q.fault)
	}
	if !q.test {
		var lines [][]string
		for _, line := range q.text {
			if strings.TrimSpace(line) != "" { // there is nothing to hear
				lines = append(lines, []string{line})
			}
		}
		return l.page([]string{what + " (" + q.line + "):"}, lines)
	}
	out := []string{what + ":"}
	for _, f := range q.found {
		out = append(out, strings.TrimSuffix(f.Name+", "+f.Result+": "+f.Detail, ": "))
	}
	return l, says(out...)
}

// edit says the command line that changes a repository.
func (l linear) edit(name string) (linear, reply) {
	if of := l.s.reposMeant(); name == "" && len(of) == 1 && (l.s.screen == screenRepo || l.s.screen == screenDetail) {
		return l, says(l.s.editCommand(repoSubject(of[0])))
	}
	if source := trimFold(name, "source "); source != name {
		return l.chooseSource(source, func(l linear, from snapshot.Source) (linear, reply) {
			return l, says(l.s.editCommand(sourceSubject(from)))
		})
	}
	if name == "" {
		return l, says("Say which: edit NAME, or edit and its number in the list.")
	}
	return l.chooseRepo(name, func(l linear, r snapshot.Repo) (linear, reply) { return l, says(l.s.editCommand(repoSubject(r))) })
}

// export says the command line that writes the history, narrowed by the fields of a
// filter, or as the history was that was said last.
func (l linear) export(filter string) (linear, reply) {
	s := l.s
	if filter != "" || s.screen != screenHistory {
		s.filters[screenHistory] = filter
	}
	if why := notExported(s); why != "" {
		return l, says("Not done: " + why)
	}
	return l, says(exportLine(s))
}
