package snapshot

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/source"
)

func TestOrderOfJobs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ordered := []Job{
		{UID: "working", State: "working", Created: now},
		{UID: "elsewhere", Owner: "other", Created: now.Add(time.Second)},
		{UID: "first pending", State: "pending", Created: now.Add(-time.Hour)},
		{UID: "last pending", State: "pending", Created: now},
		{UID: "just done", State: "error", Finished: now},
		{UID: "done before", State: "success", Finished: now.Add(-time.Second)},
	}
	for i := range ordered {
		for k := range ordered {
			if got := compareJobs(ordered[i], ordered[k]); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("%q against %q: %d", ordered[i].UID, ordered[k].UID, got)
			}
		}
	}
}

// TestTopJobs: the first of many jobs, in the order of the list.
func TestTopJobs(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	for _, limit := range []int{0, 1, 10, 500} {
		var all []queued
		top := topJobs{limit: limit}
		for i := range 300 {
			q := queued{row: Job{Name: fmt.Sprint("job", i), Created: time.Unix(int64(r.IntN(20)), 0), Owner: []string{"", "other"}[r.IntN(2)]}}
			all = append(all, q)
			top.offer(q)
		}
		slices.SortFunc(all, compareQueued)
		if got := top.first(); !reflect.DeepEqual(got, all[:min(limit, len(all))]) {
			t.Errorf("limit %d: %d jobs, or others", limit, len(got))
		}
	}
}

func TestMemo(t *testing.T) {
	t.Parallel()
	m := newMemo[int]()
	object := func() kube.Object { return kube.ObjectOf(new(unstructured.Unstructured)) }
	a, b, c := object(), object(), object()
	made := 0
	compute := func(*unstructured.Unstructured) int { made++; return made }
	round := func(objects ...kube.Object) (out []int) {
		for _, o := range objects {
			out = append(out, m.Get(o, compute), m.Get(o, compute))
		}
		m.EndRound()
		return out
	}
	round(a, b)
	if out := round(a, b); made != 2 || out[0] != 1 || out[3] != 2 {
		t.Errorf("%d made, %v", made, out)
	}
	round(a, c) // b was replaced by c
	if made != 3 || len(m.before) != 2 {
		t.Errorf("%d made, %d kept", made, len(m.before))
	}
	if round(); len(m.before) != 0 {
		t.Errorf("%d kept of nothing", len(m.before))
	}
}

// TestRowsOfOddTimes: any time in an object can be encoded for a dashboard.
func TestRowsOfOddTimes(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{math.MaxInt64, math.MinInt64, 253_402_300_799_999, 253_402_300_800_000} {
		for _, at := range []string{"9999-12-31T23:59:59-10:00", "0000-01-01T00:00:00+10:00", "2026-01-01T00:00:00+24:00", "never"} {
			u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
				"artifact":   map[string]any{"revision": "main@sha1:" + at, "lastUpdateTime": at},
				"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Odd", "message": "m", "lastTransitionTime": at}}}}}
			u.Object["metadata"] = map[string]any{"creationTimestamp": at, "deletionTimestamp": at}
			u.SetLabels(map[string]string{api.LabelClaim: strconv.FormatInt(ms, 10)})
			u.SetAnnotations(map[string]string{api.AnnoNotBefore: strconv.FormatInt(ms, 10), "reconcile.fluxcd.io/requestedAt": at})
			var job api.Job
			job.Status.Started, job.Status.Finished, job.Status.State = ms, ms, api.StatePending
			var repo api.Repository
			repo.Status.Health.Checked, repo.Status.Sync.Finished, repo.Status.Token.Expiration = ms, ms, ms
			repo.Status.Webhook = &api.WebhookStatus{LastEvent: ms}
			repo.Status.Conditions = []api.Condition{{Type: "Ready", Status: "False", LastTransitionTime: at}}
			running := jobRow(u, job, JobOptions{Expiry: time.Minute})
			addRunning(&running, jobs.Running{Started: time.Now()})
			for i, row := range []any{jobRow(u, job, JobOptions{Expiry: time.Minute}), repoRow(u, repo), source.FromObject(u), running} {
				if _, err := json.Marshal(row); err != nil {
					t.Errorf("%d, %s: row %d: %v", ms, at, i, err)
				}
			}
		}
	}
}

// TestSinceOfAnUnmetCondition: the time is read in any zone, and left out where it cannot be read.
func TestSinceOfAnUnmetCondition(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	for at, since := range map[string]time.Time{"2026-11-20T11:00:00Z": want, "2026-11-20T12:00:00+01:00": want, "yesterday": {}, "": {}} {
		got := conditionRow(api.Condition{Type: "Ready", Status: "False", Message: "why", LastTransitionTime: at})
		if got.Since != since || got.Message != "why" {
			t.Errorf("%q: %+v, want %s", at, got, since)
		}
	}
}

// TestLinks: addresses that a browser follows are shown, the most useful first, without secrets.
func TestLinks(t *testing.T) {
	t.Parallel()
	got := Links(map[string]string{
		"repositoryURL":     "https://git.lab/a",
		"newPullRequestURL": "https://me:canary-secret@git.lab/a/new",
		"compareURL":        "javascript:alert(1)",
		"sourceURL":         "",
		"otherURL":          "https://git.lab/b",
	})
	if len(got) != 2 || got[0].Name != "new pull request" || got[1].Name != "repository" || got[1].URL != "https://git.lab/a" {
		t.Fatalf("%+v", got)
	}
	if strings.Contains(got[0].URL, "canary") || !strings.HasSuffix(got[0].URL, "git.lab/a/new") {
		t.Errorf("%s", got[0].URL)
	}
}
