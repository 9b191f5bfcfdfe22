package tui

import (
	"fmt"
	"maps"
	"slices"

	"limpet/sync/snapshot"
)

// tellRepos tells what has become of the repositories.
func tellRepos(was, s State) (all []told) {
	before := make(map[string]snapshot.Repo, len(was.Snap.Repos))
	for _, r := range was.Snap.Repos {
		before[repoKey(r)] = r
	}
	for _, r := range s.Snap.Repos {
		old, known := before[repoKey(r)]
		delete(before, repoKey(r))
		say := func(w weight, key, format string, args ...any) {
			all = append(all, told{w, key, "repository " + r.Name + ": " + fmt.Sprintf(format, args...)})
		}
		if !known {
			say(tellOther, "", "is new")
		}
		if h := health(r); h == "failing" && (health(old) != h || sickness(old) != sickness(r)) {
			say(tellError, "health "+repoKey(r)+sickness(r), "failing, %s. Next: repository %s", sickness(r), r.Name)
		} else if known && h == "healthy" && health(old) == "failing" {
			say(tellAgent, "", "healthy again")
		}
		switch {
		case known && r.Suspended && !old.Suspended:
			say(tellAgent, "", "suspended on this agent")
		case known && !r.Suspended && old.Suspended:
			say(tellAgent, "", "resumed")
		}
		if known && !r.Deleting.IsZero() && old.Deleting.IsZero() {
			say(tellOther, "", "is being deleted")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		all = append(all, told{weight: tellOther, text: "repository " + before[key].Name + ": is gone"})
	}
	return all
}
