package screen

import (
	"strings"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// testSnapshot returns the snapshot that the screens of the documentation show.
func testSnapshot() *snapshot.Snapshot {
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	return &snapshot.Snapshot{
		Seq: 7, At: noon,
		Agent: snapshot.Agent{Host: "edge-07", PID: 4121, Version: "1.0.0", Started: at(50 * time.Hour), Drivers: 4, Claims: 3,
			StorePath: "/var/lib/limpet/limpet.db", StoreSize: 61 << 20, History: 41288, RSS: 38 << 20, CPU: 0.4, HistoryKept: 168 * time.Hour,
			Namespace: "stacks-1234"},
		API: snapshot.API{Server: "https://grafana.example:6446", Up: true, Synced: true, Latency: 38 * time.Millisecond, Since: at(time.Hour)},
		Jobs: []snapshot.Job{
			{UID: "5c1e9c54", Namespace: "default", Name: "team-dash-sync", Repository: "team-dash", Action: "pull", Detail: "full",
				State: "working", Message: "replicating dashboards/network", Progress: 71, Done: 205, Total: 288, Created: at(50 * time.Second),
				Started: at(42 * time.Second), Owner: "this", LeaseUntil: noon.Add(18 * time.Second), RenewAt: noon.Add(8 * time.Second),
				Attempt: 1, MaxAttempt: 3, Branch: "main", RefFrom: strings.Repeat("a1b2c3d4", 5), RefTo: strings.Repeat("4e55f01a", 5),
				Summary: []snapshot.Summary{{Kind: "Folder", Total: 12, Update: 1, Noop: 11},
					{Kind: "Dashboard", Total: 276, Create: 14, Update: 3, Noop: 174, Warn: 1, Error: 1}},
				Errors:   []string{"dashboards/net/bgp.json: invalid schemaVersion: want int, got \"39\""},
				Warnings: []string{"dashboards/net/old.json: folder has no _folder.json, title from path"},
				Commit:   &snapshot.Commit{Subject: "bgp: add peers panel", Author: "M. Ito", At: at(3 * time.Minute)},
				Steps: []snapshot.Step{{Text: "look up branch:main", At: at(42 * time.Second), Took: 300 * time.Millisecond},
					{Text: "fetch 4e55f01", At: at(41700 * time.Millisecond), Took: 11300 * time.Millisecond},
					{Text: "compare with the server", At: at(30400 * time.Millisecond), Took: 400 * time.Millisecond},
					{Text: "replicating changes", At: at(30 * time.Second)}},
				Log: []snapshot.Event{{At: at(3 * time.Second), Level: "info", Text: "created dashboards/net/core.json"},
					{At: at(2 * time.Second), Level: "error", Text: "rejected dashboards/net/bgp.json: 422"},
					{At: at(time.Second), Level: "info", Text: "created dashboards/net/edge.json"}}},
			{UID: "9x1ab", Namespace: "default", Name: "infra-alerts-sync", Repository: "infra-alerts", Action: "pull", Detail: "incr",
				State: "working", Progress: 22, Done: 4, Total: 18, Created: at(10 * time.Second), Started: at(9 * time.Second), Owner: "this",
				LeaseUntil: noon.Add(25 * time.Second), Attempt: 1},
			{UID: "q0p4", Namespace: "default", Name: "lab-west-move", Repository: "lab-west", Action: "move", State: "working",
				Message: "34 files", Progress: -1, Created: at(3 * time.Second), Started: at(2 * time.Second), Owner: "this",
				LeaseUntil: noon.Add(29 * time.Second), Attempt: 1},
			{UID: "44dd1", Namespace: "default", Name: "team-dash-pr-481", Repository: "team-dash", Action: "pr", Detail: "#481",
				State: "working", Progress: 98, Created: at(80 * time.Second), Started: at(70 * time.Second), Owner: "other", Attempt: 1},
			{UID: "k2m9", Namespace: "default", Name: "lab-west-push", Repository: "lab-west", Action: "push", State: "pending",
				Created: at(31 * time.Second), Attempt: 1},
			{UID: "z8z8", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
				State: "pending", Created: at(30 * time.Second), Attempt: 2},
			{UID: "y7c1", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
				State: "error", Message: "401 bad credentials", Created: at(40 * time.Second), Started: at(40 * time.Second),
				Finished: at(39 * time.Second), Owner: "this", Attempt: 3, Errors: []string{"401 bad credentials"}},
		},
		Repos: []snapshot.Repo{
			{UID: "r1", Namespace: "default", Name: "infra-alerts", Title: "Infra", Type: "gitlab", URL: "https://gitlab.example/infra.git",
				Enabled: true, Healthy: true, Checked: at(time.Minute), SyncState: "working", LastRef: strings.Repeat("9c0ffeee", 5),
				Synced: at(5 * time.Minute), Resources: 18, Runs: "....s...s...s...s...w..s"},
			{UID: "r2", Namespace: "default", Name: "lab-east", Title: "Lab East", Type: "git", URL: "https://git.lab/obs/east.git",
				Enabled: true, Checked: at(39 * time.Second), Health: "401 bad credentials", SyncState: "error",
				LastRef: strings.Repeat("5d41aa90", 5), Synced: at(3 * time.Hour), Next: noon.Add(time.Minute), Resources: 288,
				Runs:   "ssssssssssssssssssseeeee",
				Branch: "main", Path: "grafana/", Target: "folder", Interval: time.Minute, Connection: "lab",
				Webhook: &snapshot.Webhook{ID: "4471", LastEvent: at(185 * time.Minute)}, TokenEnds: noon.Add(52 * time.Minute),
				MaxResources: 1000, Contents: []snapshot.Content{{Resource: "folders", Count: 12}, {Resource: "dashboards", Count: 276}},
				Conditions: []snapshot.Condition{{Type: "NamespaceQuota", Status: "True", Reason: "WithinQuota"},
					{Type: "Ready", Status: "False", Since: at(182 * time.Minute), Reason: "AuthenticationFailed",
						Message: "secure.token: the host does not take it; renew the token in the settings of the repository"},
					{Type: "ResourceQuota", Status: "True", Reason: "WithinQuota"}, {Type: "SyncStatus", Status: "True", Reason: "SyncSuccessful"}}},
			{UID: "r3", Namespace: "default", Name: "lab-west", Title: "Lab West", Type: "git", URL: "https://git.lab/obs/west.git",
				Enabled: true, SyncState: "success", LastRef: strings.Repeat("77be2100", 5), Synced: at(9 * time.Minute),
				Next: noon.Add(51 * time.Second), Resources: 301, Runs: "ssssssssssssssssssssssss"},
			{UID: "r4", Namespace: "default", Name: "team-dash", Title: "Team", Type: "github", URL: "https://github.com/acme/dash",
				Enabled: true, Healthy: true, Checked: at(time.Minute), SyncState: "working", LastRef: strings.Repeat("a1b2c3d4", 5),
				Synced: at(42 * time.Second), Branch: "main", Resources: 288, Contents: []snapshot.Content{{Resource: "folders", Count: 12},
					{Resource: "dashboards", Count: 276}}, Runs: "s.s.s.s.s.s.s.s.s.s.s.sw"},
		},
		Events: []snapshot.Event{
			{At: at(9 * time.Second), Level: "info", Job: "infra-alerts-sync", Text: "claimed, attempt 1"},
			{At: at(39 * time.Second), Level: "error", Job: "lab-east-sync", Text: "401 bad credentials"},
		},
	}
}

// jobPhases returns a draining agent with jobs in all phases: an undelivered result, a backoff, a
// dead letter.
func jobPhases() snapshot.Snapshot {
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	s := *testSnapshot()
	s.Agent.Draining, s.Agent.Busy, s.Agent.Claims = at(4*time.Minute), 1, 1
	s.Agent.Controllers = snapshot.Controllers{Mode: "on", State: snapshot.ControllersStandby, Holder: "lab-b_X"}
	s.Jobs = []snapshot.Job{
		{UID: "5c1e9c54", Namespace: "default", Name: "team-dash-sync", Repository: "team-dash", Action: "pull", Detail: "full",
			State: "success", Message: "replicating changes", Progress: 100, Created: at(5 * time.Minute), Started: at(4 * time.Minute),
			Undelivered: at(3 * time.Minute), Owner: "this", Attempt: 1, MaxAttempt: 3},
		{UID: "z8z8", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
			State: "pending", Message: "attempt 1 of 3: the git host does not answer; tried again in 20s", Created: at(30 * time.Second),
			RetryAt: noon.Add(18 * time.Second), Attempt: 2, MaxAttempt: 3},
		{UID: "y7c1", Namespace: "default", Name: "lab-west-sync", Repository: "lab-west", Action: "pull", Detail: "incr", State: "dead",
			Message: "the git host does not answer (3 attempts)", Created: at(90 * time.Second), Started: at(40 * time.Second),
			Finished: at(39 * time.Second), Owner: "this", Attempt: 3, MaxAttempt: 3},
	}
	return s
}

// failingSnapshot returns a snapshot with errors, one of them long and one repeated.
func failingSnapshot() *snapshot.Snapshot {
	s := testSnapshot()
	s.Problem = "the clock of this host is 4m12s behind that of the server: nothing is claimed; set it (timedatectl set-ntp true)"
	long := "resolve https://git.example.com/team/a-repository-with-a-long-name.git: the host name is not known here: no " +
		"such host (check the host in the url and the name server); the last commit that could be had is 5d41aa9, of three hours ago"
	s.Events = append(s.Events, snapshot.Event{At: noon.Add(-20 * time.Second), Level: "error", Repo: "lab-east", Text: long},
		snapshot.Event{At: noon.Add(-10 * time.Second), Level: "error", Job: "lab-east-sync", Text: "401 bad credentials"})
	return s
}

func shown(snap *snapshot.Snapshot, caps widget.Caps) State {
	snap.Counts = snapshot.Count(snap.Jobs, snap.At)
	s := NewState("attached to daemon 4121", caps, noon)
	s.Now = noon
	return s.Show(snap)
}

func press(s State, keys ...string) State {
	for _, k := range keys {
		txt := ""
		if len(k) == 1 {
			txt = k
		}
		s, _ = s.Key(k, txt)
	}
	return s
}
