package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/lease"
	"limpet/sync/jobs/queue"
)

// simOracle holds every write and every run against the laws of this package.
type simOracle struct {
	broken    []simBreach
	archives  map[string]int        // HistoricJobs that agents have made, by UID
	runs      []*simRun             // that have not returned
	disturbed map[string]bool       // UIDs that others wrote without regard for claims
	made      map[string]queue.Key  // UIDs of all jobs there ever were
	ended     map[string]string     // who took the job out of the queue, by UID
	renewed   map[string]simRenewal // by UID
}

// simRenewal is the last change of a claim.
type simRenewal struct {
	at    time.Time     // of the bubble, whatever its label says
	ahead time.Duration // by which its label was in the future then
}

// simBreach is a broken law.
type simBreach struct{ uid, law string }

// simRun is a worker at work.
type simRun struct {
	p          *simProcess
	ctx        context.Context
	uid        string
	repository string
}

func newSimOracle() simOracle {
	return simOracle{archives: map[string]int{}, disturbed: map[string]bool{}, made: map[string]queue.Key{}, ended: map[string]string{},
		renewed: map[string]simRenewal{}}
}

func (o *simOracle) breach(uid, law string, args ...any) {
	o.broken = append(o.broken, simBreach{uid, fmt.Sprintf(law, args...)})
}

// judge looks at one accepted write, under the lock of the world.
func (o *simOracle) judge(w *simWorld, e entry) {
	uid := uidIn(e)
	switch {
	case e.Resource == "historicjobs":
	case e.Verb == "delete":
		o.ended[uid] = e.Agent
	case e.before == nil:
		o.made[uid] = keyOf(e.now)
	}
	renewed := o.renewed[uid]
	if e.before != nil && e.now != nil && claimIn(e.before) != claimIn(e.now) {
		ms, _ := strconv.ParseInt(api.Label(e.now, api.LabelClaim), 10, 64)
		o.renewed[uid] = simRenewal{e.at, time.UnixMilli(ms).Sub(w.now())}
	}
	p := e.sent.process
	if p == nil {
		o.foreign(e, uid)
		return
	}
	if e.Resource == "historicjobs" {
		o.judgeArchive(w, e, uid)
		return
	}
	was, since := api.Label(e.before, api.LabelClaimOwner), api.Label(e.before, api.LabelClaim)
	own := agentOf(was) == p.name
	at, err := strconv.ParseInt(since, 10, 64)
	age := w.now().UnixMilli() - at
	// A label that was far in the future when it was written says nothing, whatever the time is by
	// now.
	dead := err != nil || age > DefaultExpiry.Milliseconds() || renewed.ahead > DefaultExpiry-DefaultExpiry/6 // as far as its clock may be off
	if (was != "" || since != "") && !own && !(e.now != nil && onlyAsksToStop(entry{before: e.before, now: e.now})) {
		if !dead {
			o.breach(uid, "%s: %s although %q holds the job since %d ms", p.name, e.Verb, was, age)
		}
		// The clock of an owner may be wrong: its label is old, and it lives.
		if still := e.at.Sub(renewed.at); still < DefaultExpiry {
			o.breach(uid, "%s: %s although %q has renewed its claim %s ago", p.name, e.Verb, was, still)
		}
	}
	claim := ""
	if e.now != nil {
		claim = api.Label(e.now, api.LabelClaim)
		if claim != since && (claim == "") != (api.Label(e.now, api.LabelClaimOwner) == "") {
			o.breach(uid, "%s: one claim label without the other", p.name)
		}
	}
	if claim != "" && claim != since {
		ms, err := strconv.ParseInt(claim, 10, 64)
		off := time.UnixMilli(ms).Sub(e.sent.at.Add(w.skew))
		if slack := DefaultExpiry/6 + time.Second; err != nil || off > slack || off < -slack && !p.slept(e.sent.at.Add(-time.Minute), e.sent.at) {
			o.breach(uid, "%s: a claim of %s is %s off", p.name, claim, off)
		}
		if !p.disk.remembers(uid, api.Label(e.now, api.LabelClaimOwner)) {
			o.breach(uid, "%s: a claim that its state file does not know", p.name)
		}
		if !e.sent.clock {
			o.breach(uid, "%s: a claim while the server's time is unknown", p.name)
		}
		return
	}
	// A person's wish to stop a job goes out whatever the lease.
	o.judgeLease(e, uid, own && !onlyAsksToStop(entry{before: e.before, now: e.now}))
}

// claimIn is what a job says of its claim.
func claimIn(u *unstructured.Unstructured) [2]string {
	return [2]string{api.Label(u, api.LabelClaim), api.Label(u, api.LabelClaimOwner)}
}

// other agent notes when another agent takes a claim of an agent away, who cannot know.
func (o *simOracle) foreign(e entry, uid string) {
	if e.before == nil || e.now == nil {
		return
	}
	if owner := api.Label(e.before, api.LabelClaimOwner); agentOf(owner) != "" && owner != api.Label(e.now, api.LabelClaimOwner) {
		o.disturbed[uid] = true
	}
}

// judgeLease wants a write about an own job to have left while the lease held.
func (o *simOracle) judgeLease(e entry, uid string, own bool) {
	if p := e.sent.process; own && e.sent.held && e.sent.proof >= DefaultExpiry*2/3 {
		o.breach(uid, "%s: %s although the claim was confirmed %s ago", p.name, e.Verb, e.sent.proof)
	}
}

func (o *simOracle) judgeArchive(w *simWorld, e entry, uid string) {
	p := e.sent.process
	o.archives[uid]++
	if o.archives[uid] > 1 {
		o.breach(uid, "%s: another HistoricJob of one job", p.name)
	}
	l := e.now.GetLabels()
	if l[api.LabelClaim] != "" || l[api.LabelClaimOwner] != "" || l[api.LabelRepository] == "" {
		o.breach(uid, "%s: a HistoricJob with labels %v", p.name, l)
	}
	o.judgeLease(e, uid, true)
	job := w.objects["jobs"][o.made[uid]]
	if job == nil || api.Meta(job, "uid") != uid {
		return
	}
	// A host that falls asleep between the last look and the request sends it when it wakes up: no
	// lease can prevent that, only the name of the HistoricJob.
	if owner := api.Label(job, api.LabelClaimOwner); agentOf(owner) != p.name && !e.sent.asleep && !o.disturbed[uid] {
		o.breach(uid, "%s: a HistoricJob although %q holds the job", p.name, owner)
	}
}

// begin and end frame a run of a worker.
func (o *simOracle) begin(w *simWorld, r *simRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range o.runs {
		switch {
		case other.p.dead.Load() || r.p.dead.Load() || other.ctx.Err() != nil || r.ctx.Err() != nil:
		case other.p.awakeIn() > 0: // it cannot know
		case o.disturbed[other.uid] || o.disturbed[r.uid]: // another agent took a claim away
		case other.uid == r.uid:
			o.breach(r.uid, "%s runs the job while %s does", r.p.name, other.p.name)
		case other.repository == r.repository && w.ordered && o.holds(w, other) && o.holds(w, r):
			o.breach(r.uid, "%s works on a repository while %s does for %s", r.p.name, other.p.name, other.uid)
		}
	}
	o.runs = append(o.runs, r)
}

// holds says that the claim of a run is there and not expired. A job that was deleted leaves its
// worker running until it hears of that.
func (o *simOracle) holds(w *simWorld, r *simRun) bool {
	job := w.objects["jobs"][o.made[r.uid]]
	if job == nil || api.Meta(job, "uid") != r.uid {
		return false
	}
	at, _ := strconv.ParseInt(api.Label(job, api.LabelClaim), 10, 64)
	return agentOf(api.Label(job, api.LabelClaimOwner)) == r.p.name && w.now().UnixMilli()-at < DefaultExpiry.Milliseconds()
}

func (o *simOracle) end(w *simWorld, r *simRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.runs = slices.DeleteFunc(o.runs, func(x *simRun) bool { return x == r })
}

// budget is how many requests a world may cost: for each process its start, its cleanup and its
// claims of before, for each job of any fate what agents that want it ask, its renewals and its
// tries. It is about three times what the dearest of many thousand worlds has cost.
func (w *simWorld) budget() int { return 60*len(w.processes) + 180*len(w.oracle.made) }

func (w *simWorld) requests() (n int) {
	for _, p := range w.processes {
		n += p.link.total
	}
	return n
}

// last judges when everything is over and every agent has stopped.
func (o *simOracle) last(w *simWorld) {
	if n := w.requests(); n > w.budget() {
		o.breach("", "%d requests of %d processes for %d jobs", n, len(w.processes), len(o.made))
	}
	records := map[string][]state.Record{}
	for _, h := range w.hosts {
		for uid, k := range h.disk.claims {
			if h.gone.Load() {
				break
			}
			o.breach(uid, "%s keeps a claim %s of attempt %d", h.name, k.Phase, k.Attempt)
		}
		for uid, r := range h.disk.records {
			records[uid] = append(records[uid], r)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(o.made)) {
		by, over := o.ended[uid]
		attempts := map[int]int{}
		skip := w.loki
		for _, r := range records[uid] {
			// An agent whose claim was taken away under its lease cannot know whose the deletion is that it
			// sees next, and a job that was cancelled is cancelled, whoever deleted it.
			ended := slices.ContainsFunc(records[uid], func(r state.Record) bool { return r.State != stateCancelled })
			if ended && r.State == stateCancelled && strings.Contains(r.Message, "was deleted") && strings.HasPrefix(by, "h") && !o.disturbed[uid] {
				o.breach(uid, "a record of %s says %q, but %q has taken it out of the queue", r.Agent, r.Message, by)
			}
			skip = skip || r.HistoricJob == archiveSkipped || r.HistoricJob == archiveUnavailable
			for _, a := range r.Attempts {
				if a.Agent != r.Agent || a.State != r.State || r.HistoricJob != archivePosted {
					continue // of another agent, or one whose result that no other agent has seen
				}
				if attempts[a.N]++; attempts[a.N] > 1 && !o.disturbed[uid] && w.options.Cleanup != CleanupFail {
					o.breach(uid, "attempt %d has two results", a.N)
				}
			}
		}
		switch limpet := strings.HasPrefix(by, "h"); {
		case !over:
			o.breach(uid, "the job has not ended")
		case limpet && len(records[uid]) == 0 && !w.archived(uid):
			o.breach(uid, "%s has taken the job out of the queue and there is no record", by)
		case limpet && !skip && !w.archived(uid):
			o.breach(uid, "%s has taken the job out of the queue without a HistoricJob", by)
		}
	}
}

// TestSimulationFinds: the laws can be broken, and the worlds get to where they are. Each row takes
// away something that an agent relies on, or a care that it takes; within so many seeds the law
// that is named has to be found broken.
func TestSimulationFinds(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name   string
		change func(*simProcess)
		law    string // a part of its text
		within uint64 // seeds
	}{
		{"a state file that forgets intents", func(p *simProcess) { p.agent.env.store = forgetsIntents{p.agent.env.store} },
			"state file does not know", 20},
		{"writes without preconditions", func(p *simProcess) { p.agent.env.server = unconditional{p.link.way(false)} }, "holds the job", 300},
		{"a clock that is wrong and sure of it", func(p *simProcess) { p.agent.env.clock.server = wrongClock{p.clock} }, "off", 20},
		{"a lease that does not end", func(p *simProcess) { p.agent.env.clock.host = timeless{p, p.now()} }, "the claim was confirmed", 300},
		{"no eye for foreign claims", func(p *simProcess) {
			p.agent.exclusion.seen.own = func(string, string) bool { return true }
		}, "works on a repository", 300},
		{"cleanup without patience", func(p *simProcess) { p.agent.env.o.Expiry = 12 * time.Second }, "has renewed its claim", 1000},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= m.within; seed++ {
				for _, b := range simulate(t, seed, m.change).oracle.broken {
					if strings.Contains(b.law, m.law) {
						t.Logf("seed %d: %s", seed, b.law)
						return
					}
				}
			}
			t.Errorf("not found within %d seeds", m.within)
		})
	}
}

type forgetsIntents struct{ store }

func (l forgetsIntents) PutClaim(ctx context.Context, k state.Claim) error {
	if k.Phase == state.PhaseIntent {
		return nil
	}
	return l.store.PutClaim(ctx, k)
}

// unconditional writes over whatever is there.
type unconditional struct{ way }

func (l unconditional) putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	now, err := l.get(ctx, api.Jobs, job.GetNamespace(), job.GetName())
	if err != nil {
		return nil, err
	}
	job.SetResourceVersion(now.GetResourceVersion())
	job.SetUID(now.GetUID())
	return l.way.putJob(ctx, job)
}

type wrongClock struct{ serverClock }

func (c wrongClock) Millis(most time.Duration) (int64, error) {
	ms, err := c.serverClock.Millis(most)
	return ms + (5 * time.Minute).Milliseconds(), err
}

// timeless is a host on which no time passes.
type timeless struct {
	host
	began lease.Reading
}

func (h timeless) now() lease.Reading { return h.began }
func (timeless) after(time.Duration, func()) *time.Timer {
	return time.AfterFunc(year, func() {})
}

// fate is chance that gives the same answer to the same question, whoever asks first: so goroutines
// that run at the same instant cannot change a story.
type fate uint64

// of returns the chance of something more particular.
func (f fate) of(parts ...uint64) fate {
	z := uint64(f)
	for _, p := range parts { // splitmix64
		z += 0x9e3779b97f4a7c15 + p*0xff51afd7ed558ccd
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return fate(z)
}

func (f fate) about(text string) fate {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return f.of(h)
}

// n is below limit.
func (f fate) n(limit int) int { return int(uint64(f.of(1)) % uint64(limit)) }

// likely is true that often in a thousand.
func (f fate) likely(perMille int) bool { return f.of(2).n(1000) < perMille }

// between spreads evenly over nanoseconds, so that no two things happen at the same instant.
func (f fate) between(low, high time.Duration) time.Duration {
	return low + time.Duration(uint64(f.of(3))%uint64(high-low))
}

// waitFor waits for d or the end of ctx, and reports whether it was d.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// window is a span of time of the bubble.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// inside returns the end of the window that t is in.
func inside(windows []window, t time.Time) (time.Time, bool) {
	for _, w := range windows {
		if w.has(t) {
			return w.to, true
		}
	}
	return time.Time{}, false
}
