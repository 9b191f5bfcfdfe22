package tui

import (
	"cmp"
	"sort"
	"strings"

	"limpet/sync/snapshot"
)

// What of a picture is an error that a person has to see.

// collect takes up what is wrong in a picture and was not in the one before, in the
// order in which it came.
func (s State) collect(before *snapshot.Snapshot) State {
	known := map[snapshot.Event]bool{}
	for _, e := range before.Events {
		if e.Level == "error" {
			known[e] = true
		}
	}
	first := before.At.IsZero()
	found := append(append(s.sickSources(before), s.sickRepos(before)...), s.sickLinks(before)...)
	for _, e := range s.Snap.Events {
		if e.Level == "error" && !known[e] {
			found = append(found, trouble{at: e.At, job: e.Job, repo: e.Repo, text: e.Text})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].at.Before(found[j].at) })
	for _, e := range found {
		e.read = first && s.Snap.At.Sub(e.at) > oldNews
		s.troubles = s.troubles.add(e)
	}
	p, api := s.Snap.Problem, s.Snap.API
	if p != "" && p != before.Problem {
		s.troubles = s.troubles.add(trouble{at: s.Snap.At, text: p})
	}
	if !api.Up && api.Error != "" && !strings.Contains(p, api.Error) && (first || before.API.Up || before.API.Error == "") {
		s.troubles = s.troubles.add(trouble{at: s.Snap.At, text: "API: " + api.Error})
	}
	return s
}

// sickRepos are the repositories that are found to be not healthy, or for another
// reason than before.
func (s State) sickRepos(before *snapshot.Snapshot) (out []trouble) {
	was := map[string]string{}
	for _, r := range before.Repos {
		if health(r) == "failing" {
			was[repoKey(r)] = sickness(r)
		}
	}
	for _, r := range s.Snap.Repos {
		if old, sick := was[repoKey(r)]; health(r) != "failing" || sick && old == sickness(r) {
			continue
		}
		at := failingSince(r)
		if at.IsZero() || at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, trouble{at: at, repo: r.Name, text: sickness(r)})
	}
	return out
}

// sickLinks are the Connections that are found to be not healthy, or for another
// reason than before.
func (s State) sickLinks(before *snapshot.Snapshot) (out []trouble) {
	was := map[string]bool{}
	for _, c := range before.IllConnections {
		was[c.Namespace+"/"+c.Name+" "+illness(c)] = true
	}
	for _, c := range s.Snap.IllConnections {
		if was[c.Namespace+"/"+c.Name+" "+illness(c)] {
			continue
		}
		at := c.Checked
		if at.After(s.Snap.At) {
			at = s.Snap.At
		}
		out = append(out, trouble{at: at, link: c.Name, text: illness(c)})
	}
	return out
}

// illness is what is wrong with a Connection.
func illness(c snapshot.Connection) string {
	return "Connection: " + cmp.Or(steady(c.Message), "it is not healthy, and the server does not say why")
}

// sickness is what is wrong with a repository that is not healthy.
func sickness(r snapshot.Repo) string {
	return cmp.Or(steady(r.Health), "it is not healthy, and the server does not say why")
}
