package snapshot

import "slices"

// sameJob, sameRepo and sameSource report whether two rows are equal. They run for
// each row of each snapshot, so they compare field by field, the ones that change
// most first; a test checks that none is missing. Times are compared by their bits:
// one moment in two forms costs a row that is sent for nothing.

func sameJob(a, b *Job) bool {
	return a.State == b.State && a.Message == b.Message && a.Progress == b.Progress && a.Done == b.Done && a.Total == b.Total &&
		a.LeaseUntil == b.LeaseUntil && a.RenewAt == b.RenewAt && a.Owner == b.Owner && a.WaitReason == b.WaitReason &&
		a.RetryAt == b.RetryAt && a.Undelivered == b.Undelivered && a.Started == b.Started && a.Finished == b.Finished &&
		a.Attempt == b.Attempt && a.MaxAttempt == b.MaxAttempt && a.Priority == b.Priority &&
		a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name && a.Repository == b.Repository &&
		a.Action == b.Action && a.Detail == b.Detail && a.Created == b.Created &&
		a.RefFrom == b.RefFrom && a.RefTo == b.RefTo && a.Branch == b.Branch &&
		slices.Equal(a.Summary, b.Summary) && slices.Equal(a.Errors, b.Errors) && slices.Equal(a.Warnings, b.Warnings) &&
		slices.Equal(a.URLs, b.URLs) && slices.Equal(a.Steps, b.Steps) && sameValue(a.Commit, b.Commit) && sameLines(a.Log, b.Log)
}

func sameRepo(a, b *Repo) bool {
	return a.Checked == b.Checked && a.SyncState == b.SyncState && a.SyncJob == b.SyncJob && a.Synced == b.Synced && a.Next == b.Next &&
		a.Healthy == b.Healthy && a.Health == b.Health && a.LastRef == b.LastRef && a.Runs == b.Runs && a.Suspended == b.Suspended &&
		a.Resources == b.Resources && a.MaxResources == b.MaxResources && a.TokenEnds == b.TokenEnds && a.Deleting == b.Deleting &&
		a.DeleteError == b.DeleteError && a.Enabled == b.Enabled && a.Interval == b.Interval &&
		a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name && a.Title == b.Title && a.Type == b.Type &&
		a.URL == b.URL && a.Mirrors == b.Mirrors && a.Branch == b.Branch && a.Path == b.Path && a.Target == b.Target && a.Connection == b.Connection &&
		sameValue(a.Webhook, b.Webhook) && slices.Equal(a.Conditions, b.Conditions) && slices.Equal(a.Contents, b.Contents)
}

// sameValue reports whether both pointers are nil or point to equal values.
func sameValue[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sameSource(a, b *Source) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Message == b.Message && a.Since == b.Since && a.Behind == b.Behind &&
		a.Looked == b.Looked && a.Waiting == b.Waiting && a.Asked == b.Asked && a.Handled == b.Handled && a.Suspended == b.Suspended &&
		a.Deleting == b.Deleting && a.Verified == b.Verified && a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name &&
		a.URL == b.URL && a.Ref == b.Ref && a.Provider == b.Provider && a.Verify == b.Verify && a.Interval == b.Interval &&
		sameValue(a.Artifact, b.Artifact) &&
		slices.Equal(a.Includes, b.Includes) && slices.Equal(a.Conditions, b.Conditions)
}
