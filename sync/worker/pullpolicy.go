package worker

import (
	"fmt"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
)

// A pull that is asked for changes only looks at everything all the same where
// changes do not tell enough. Source: Grafana's policy for incremental syncs,
// which its controller asks; here it is the pull that has the commits.

// incremental reports whether the pull may look at changes only: it was asked
// to, there is a commit to compare with, the spec has not changed since the
// controller of the Repository last looked at it, and the last pull has left
// nothing out that no later change would bring up again.
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

// wantsAll is why these changes want a look at everything, "" for no reason. most
// is how many changes may be looked at alone; 0 = any number.
func wantsAll(diff []git.Change, most int) string {
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
