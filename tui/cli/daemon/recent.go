package daemon

import (
	"context"
	"encoding/json"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
)

const (
	// recentRows is the number of jobs in the detail of a repository.
	recentRows = 50
	// recentPage and recentMax bound the reads for its last day: one pull a minute makes 1,440 records.
	recentPage = 250
	recentMax  = 2000
)

// RecentRuns implements screen.Source.
func (c recordHistory) RecentRuns(ctx context.Context, namespace, repository string) (snapshot.RecentRuns, error) {
	page, err := c.HistoryPage(ctx, snapshot.HistoryQuery{Namespace: namespace, Repository: repository, Limit: recentRows})
	if err != nil {
		return snapshot.RecentRuns{}, err
	}
	now := time.Now()
	day := snapshot.NewRecentDay(now)
	q := state.Query{Namespace: namespace, Repository: repository, Since: now.Add(-snapshot.RecentHours * time.Hour), Limit: recentPage}
	for read := 0; ; {
		records, err := c.desk.History(ctx, q)
		if err != nil {
			return snapshot.RecentRuns{}, err
		}
		for _, r := range records {
			var created, updated, deleted int64
			var status api.JobStatus
			if json.Unmarshal(r.Status, &status) == nil { // else the record has no more
				for _, s := range status.Summary {
					created, updated, deleted = created+s.Create, updated+s.Update, deleted+s.Delete
				}
			}
			day.Add(rowOf(r), snapshot.RunLetter(r.State), created, updated, deleted)
		}
		if len(records) < recentPage {
			break
		}
		last := records[len(records)-1]
		if read += len(records); read >= recentMax {
			day.Since = last.Finished
			break
		}
		q.Before = last.Cursor()
	}
	return snapshot.RecentRuns{Rows: page.Rows, Day: day.Done()}, nil
}
