package repos

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
)

// at is the present of the tables.
var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return at.Add(-d).UnixMilli() }

// inOrder is a Repository that was pulled ten seconds ago and wants nothing; change
// alters what is known of it.
func inOrder(change func(*facts)) *facts {
	f := &facts{now: at, uid: "9f1f4d4c-98d7-b745-3ce8-7d0908a8bfc8", generation: 2, interval: time.Minute}
	f.repo.Spec.Type = "git"
	f.repo.Spec.Sync = api.SyncSpec{Enabled: true, IntervalSeconds: 60}
	f.repo.Status.ObservedGeneration = 2
	f.repo.Status.Health = api.HealthState{Healthy: true, Checked: ago(10 * time.Second)}
	f.repo.Status.Sync = api.SyncStatus{State: "success", Job: "r-sync", Started: ago(11 * time.Second), Finished: ago(10 * time.Second),
		LastRef: "aaaaaaaaaa"}
	if change != nil {
		change(f)
	}
	return f
}

// old makes the last pull so old that the interval is over, whatever the place.
func old(f *facts) { f.repo.Status.Sync.Finished = ago(2 * time.Minute) }

func TestTrigger(t *testing.T) {
	t.Parallel()
	quota := func(f *facts) { f.quota = Quota{Repositories: 1}; f.repo.Status.Quota.MaxRepositories = 1 }
	blocked := func(f *facts) {
		f.repo.Status.Conditions = []api.Condition{{Type: "Ready", Status: "True"}, {Type: "NamespaceQuota", Status: "False"}}
	}
	for _, c := range []struct {
		rule string
		want string
		set  []func(*facts)
	}{
		{"none → leave", "", nil},
		{"blocked_over_quota comes first", triggerBlocked, []func(*facts){quota, blocked, old, func(f *facts) { f.count, f.generation = 2, 3 }}},
		{"a blocked one is left between two checks", "", []func(*facts){quota, blocked, old, func(f *facts) { f.count = 2 }}},
		{"over_quota before spec_changed", triggerOverQuota, []func(*facts){quota, old, func(f *facts) { f.count, f.generation = 2, 3 }}},
		{"as many as allowed are not over", "", []func(*facts){quota, func(f *facts) { f.count = 1 }}},
		{"spec_changed before resync_interval: generation ≠ observedGeneration", triggerSpec,
			[]func(*facts){old, func(f *facts) { f.generation = 3 }}},
		{"resync_interval before health_stale", triggerResync,
			[]func(*facts){old, func(f *facts) { f.repo.Status.Health.Checked = ago(time.Hour) }}},
		{"health_stale before triggerUnblock", triggerHealth,
			[]func(*facts){blocked, func(f *facts) { f.repo.Status.Health.Checked = ago(time.Hour) }}},
		{"triggerUnblock before token_generation", triggerUnblock, []func(*facts){blocked, func(f *facts) { f.token = &tokenFacts{} }}},
		{"token_generation before quota_changed", triggerToken, []func(*facts){func(f *facts) { f.token, f.quota.Resources = &tokenFacts{}, 7 }}},
		{"triggerUnblock before quota_changed", triggerUnblock, []func(*facts){blocked, func(f *facts) { f.quota.Resources = 7 }}},
		{"quota_changed", triggerQuota, []func(*facts){func(f *facts) { f.quota.Resources = 7 }}},
	} {
		f := inOrder(func(f *facts) {
			for _, set := range c.set {
				set(f)
			}
		})
		if got := f.due().trigger(); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestHealthIsDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule   string
		health api.HealthState
		spec   bool
		want   bool
	}{
		{"never checked", api.HealthState{}, false, true},
		{"spec changed", api.HealthState{Healthy: true, Checked: ago(time.Second)}, true, true},
		{"age > 5 min when healthy", api.HealthState{Healthy: true, Checked: ago(5*time.Minute + time.Millisecond)}, false, true},
		{"not at 5 min", api.HealthState{Healthy: true, Checked: ago(5 * time.Minute)}, false, false},
		{"age > 1 min when unhealthy", api.HealthState{Checked: ago(time.Minute + time.Millisecond)}, false, true},
		{"not at 1 min", api.HealthState{Checked: ago(time.Minute)}, false, false},
		{"a stamp of the future is no age", api.HealthState{Healthy: true, Checked: ago(-24 * time.Hour)}, false, true},
	} {
		if got := healthDue(c.health, c.spec, at); got != c.want {
			t.Errorf("%s: %t", c.rule, got)
		}
	}
}

func TestNextHealth(t *testing.T) {
	t.Parallel()
	ill := healthResult{code: 503, errors: []api.FieldError{{Detail: "away"}}}
	for _, c := range []struct {
		rule  string
		old   api.HealthState
		found healthResult
		write bool
	}{
		{"never checked", api.HealthState{}, healthResult{}, true},
		{"fresh guard: healthy and checked < 30 s ago → timestamp is kept", api.HealthState{Healthy: true, Checked: ago(29 * time.Second)},
			healthResult{}, false},
		{"the flag is another", api.HealthState{Healthy: true, Checked: ago(time.Second)}, ill, true},
		{"the message is another", api.HealthState{Checked: ago(time.Second), Message: []string{"gone"}}, ill, true},
		{"the same message, but of a webhook", api.HealthState{Checked: ago(time.Second), Error: "hook", Message: []string{"away"}}, ill, true},
		{"the same within its window", api.HealthState{Checked: ago(59 * time.Second), Error: "health", Message: []string{"away"}}, ill, false},
		{"age past its window, ill", api.HealthState{Checked: ago(61 * time.Second), Error: "health", Message: []string{"away"}}, ill, true},
		{"within its window, healthy", api.HealthState{Healthy: true, Checked: ago(4 * time.Minute)}, healthResult{}, false},
		{"age past its window, healthy", api.HealthState{Healthy: true, Checked: ago(301 * time.Second)}, healthResult{}, true},
	} {
		h, write := nextHealth(c.old, c.found, at)
		if write != c.write || write && (h.Checked != at.UnixMilli() || h.Healthy != c.found.ok() || (h.Error == "health") == h.Healthy) {
			t.Errorf("%s: %+v %t", c.rule, h, write)
		}
	}
}

func TestResyncIsDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule string
		want bool
		set  func(*facts)
	}{
		{"never started (finished 0 and state empty): no", false, func(f *facts) { f.repo.Status.Sync = api.SyncStatus{} }},
		{"interval not over", false, nil},
		{"interval over", true, old},
		{"no sync wanted", false, func(f *facts) { old(f); f.repo.Spec.Sync.Enabled = false }},
		{"state working: no", false, func(f *facts) { old(f); f.repo.Status.Sync.State = "working" }},
		{"state pending: no, it is in flight", false, func(f *facts) { old(f); f.repo.Status.Sync.State = "pending" }},
		{"a job is there", false, func(f *facts) { old(f); f.jobExists = true }},
		{"pending or working and the job no longer exists: yes", true, func(f *facts) { f.repo.Status.Sync.State = "working"; f.jobLost = true }},
		{"a pull is owed", true, func(f *facts) { f.pullOwed = true }},
		{"objects may be lost", true, func(f *facts) { f.dataLost = true }},
		{"asked a moment ago, pulled long ago", false, func(f *facts) { old(f); f.askedAt = at.Add(-time.Second) }},
		{"finished in ten years, by a clock that was wrong", true,
			func(f *facts) { f.repo.Status.Sync.Finished = at.AddDate(10, 0, 0).UnixMilli() }},
	} {
		if got := inOrder(c.set).resyncDue(); got != c.want {
			t.Errorf("%s: %t", c.rule, got)
		}
	}
}

// leftOut makes it so that the last pull left something out for a limit of was, and
// that the limit is another now.
func leftOut(f *facts, was, is int64) {
	f.repo.Status.Quota.MaxResourcesPerRepository, f.quota.Resources = was, is
	f.repo.Status.Conditions = []api.Condition{{Type: "SyncStatus", Status: "False", Reason: "SyncQuotaExceeded"}}
}

// TestStatedQuota: a limit that is not ours is the one that the status states.
func TestStatedQuota(t *testing.T) {
	t.Parallel()
	stated := api.QuotaStatus{MaxRepositories: 10, MaxResourcesPerRepository: 100}
	for _, c := range []struct{ ours, want Quota }{
		{Quota{Stated, Stated}, Quota{10, 100}},
		{Quota{0, 0}, Quota{0, 0}},
		{Quota{3, Stated}, Quota{3, 100}},
		{Quota{Stated, 4}, Quota{10, 4}},
	} {
		if got := c.ours.orStated(stated); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.ours, got, c.want)
		}
	}
}

// TestStrategy goes through the ten cases, and those between them.
func TestStrategy(t *testing.T) {
	t.Parallel()
	const none, full, incremental = "none", "full", "incremental"
	for _, c := range []struct {
		rule  string
		want  string
		asks  bool // the remote
		ill   bool // now
		ref   string
		moved bool
		err   error
		set   func(*facts)
	}{
		{rule: "1 sync disabled", want: none, set: func(f *facts) { old(f); f.repo.Spec.Sync.Enabled = false; f.generation = 3 }},
		{rule: "2 blocked by quota", want: none, set: func(f *facts) { old(f); f.quota.Repositories, f.count = 1, 2 }},
		{rule: "3 unhealthy", want: none, ill: true, set: func(f *facts) { f.generation = 3 }},
		{rule: "4 just became healthy", want: full, set: func(f *facts) { f.repo.Status.Health.Healthy = false }},
		{rule: "5 observedGeneration < 1", want: full, set: func(f *facts) { f.repo.Status = api.RepositoryStatus{} }},
		{rule: "6 generation changed", want: full, set: func(f *facts) { f.generation = 3 }},
		{rule: "6 but a pull of everything began after the change", want: none, set: func(f *facts) { f.generation, f.pulledAfter = 3, true }},
		{rule: "6 and a pull of everything began before the change", want: full, set: func(f *facts) { f.generation = 3 }},
		{rule: "6 and a pull of changes began after the change", want: full, set: func(f *facts) {
			f.generation, f.pulledAfter, f.repo.Status.Sync.Incremental = 3, true, true
		}},
		{rule: "8 latest ref cannot be read", want: incremental, asks: true, err: errors.New("away"), set: old},
		{rule: "9 latest ref == lastRef", want: none, asks: true, ref: "aaaaaaaaaa", set: old},
		{rule: "9 but that pull failed", want: full, asks: true, ref: "aaaaaaaaaa",
			set: func(f *facts) { old(f); f.repo.Status.Sync.State = "error" }},
		{rule: "10 otherwise", want: incremental, asks: true, ref: "bbbbbbbbbb", set: old},
		{rule: "interval not due", want: none},
		{rule: "the job of the last pull is gone", want: full, set: func(f *facts) { f.jobLost, f.repo.Status.Sync.State = true, "pending" }},
		{rule: "a pull is owed", want: full, set: func(f *facts) { f.pullOwed = true }},
		{rule: "objects may be lost", want: full, set: func(f *facts) { f.dataLost = true }},
		{rule: "some were left out and more are allowed now", want: full, set: func(f *facts) { leftOut(f, 3, 4) }},
		{rule: "some were left out and any number is allowed now", want: full, set: func(f *facts) { leftOut(f, 3, 0) }},
		{rule: "some were left out and fewer are allowed now", want: none, set: func(f *facts) { leftOut(f, 3, 2) }},
		{rule: "some were left out, still", want: none, set: func(f *facts) { leftOut(f, 3, 3) }},
		{rule: "the keys of signers are others now", want: incremental, set: func(f *facts) { f.keysChanged = true }},
		{rule: "the keys of signers are others now, of one that is not pulled", want: none,
			set: func(f *facts) { f.keysChanged = true; f.repo.Spec.Sync.Enabled = false }},
		{rule: "9 but the tag was made anew", want: incremental, asks: true, ref: "aaaaaaaaaa",
			moved: true, set: old},
		{rule: "none were left out and more are allowed now", want: none,
			set: func(f *facts) { leftOut(f, 3, 4); f.repo.Status.Conditions = nil }},
	} {
		f, asked := inOrder(c.set), false
		got := none
		if r := strategy(f, f.due(), !c.ill, func() (string, bool, error) { asked = true; return c.ref, c.moved, c.err }); r != nil {
			if got = full; r.incremental {
				got = incremental
			}
			if r.reason == "" {
				t.Errorf("%s: no reason", c.rule)
			}
		}
		if got != c.want || asked != c.asks {
			t.Errorf("%s: %s (asked: %t)", c.rule, got, asked)
		}
	}
}

// oneJob is a watch that shows one job.
type oneJob struct {
	lister
	job *unstructured.Unstructured
}

func (o oneJob) Get(_, name string) (*unstructured.Unstructured, bool) {
	return o.job, name == o.job.GetName()
}

// TestUnservedJobBlocksNoPull: the name of pulls may be taken by a job that nobody claims.
func TestUnservedJobBlocksNoPull(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		action, name, claim string
		age                 time.Duration
		exists              bool
		again               time.Duration
	}{
		"a pull":              {action: "pull", name: "a-sync", age: time.Hour, exists: true},
		"a pull beside":       {action: "pull", name: "a-pull", age: time.Hour, exists: true},
		"unserved":            {action: "render", name: "a-sync", age: time.Hour},
		"unserved and new":    {action: "render", name: "a-sync", age: 10 * time.Second, exists: true, again: 50 * time.Second},
		"claimed by another":  {action: "render", name: "a-sync", claim: "1", age: time.Hour, exists: true},
		"of another's making": {action: "render", name: "a-migrate", age: time.Hour},
	} {
		job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": c.action, "repository": "a"}}}
		job.SetName(c.name)
		job.SetCreationTimestamp(metav1.NewTime(now.Add(-c.age)))
		if c.claim != "" {
			job.SetLabels(map[string]string{api.LabelClaim: c.claim})
		}
		a := &attempt{key: reconcile.Key{Namespace: "default", Name: "a"}, memory: &memory{}, facts: facts{now: now}}
		exists, _ := (&factSource{jobs: oneJob{job: job}}).findJob(a)
		if again := a.facts.unservedAt; exists != c.exists || (c.again > 0) != !again.IsZero() || c.again > 0 && again.Sub(now) != c.again {
			t.Errorf("%s: exists %t, again %s", name, exists, again.Sub(now))
		}
	}
}

// nothing is a watch that shows no object.
type nothing struct{ lister }

func (nothing) WaitSynced(context.Context) error                      { return nil }
func (nothing) Lookup(string, string) (kube.Object, bool)             { return kube.Object{}, false }
func (nothing) Get(string, string) (*unstructured.Unstructured, bool) { return nil, false }

// TestConditions: those of others stay, the time of the last transition stays while
// the status does, and what is said already is not said again.
func TestConditions(t *testing.T) {
	t.Parallel()
	const before, now = "2026-01-01T00:00:00Z", "2026-11-20T12:00:00Z"
	foreign := map[string]any{"type": "Other", "status": "True"}
	stored := map[string]any{"type": "Ready", "status": "True", "reason": "Available", "message": "Resource is available",
		"observedGeneration": int64(2), "lastTransitionTime": before}
	for _, c := range []struct {
		name       string
		generation int64
		want       api.Condition
		writes     bool
		since      string // "" = it is gone
	}{
		{"the same", 2, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "Resource is available"}, false, before},
		{"of another generation", 3, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "Resource is available"}, true,
			before},
		{"in other words", 2, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "x"}, true, before},
		{"another status", 2, api.Condition{Type: "Ready", Status: "False", Reason: "InvalidSpec", Message: "x"}, true, now},
		{"none", 2, api.Condition{Type: "Ready"}, true, ""},
		{"none of what there is none", 2, api.Condition{Type: "limpet/Webhook"}, false, before},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{foreign, stored}}}}
		obj.SetGeneration(c.generation)
		w := &change{obj: obj, now: at}
		w.conditions(c.want)
		if (len(w.ops) > 0) != c.writes {
			t.Errorf("%s: %+v", c.name, w.ops)
			continue
		}
		if !c.writes {
			continue
		}
		list := w.ops[0].Value.([]any)
		if _, other := api.FindCondition(list, "Other"); len(w.ops) != 1 || other == nil {
			t.Errorf("%s: %+v", c.name, w.ops)
		}
		switch _, got := api.FindCondition(list, "Ready"); {
		case c.since == "" && got != nil:
			t.Errorf("%s: %v", c.name, got)
		case c.since != "" && (got["lastTransitionTime"] != c.since || got["observedGeneration"] != c.generation):
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
