package agent

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/source"
)

// TestPictureOfOddTimes: who may write an object may write any time into it; the picture
// can be told to dashboards all the same.
func TestPictureOfOddTimes(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	now := time.Now()
	for _, ms := range []int64{math.MaxInt64, math.MinInt64, 253_402_300_799_999, 253_402_300_800_000} {
		for _, text := range []string{"9999-12-31T23:59:59-10:00", "0000-01-01T00:00:00+10:00", "2026-01-01T00:00:00+24:00", "never"} {
			u := &object{Object: map[string]any{"status": map[string]any{
				"artifact":   map[string]any{"revision": "main@sha1:" + text, "lastUpdateTime": text},
				"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Odd", "message": "m", "lastTransitionTime": text}}}}}
			u.Object["metadata"] = map[string]any{"creationTimestamp": text, "deletionTimestamp": text}
			u.SetLabels(map[string]string{api.LabelClaim: strconv.FormatInt(ms, 10)})
			u.SetAnnotations(map[string]string{api.AnnoNotBefore: strconv.FormatInt(ms, 10), "reconcile.fluxcd.io/requestedAt": text})
			var job api.Job
			job.Status.Started, job.Status.Finished, job.Status.State = ms, ms, api.StatePending
			var repo api.Repository
			repo.Status.Health.Checked, repo.Status.Sync.Finished, repo.Status.Token.Expiration = ms, ms, ms
			repo.Status.Webhook = &api.WebhookStatus{LastEvent: ms}
			repo.Status.Conditions = []api.Condition{{Type: "Ready", Status: "False", LastTransitionTime: text}}
			rows := []any{a.paintJob(u, job), a.paintRepo(u, repo, now), source.Picture(u)}
			running := a.paintJob(u, job)
			hold(&running, jobs.Running{Started: now})
			for i, row := range append(rows, running) {
				if _, err := json.Marshal(row); err != nil {
					t.Errorf("%d, %s: row %d: %v", ms, text, i, err)
				}
			}
		}
	}
}
