package agent

import (
	"cmp"
	"strconv"
	"time"

	"limpet/sync/api"
	"limpet/sync/snapshot"
)

// paintStatus adds what only the detail of a Repository shows.
func paintStatus(row *snapshot.Repo, u *object, repo api.Repository) {
	row.UID = string(u.GetUID())
	row.Interval = time.Duration(repo.Spec.Sync.IntervalSeconds) * time.Second
	if c := repo.Spec.Connection; c != nil {
		row.Connection = c.Name
	}
	if h := repo.Status.Webhook; h != nil && (h.ID != 0 || h.UUID != "") {
		row.Webhook = &snapshot.Webhook{ID: cmp.Or(h.UUID, strconv.FormatInt(h.ID, 10)), LastEvent: api.TimeOfMillis(h.LastEvent)}
	}
	row.TokenEnds = api.TimeOfMillis(repo.Status.Token.Expiration)
	row.MaxResources = repo.Status.Quota.MaxResourcesPerRepository
	for _, c := range repo.Status.Conditions {
		shown := snapshot.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason}
		if c.Status != "True" {
			shown.Message = c.Message
			shown.Since = api.TimeOfText(c.LastTransitionTime)
		}
		row.Conditions = append(row.Conditions, shown)
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		row.Deleting, row.InTheWay = api.Time(at.Time), repo.Status.DeleteError
	}
}
