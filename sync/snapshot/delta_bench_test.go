package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkDelta: what a change costs with a thousand jobs and a thousand
// repositories, beside the whole picture: three jobs work and one log goes on.
func BenchmarkDelta(b *testing.B) {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	was := &Snapshot{Seq: 1, At: at}
	for i := range 1000 {
		was.Jobs = append(was.Jobs, Job{UID: fmt.Sprintf("0d9c2f4e-1111-4222-8333-%012d", i), Namespace: "stacks-1234",
			Name: fmt.Sprintf("site-%04d-sync", i), Repository: fmt.Sprintf("site-%04d", i),
			Action: "pull", Detail: "incr", State: "pending", Created: at, MaxAttempt: 3, Attempt: 1})
		was.Repos = append(was.Repos, Repo{UID: fmt.Sprintf("1d9c2f4e-1111-4222-8333-%012d", i), Namespace: "stacks-1234",
			Name: fmt.Sprintf("site-%04d", i), Title: "Dashboards of a site", Type: "git",
			URL: "https://git.example.com/sites/dashboards.git", Branch: "main", Path: "grafana/", Target: "folder", Enabled: true, Healthy: true,
			Checked: at, SyncState: "success",
			LastRef: "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4", Synced: at, Runs: strings.Repeat("s", 24)})
	}
	for i := range 200 {
		was.Events = append(was.Events, Event{At: at, Level: "info", Job: "site-0001-sync", Text: fmt.Sprint("applied dashboards/network/", i,
			".json")})
	}
	was.Jobs[0].Log = slices.Clone(was.Events)
	is := *was
	is.Seq, is.At = 2, at.Add(time.Second)
	is.Jobs, is.Repos = slices.Clone(was.Jobs), slices.Clone(was.Repos)
	for i := range 3 {
		is.Jobs[i].State, is.Jobs[i].Done, is.Jobs[i].Message = "working", 40, "replicating dashboards/network"
	}
	is.Jobs[0].Log = append(slices.Clone(was.Events[1:]), Event{At: at, Level: "info", Text: "applied"})
	whole, err := json.Marshal(&is)
	if err != nil {
		b.Fatal(err)
	}
	part, err := json.Marshal(Diff(was, &is))
	if err != nil {
		b.Fatal(err)
	}
	if len(part)*100 > len(whole) {
		b.Errorf("a change has %d bytes, the picture %d", len(part), len(whole))
	}
	b.Run("diff", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			json.Marshal(Diff(was, &is))
		}
		b.ReportMetric(float64(len(part)), "line-B")
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d := new(Delta)
			if err := json.Unmarshal(part, d); err != nil {
				b.Fatal(err)
			}
			if _, err := Apply(was, d); err != nil {
				b.Fatal(err)
			}
		}
	})
}
