package agent

import "limpet/sync/repos"

// Limits bound Repositories and their pulls.
type Limits struct {
	// Repositories of a namespace and Resources of one Repository; 0 means no limit. nil means no limit on the embedded
	// API, and elsewhere the limit in the status of each Repository, which another controller may set.
	Repositories, Resources *int64
	// IncrementalChanges is the limit of changes for an incremental pull; 0 means no limit.
	IncrementalChanges int
	// Parallel is the number of concurrent writes of one job; 0 means 10.
	Parallel int
}

// quota returns the limits for the controller of Repositories.
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
