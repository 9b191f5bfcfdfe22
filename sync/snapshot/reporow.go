package snapshot

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/text"
)

// readRepository decodes a Repository and redacts its URL, nil when it is invalid.
func readRepository(u *unstructured.Unstructured) *api.Repository {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	if b := repo.Spec.Block(); b != nil {
		b.URL = text.Redact(b.URL)
	}
	return &repo
}

// RepoOf returns the row of a Repository; ok is false for an invalid one.
func RepoOf(u *unstructured.Unstructured) (row Repo, ok bool) {
	repo := readRepository(u)
	if repo == nil {
		return Repo{}, false
	}
	return repoRow(u, *repo), true
}

// Failing reports whether the last health check of the repository failed.
func (r Repo) Failing() bool { return !r.Checked.IsZero() && !r.Healthy }

// repoRow returns the row of a Repository.
func repoRow(u *unstructured.Unstructured, repo api.Repository) Repo {
	spec, status := repo.Spec, repo.Status
	row := Repo{
		UID:          string(u.GetUID()),
		Namespace:    u.GetNamespace(),
		Name:         u.GetName(),
		Title:        spec.Title,
		Type:         spec.Type,
		Pinned:       repo.Pinned(),
		RolledBack:   repo.RolledBack,
		Target:       spec.Sync.Target,
		Sink:         u.GetAnnotations()[api.AnnoSinkDir],
		Enabled:      spec.Sync.Enabled,
		Interval:     time.Duration(spec.Sync.IntervalSeconds) * time.Second,
		Healthy:      status.Health.Healthy,
		Checked:      api.TimeOfMillis(status.Health.Checked),
		Health:       strings.Join(status.Health.Message, "; "),
		SyncState:    status.PullState(),
		SyncJob:      status.Sync.Job,
		LastRef:      status.Sync.LastRef,
		Synced:       api.TimeOfMillis(status.Sync.Finished),
		TokenEnds:    api.TimeOfMillis(status.Token.Expiration),
		MaxResources: status.Quota.MaxResourcesPerRepository,
	}
	if repo.GitRef != "" {
		row.ReadOnly = "it has the annotation " + api.AnnoGitRef
	} else if len(spec.Workflows) == 0 {
		row.ReadOnly = "it has no spec.workflows"
	}
	if b := spec.Block(); b != nil {
		row.URL, row.Branch, row.Path = b.URL, cmp.Or(repo.GitRef, b.Branch), b.Path
		if mirrors, err := auth.Mirrors(repo.GitMirrors, b.URL); err == nil { // an invalid list is reported by the health check
			row.Mirrors = strings.Join(mirrors, " ")
		}
	}
	if c := spec.Connection; c != nil {
		row.Connection = c.Name
	}
	if h := status.Webhook; h != nil && (h.ID != 0 || h.UUID != "") {
		row.Webhook = &Webhook{ID: cmp.Or(h.UUID, strconv.FormatInt(h.ID, 10)), LastEvent: api.TimeOfMillis(h.LastEvent)}
	}
	for _, s := range status.Stats {
		row.Resources += s.Count
		row.Contents = append(row.Contents, Content{Resource: s.Resource, Count: s.Count})
	}
	for _, c := range status.Conditions {
		row.Conditions = append(row.Conditions, conditionRow(c))
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		row.Deleting = api.Time(at.Time)
		var all []string
		for _, e := range status.Blocked() {
			all = append(all, e.String())
		}
		row.DeleteError = text.Line(strings.Join(all, "; "), 1<<10)
	}
	return row
}

// conditionRow returns the row of a condition. One that is met has no message.
func conditionRow(c api.Condition) Condition {
	row := Condition{Type: c.Type, Status: c.Status, Reason: c.Reason}
	if c.Status != "True" {
		row.Message = c.Message
		row.Since = api.TimeOfText(c.LastTransitionTime)
	}
	return row
}
