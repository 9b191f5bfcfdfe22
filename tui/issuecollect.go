package tui

import (
	"cmp"
	"sort"
	"strings"

	"limpet/sync/snapshot"
)

// What of a picture is an error that a person has to see.

// collectIssues takes up what is wrong in a picture and was not in the one before, in the
// order in which it came.
func (s State) collectIssues(before *snapshot.Snapshot) State {
	known := map[snapshot.Event]bool{}
	for _, e := range before.Events {
		if e.Level == "error" {
			known[e] = true
		}
	}
	first := before.At.IsZero()
	found := append(append(s.sourceIssues(before), s.repoIssues(before)...), s.connectionIssues(before)...)
	for _, e := range s.Snap.Events {
		if e.Level == "error" && !known[e] {
			found = append(found, issue{at: e.At, job: e.Job, repo: e.Repo, text: e.Text})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].at.Before(found[j].at) })
	for _, e := range found {
		e.read = first && s.Snap.At.Sub(e.at) > readAfter
		s.issues = s.issues.add(e)
	}
	p, api := s.Snap.Problem, s.Snap.API
	if p != "" && p != before.Problem {
		s.issues = s.issues.add(issue{at: s.Snap.At, text: p})
	}
	if !api.Up && api.Error != "" && !strings.Contains(p, api.Error) && (first || before.API.Up || before.API.Error == "") {
		s.issues = s.issues.add(issue{at: s.Snap.At, text: "API: " + api.Error})
	}
	return s
}

// repoIssues are the repositories that are found to be not healthy, or for another
// reason than before.
func (s State) repoIssues(before *snapshot.Snapshot) (out []issue) {
	was := map[string]string{}
	for _, r := range before.Repos {
		if health(r) == "failing" {
			was[repoKey(r)] = repoProblem(r)
		}
	}
	for _, r := range s.Snap.Repos {
		if old, sick := was[repoKey(r)]; health(r) != "failing" || sick && old == repoProblem(r) {
			continue
		}
		at := failingSince(r)
		if at.IsZero() || at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, repo: r.Name, text: repoProblem(r)})
	}
	return out
}

// connectionIssues are the Connections that are found to be not healthy, or for another
// reason than before.
func (s State) connectionIssues(before *snapshot.Snapshot) (out []issue) {
	was := map[string]bool{}
	for _, c := range before.IllConnections {
		was[c.Namespace+"/"+c.Name+" "+connectionProblem(c)] = true
	}
	for _, c := range s.Snap.IllConnections {
		if was[c.Namespace+"/"+c.Name+" "+connectionProblem(c)] {
			continue
		}
		at := c.Checked
		if at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, issue{at: at, link: c.Name, text: connectionProblem(c)})
	}
	return out
}

// connectionProblem is what is wrong with a Connection.
func connectionProblem(c snapshot.Connection) string {
	return "Connection: " + cmp.Or(withoutLocalPorts(c.Message), "it is not healthy, and the server does not say why")
}

// repoProblem is what is wrong with a repository that is not healthy.
func repoProblem(r snapshot.Repo) string {
	return cmp.Or(withoutLocalPorts(r.Health), "it is not healthy, and the server does not say why")
}
