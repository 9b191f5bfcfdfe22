package snapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/jobs/joblog"
)

func TestActivityIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewActivity(NewHub(), JobOptions{})
		for range maxEvents + 50 {
			a.AddEvent(Event{})
		}
		a.AddEvent(Event{Text: "last"})
		for range 100 {
			a.addFinished(Job{Finished: time.Now()})
			time.Sleep(time.Second)
		}
		if n := len(a.ends); n > int(finishedFor/time.Second) {
			t.Errorf("%d ends are kept", n)
		}
		time.Sleep(finishedFor)
		a.addFinished(Job{UID: "new", Finished: time.Now()})
		got := a.read(time.Now())
		if len(got.events) != maxEvents || got.events[maxEvents-1].Text != "last" {
			t.Errorf("%d events", len(got.events))
		}
		if len(got.finished) != 1 || got.ended != 1 || got.finished[0].UID != "new" {
			t.Errorf("finished jobs: %+v", got)
		}
	})
}

// TestFinishedRow: a job that no snapshot has shown is shown whole when it ends.
func TestFinishedRow(t *testing.T) {
	t.Parallel()
	a := NewActivity(NewHub(), JobOptions{})
	at := time.Now()
	job := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"action": "pull", "repository": "r", "pull": map[string]any{"incremental": true}},
	}}
	job.SetUID("u1")
	job.SetName("r-sync")
	job.SetNamespace("default")
	job.Object["status"] = map[string]any{"started": at.Add(time.Second).UnixMilli()} // by a clock that is ahead
	last := &jobs.Running{
		UID: "u1", Job: job, Attempt: 2, Started: at.Add(-time.Second), LeaseUntil: at.Add(time.Minute),
		Results: jobs.Results{
			Branch: "main",
			RefTo:  "abc",
			Errors: []string{"401"},
			Commit: &state.Commit{Subject: "add peers", Author: "M. Ito", At: at},
			Steps:  []jobs.Step{{Text: "fetch abc", At: at, Took: time.Second}, {Text: "write", At: at}},
		},
		Lines: []joblog.Line{{At: at, Level: "info", Text: "job claimed"}},
	}
	a.Observe(jobs.Event{
		At: at, Type: jobs.EventCompleted, Level: "error", Namespace: "default", Job: "r-sync", UID: "u1", Repository: "r", Action: "pull",
		State: "error", Text: "401", Last: last,
	})
	got := a.read(at)
	if len(got.events) != 1 || got.events[0].UID != "u1" || len(got.finished) != 1 {
		t.Fatalf("%d events, %d rows", len(got.events), len(got.finished))
	}
	row := got.finished[0]
	if len(row.Log) != 1 {
		t.Errorf("%d lines of log", len(row.Log))
	}
	row.Log = nil
	want := Job{
		UID: "u1", Namespace: "default", Name: "r-sync", Repository: "r", Action: "pull", Detail: "incr", State: "error", Message: "401",
		Progress: 100, Created: row.Created, Started: at.Add(-time.Second), Finished: at, Owner: "this", Attempt: 2, Branch: "main",
		RefTo: "abc", Errors: []string{"401"},
		Commit: &Commit{Subject: "add peers", Author: "M. Ito", At: at},
		Steps:  []Step{{Text: "fetch abc", At: at, Took: time.Second}, {Text: "write", At: at}},
	}
	if have, wanted := asJSON(t, row), asJSON(t, want); have != wanted {
		t.Errorf("row %s\nwant %s", have, wanted)
	}
	if line := a.Runs.line("default/r", at); !strings.HasSuffix(line, "e") {
		t.Errorf("line %q", line)
	}
}

// TestSkippedJob: the reason is known until the job is claimed or gone.
func TestSkippedJob(t *testing.T) {
	t.Parallel()
	a := NewActivity(NewHub(), JobOptions{})
	for _, uid := range []string{"u0", "u1"} {
		a.Observe(jobs.Event{Type: jobs.EventSkipped, Namespace: "default", Job: uid, UID: uid, Text: "no such prefix"})
	}
	a.sweep(func(_, name, _ string) bool { return name == "u1" })
	if a.skipReason("u0") != "no such prefix" || a.skipReason("u1") != "" {
		t.Errorf("%q, %q", a.skipReason("u0"), a.skipReason("u1"))
	}
	if a.Observe(jobs.Event{Type: jobs.EventClaimed, UID: "u0"}); a.skipReason("u0") != "" {
		t.Error("still skipped after the claim")
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
