package agent

import "limpet/sync/repos"

// Limits bound what Repositories may hold, and what a pull of theirs does.
type Limits struct {
	// Repositories of a namespace and Resources of one Repository; 0 = any number,
	// nil = not said: any number on the embedded API, and elsewhere what the status
	// of each Repository states, where somebody else may have the say.
	Repositories, Resources *int64
	// IncrementalChanges is how many changes a pull looks at alone before it compares
	// everything; 0 = any number.
	IncrementalChanges int
	// Parallel is how many writes are under way at once inside one job; 0 = 10.
	Parallel int
}

// quota is the part that a controller of Repositories watches over.
func (l Limits) quota(embedded bool) repos.Quota {
	limit := func(said *int64) int64 {
		switch {
		case said != nil:
			return *said
		case embedded:
			return 0
		}
		return repos.Stated
	}
	return repos.Quota{Repositories: limit(l.Repositories), Resources: limit(l.Resources)}
}
