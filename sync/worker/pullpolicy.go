package worker

import (
	"fmt"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
)

// An incremental pull becomes a full one where the changes are not sufficient.
// Source: Grafana's policy for incremental syncs, which its controller applies;
// here the pull applies it, because it has the commits.

// incremental reports whether the pull may be incremental: the job requests it,
// there is a commit to compare with, the controller has observed the present
// spec, and the last pull has not left out objects for the quota, which no later
// change would bring up again.
func (r *pull) incremental(last string) bool {
	o := r.Job.Spec.Pull
	if o == nil || !o.Incremental || last == "" {
		return false
	}
	for _, c := range r.Repository.Status.Conditions {
		if c.Type == api.ConditionSyncStatus && c.Reason == api.ReasonSyncQuotaExceeded {
			return false
		}
	}
	seen := r.Repository.Status.ObservedGeneration
	return seen == 0 || seen == r.Repo.GetGeneration()
}

// fullPullReason returns the reason for which these changes require a full pull; "" for
// none. most is the maximum number of changes of an incremental pull; 0 = no limit.
func fullPullReason(diff []git.Change, most int) string {
	if most > 0 && len(diff) > most {
		return fmt.Sprintf("%d changes are more than %d", len(diff), most)
	}
	var gone []string
	for _, c := range diff {
		switch c.Type {
		case git.ChangeDeleted:
			gone = append(gone, c.Path)
		case git.ChangeRenamed:
			gone = append(gone, c.From)
		}
	}
	if dir, is := resources.LostMarker(gone); is {
		return fmt.Sprintf("directory %q lost the file that stands for it", "/"+dir)
	}
	return ""
}
