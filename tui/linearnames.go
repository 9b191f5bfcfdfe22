package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// offer is one line of a numbered list.
type offer struct {
	text string
	do   func(linear) (linear, reply)
}

// chooseRepo finds the repository of a name, and asks where several are meant.
func (l linear) chooseRepo(name string, do func(linear, snapshot.Repo) (linear, reply)) (linear, reply) {
	var exact, begun []snapshot.Repo
	for _, r := range l.s.Snap.Repos {
		switch {
		case r.Name == name || repoKey(r) == name:
			exact = append(exact, r)
		case strings.HasPrefix(r.Name, strings.ToLower(name)):
			begun = append(begun, r)
		}
	}
	if n, err := strconv.Atoi(name); err == nil && len(exact) == 0 && n >= 1 && n <= len(l.repos) {
		exact = l.s.reposAt(l.repos[n-1])
	}
	if len(exact) == 0 {
		exact = begun
	}
	switch len(exact) {
	case 0:
		return l, says(l.unknown("repository", name, keysOf(l.s.Snap.Repos, func(r snapshot.Repo) string { return r.Name })))
	case 1:
		return do(l, exact[0])
	}
	var offers []offer
	for _, r := range exact {
		offers = append(offers, offer{fmt.Sprintf("%s in namespace %s, %s", r.Name, text.OrDash(r.Namespace), health(r)), func(l linear) (linear, reply) { return do(l, r) }})
	}
	return l.offer(offers)
}

// chooseJob does the same for a job, of those that a name may mean.
func (l linear) chooseJob(name string, found []snapshot.Job, do func(linear, snapshot.Job) (linear, reply)) (linear, reply) {
	switch len(found) {
	case 0:
		return l, says(l.unknown("job", name, keysOf(l.s.Snap.Jobs, func(j snapshot.Job) string { return j.Name })))
	case 1:
		return do(l, found[0])
	}
	var offers []offer
	for _, j := range found {
		offers = append(offers, offer{fmt.Sprintf("%s, %s, uid %s", jobWho(j), l.s.jobSentence(j), j.UID), func(l linear) (linear, reply) { return do(l, j) }})
	}
	return l.offer(offers)
}

// jobsCalled are the jobs that a name, a UID or a number may mean: of the picture, of
// the history as far as it is known, and the one that was said last.
func (l linear) jobsCalled(name string) []snapshot.Job {
	known := slices.Clone(l.s.Snap.Jobs)
	if l.s.detail != "" {
		known = append(known, *l.s.last)
	}
	for _, r := range l.s.past.rows {
		known = append(known, pastJob(r))
	}
	wanted := ""
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(l.jobs) {
		wanted = l.jobs[n-1]
	}
	var exact, begun, listed []snapshot.Job
	seen := map[string]bool{}
	for _, j := range known {
		if seen[j.UID] {
			continue
		}
		seen[j.UID] = true
		switch {
		case j.Name == name || j.UID == name || j.Namespace+"/"+j.Name == name:
			exact = append(exact, j)
		case j.UID == wanted:
			listed = append(listed, j)
		case strings.HasPrefix(j.Name, strings.ToLower(name)):
			begun = append(begun, j)
		}
	}
	for _, some := range [][]snapshot.Job{exact, listed, begun} {
		if len(some) > 0 {
			return some
		}
	}
	return nil
}

// offer asks which of several things is meant.
func (l linear) offer(offers []offer) (linear, reply) {
	shown := offers[:min(len(offers), 2*pageBlocks)]
	out := []string{"Which one? Type its number."}
	for i, o := range shown {
		out = append(out, fmt.Sprintf("%d: %s", i+1, o.text))
	}
	if rest := len(offers) - len(shown); rest > 0 {
		out = append(out, fmt.Sprintf("%s more: type more of the name.", text.Thousands(rest)))
	}
	l.offers = shown
	return l, says(out...)
}

// unknown says that there is nothing of a name, and what was probably meant.
func (l linear) unknown(what, name string, names []string) string {
	txt := fmt.Sprintf("There is no %s %s.", what, name)
	if near := nearest(name, names); near != "" {
		txt += " Did you mean " + near + "?"
	}
	return txt
}

// openJob says a job. One that is not known here is looked for in the history.
func (l linear) openJob(name string) (linear, reply) {
	switch {
	case name == "" && l.s.screen == screenDetail:
		return l.screen()
	case name == "":
		return l, says("Say which: job NAME, or job and its number in the list.")
	case len(l.jobsCalled(name)) > 0:
		return l.chooseJob(name, l.jobsCalled(name), func(l linear, j snapshot.Job) (linear, reply) {
			if len(l.s.jobsAt(j.UID)) > 0 {
				return l.visit(l.s.goJob(j.UID))
			}
			return l.visit(l.s.visit(screenDetail).takeJob(j, true))
		})
	}
	missing := l.unknown("job", name, keysOf(l.s.Snap.Jobs, func(j snapshot.Job) string { return j.Name }))
	l.waits = true
	return l, reply{look: func(ctx context.Context, src Source) func(State) State {
		page, err := src.Past(ctx, snapshot.PastQuery{Words: []string{name}, Limit: pastPage})
		if err != nil {
			return func(s State) State { return s.say(text.Clean(err.Error()), true) }
		}
		for _, r := range cleanPast(page).Rows {
			if r.Name == name {
				return func(s State) State { return s.visit(screenDetail).takeJob(pastJob(r), true) }
			}
		}
		j, err := src.PastJob(ctx, name) // it may be a UID
		if err != nil {
			return func(s State) State { return s.say(missing+" The history has none either.", true) }
		}
		return func(s State) State { return s.visit(screenDetail).takeJob(cleanJob(j), false) }
	}}
}

// openRepo says a repository.
func (l linear) openRepo(name string) (linear, reply) {
	if name == "" && l.s.screen == screenRepo {
		return l.screen()
	}
	if name == "" {
		return l, says("Say which: repository NAME, or repository and its number in the list.")
	}
	return l.chooseRepo(name, func(l linear, r snapshot.Repo) (linear, reply) { return l.visit(l.s.goRepo(repoKey(r))) })
}
