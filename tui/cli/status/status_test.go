package status

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/tui/cli/command"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
)

// TestStatusTellsWhy: the reason of a Repository that is not healthy is its health, not
// a pull that there never was.
func TestStatusTellsWhy(t *testing.T) {
	t.Parallel()
	s := &report{Live: &snapshot.Snapshot{API: snapshot.API{Up: true}, Repos: []snapshot.Repo{
		{Namespace: "default", Name: "well", Checked: time.Now(), Healthy: true, SyncState: "success"},
		{Namespace: "default", Name: "ill", Checked: time.Now(), Health: "spec.git.url: nothing listens there", SyncState: "error"},
		{Namespace: "default", Name: "unknown", SyncState: "error"},
		{Namespace: "default", Name: "empty", Checked: time.Now(), Healthy: true, SyncState: "error"},
		{Namespace: "default", Name: "odd", Checked: time.Now(), Healthy: true, SyncState: "warning"},
		{Namespace: "default", Name: "illandodd", Checked: time.Now(), Health: "no", SyncState: "warning"},
		{Namespace: "default", Name: "new"},
		{Namespace: "default", Name: "paused", Checked: time.Now(), Health: "no", SyncState: "success", Suspended: true},
	}}}
	s.judge(new(command.Env))
	want := []string{
		"ill is not healthy: spec.git.url: nothing listens there: limpet repo show ill",
		"the last pull of unknown ended in error: limpet repo show unknown",
		"the last pull of empty ended in error: limpet repo show empty",
		"illandodd is not healthy: no: limpet repo show illandodd",
	}
	if !slices.Equal(s.Why, want) || s.OK {
		t.Errorf("%q", s.Why)
	}
	if want := []string{"the last pull of odd ended in warning: limpet repo show odd",
		"paused is suspended on this agent: limpet repo resume paused"}; !slices.Equal(s.Warnings, want) {
		t.Errorf("%q", s.Warnings)
	}
	var f command.Fields
	var out strings.Builder
	addRepos(&f, s.Live.Repos)
	if f.Write(&out); strings.TrimSpace(out.String()) != "repositories   8: 1 success, 1 warning, 4 error, 1 pending, 1 suspended" {
		t.Errorf("%q", out.String())
	}
}

// TestStatusWithoutAgent: a state file without an agent is a failure, also with nothing left to do.
func TestStatusWithoutAgent(t *testing.T) {
	t.Parallel()
	repos := []snapshot.Repo{{Namespace: "default", Name: "ill", Checked: time.Now(), Health: "no"},
		{Namespace: "default", Name: "odd", SyncState: "warning", Conditions: []snapshot.Condition{{Type: api.ConditionSyncStatus,
			Message: "a.json: no"}}}}
	ill := "ill is not healthy: no: limpet repo show ill"
	for _, tt := range []struct {
		left *leftReport
		why  []string
	}{
		{nil, []string{"no agent holds the state file: limpet --daemon"}},
		{&leftReport{Repos: repos}, []string{ill, "no agent holds the state file: limpet --daemon"}},
		{&leftReport{Jobs: leftJobs{Pending: 1}}, []string{"no agent holds the state file, and 1 job left: limpet --daemon"}},
		{&leftReport{Jobs: leftJobs{Resting: 1, Claimed: 2, Oldest: time.Now().Add(-3 * time.Hour)}},
			[]string{"no agent holds the state file, and 3 jobs left, the oldest since 3h: limpet --daemon"}},
	} {
		s := &report{OK: true, Left: tt.left}
		s.judge(new(command.Env))
		if s.OK || !slices.Equal(s.Why, tt.why) {
			t.Errorf("%+v: %v %q", tt.left, s.OK, s.Why)
		}
		if tt.left != nil && len(tt.left.Repos) != len(s.Warnings)*2 {
			t.Errorf("%+v: %q", tt.left, s.Warnings)
		}
	}
	now := time.Now()
	var jobs leftJobs
	for _, change := range []func(*unstructured.Unstructured){
		func(*unstructured.Unstructured) {},
		func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.LabelClaim: "1795180000000"}) },
		func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{api.AnnoNotBefore: fmt.Sprint(now.Add(time.Minute).UnixMilli())})
		},
		func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{api.AnnoNotBefore: fmt.Sprint(now.Add(-time.Minute).UnixMilli())})
		},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		made := metav1.NewTime(now.Add(-time.Duration(jobs.Pending) * time.Hour).Truncate(time.Second))
		u.SetCreationTimestamp(made)
		change(u)
		jobs.add(u, now)
	}
	if want := (leftJobs{Pending: 2, Resting: 1, Claimed: 1, Oldest: now.Add(-time.Hour).Truncate(time.Second).UTC()}); jobs != want {
		t.Errorf("%+v, want %+v", jobs, want)
	}
}

// TestStatusTry: the next command has a line of its own.
func TestStatusTry(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printStatus(new(command.Env), &out, &report{Why: []string{"a: b: limpet repo show a", "c"}})
	if got := out.String(); !strings.HasSuffix(got, "!            a: b\n             try: limpet repo show a\n!            c\n") {
		t.Errorf("%s", got)
	}
}

// TestStatusMarks: what is news to who watches the status, and what counts up by itself.
func TestStatusMarks(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	picture := func(change func(*snapshot.Snapshot)) *report {
		live := &snapshot.Snapshot{At: at, Seq: 1, API: snapshot.API{Up: true, Since: at}, Agent: snapshot.Agent{Draining: at},
			Counts: snapshot.Counts{Working: 1, Done: 3},
			Repos:  []snapshot.Repo{{Namespace: "default", Name: "well", Healthy: true, Checked: at}}}
		if change != nil {
			change(live)
		}
		rep := &report{Live: live}
		rep.judge(new(command.Env))
		return rep
	}
	for name, tt := range map[string]struct {
		change func(*snapshot.Snapshot)
		news   bool
	}{
		"time":             {func(s *snapshot.Snapshot) { s.At, s.Seq = at.Add(time.Hour), 9 }, false},
		"a job has ended":  {func(s *snapshot.Snapshot) { s.Counts.Done++ }, false},
		"a job works":      {func(s *snapshot.Snapshot) { s.Counts.Working++ }, true},
		"a job waits":      {func(s *snapshot.Snapshot) { s.Counts.Pending++ }, true},
		"a result waits":   {func(s *snapshot.Snapshot) { s.Counts.Undelivered++ }, true},
		"a repository":     {func(s *snapshot.Snapshot) { s.Repos = append(s.Repos, snapshot.Repo{Name: "new"}) }, true},
		"one that is ill":  {func(s *snapshot.Snapshot) { s.Repos[0].Healthy = false }, true},
		"the API is away":  {func(s *snapshot.Snapshot) { s.API.Up = false }, true},
		"it is drained no": {func(s *snapshot.Snapshot) { s.Agent.Draining = time.Time{} }, true},
		"a reason":         {func(s *snapshot.Snapshot) { s.Problem = "no" }, true},
		"drained again":    {func(s *snapshot.Snapshot) { s.Agent.Draining = at.Add(time.Hour) }, false},
	} {
		if got := picture(tt.change).mark() != picture(nil).mark(); got != tt.news {
			t.Errorf("%s: news %v, want %v", name, got, tt.news)
		}
	}
	away := &report{Why: []string{"it does not answer"}}
	if away.mark() == picture(nil).mark() || away.mark() != (&report{Why: []string{"it is gone"}}).mark() {
		t.Error("that nobody is there is news once")
	}
}

// TestStatusLine: each figure that is not zero, and the worst in one word.
func TestStatusLine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	live := &snapshot.Snapshot{API: snapshot.API{Up: true}, Counts: snapshot.Counts{Working: 1, Pending: 2, Resting: 3, Elsewhere: 4,
		Undelivered: 5, Done: 6},
		Repos: []snapshot.Repo{{Name: "unchecked"}, {Name: "ill", Checked: now}, {Name: "bad", SyncState: "error"}}}
	rep := &report{OK: true, Live: live}
	want := "ok, 1 working, 2 pending, 3 waiting to retry, 4 on other agents, 5 not delivered yet, 3 repositories, 2 failing"
	if got := rep.figures(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	rep.Why = []string{"a", "b", "c\x1b[2J\n", "d", "e"}
	if got := rep.figures(); got != want+": a; b; c[2J ; and 2 more" || !slices.Equal(rep.Why, []string{"a", "b", "c\x1b[2J\n", "d", "e"}) {
		t.Errorf("%q of %q", got, rep.Why)
	}
	for _, tt := range []struct {
		change func()
		want   string
	}{
		{func() { rep.OK = false }, "degraded"}, {func() { live.Agent.Draining = now }, "drained"}, {func() { live.API.Up = false }, "offline"},
		{func() { rep.Live = nil }, "unreachable"},
	} {
		if tt.change(); rep.word() != tt.want {
			t.Errorf("%s, want %s", rep.word(), tt.want)
		}
	}
	if got := rep.figures(); !strings.HasPrefix(got, "unreachable: a; b") {
		t.Errorf("%s", got)
	}
	if got := withoutNil(&snapshot.Snapshot{}); got.Jobs == nil || got.Repos == nil || got.Events == nil {
		t.Errorf("a list is null: %+v", got)
	}
}

// TestOrphansUncounted: where the objects without a repository cannot be counted, the rest of the
// status stands.
func TestOrphansUncounted(t *testing.T) {
	t.Parallel()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e, s := &command.Env{Flags: new(command.Flags), Log: slog.New(slog.DiscardHandler)}, &command.Session{File: store}
	if s.Client, err = e.Connect(t.Context(), s, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { s.Client.Close(); s.Embedded.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep := &report{}
	rep.countOrphans(ctx, e, s)
	if len(rep.Warnings) != 1 || !strings.HasSuffix(rep.Warnings[0], ": limpet doctor") {
		t.Errorf("%q", rep.Warnings)
	}
}
