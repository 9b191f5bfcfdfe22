package tui

import "slices"

// toldOtherwise says that a trouble is one that has another sentence: the end of its
// job, the health of a repository, how a source of Flux does, the API that is away, a daemon that does not answer.
func (s State) toldOtherwise(e trouble) bool {
	if e.source != "" {
		return true
	}
	for _, j := range s.Snap.Jobs {
		if j.Name == e.job && (e.text == j.Message && !j.Finished.IsZero() || slices.Contains(j.Errors, e.text)) {
			return true
		}
	}
	for _, r := range s.Snap.Repos {
		if e.job == "" && r.Name == e.repo && health(r) == "failing" && sickness(r) == e.text {
			return true
		}
	}
	return e.who() == "" && (e.text == "API: "+s.Snap.API.Error || e.text == s.Snap.Problem || e.text == s.Gone)
}

// sentence is a trouble with what to do next.
func (e trouble) sentence() string {
	next := "limpet doctor, in another terminal"
	switch {
	case e.job != "":
		next = "job " + e.job
	case e.source != "":
		next = "source " + e.source
	case e.repo != "":
		next = "repository " + e.repo
	case e.link != "":
		next = e.next() + ", in another terminal"
	}
	who := e.who()
	if who != "" {
		who += ": "
	}
	return who + "error, " + e.text + ". Next: " + next
}

// counts are the times of all troubles, by their id.
func (t troubles) counts() map[uint64]int {
	out := make(map[uint64]int, len(t.list))
	for _, e := range t.list {
		out[e.id] = e.times
	}
	return out
}
