package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

func uidOf(n int64) types.UID       { return types.UID(fmt.Sprintf("uid-%d", n)) }
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// rig is a model API with one state file, in a synctest bubble.
type rig struct {
	t      *testing.T
	model  *model
	store  *state.Store
	agents []*agent
	away   bool // agents that start are cut off
}

// bubble runs a test in virtual time and judges everything at its end.
func bubble(t *testing.T, fn func(r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, model: newModel()}
		r.store = r.open("limpet.db")
		func() {
			defer func() { // also after a Fatal
				for _, a := range r.agents {
					a.stop()
				}
			}()
			fn(r)
		}()
		if bad := r.model.unlawful(DefaultExpiry); len(bad) > 0 {
			t.Errorf("unlawful writes:\n%s", strings.Join(bad, "\n"))
		}
	})
}

// open opens a state file that is checked and closed when the bubble ends.
func (r *rig) open(name string) *state.Store {
	r.t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: filepath.Join(r.t.TempDir(), name)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		report, err := store.Check(context.Background())
		if err != nil || len(report.Problems) > 0 {
			r.t.Errorf("state file: %v %v", err, report.Problems)
		}
		if err := store.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return store
}

// repository and job create what a person would.
func (r *rig) repository(name string, change ...func(u *unstructured.Unstructured)) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
		"spec": map[string]any{"title": name, "type": "git", "sync": map[string]any{"enabled": true, "target": "folder"}}}}
	u.SetName(name)
	for _, fn := range change {
		fn(u)
	}
	r.model.put("repositories", "default", u)
}

func (r *rig) job(repository, name string, change ...func(u *unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec": map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": false}, "unknown": "kept"}}}
	u.SetName(name)
	u.SetLabels(map[string]string{api.LabelRepository: repository, "team": "ops"})
	for _, fn := range change {
		fn(u)
	}
	return r.model.put("jobs", "default", u)
}

func action(name string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, name, "spec", "action")
	}
}

// claimOf makes a job look claimed by a stranger.
func claimOf(token string, at time.Time) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { setClaim(u, at.UnixMilli(), token) }
}

// agent is one controller with its own way to the model.
type agent struct {
	*Controller
	rig    *rig
	link   *link
	ledger *brittle
	cancel context.CancelFunc
	done   chan error
	parts  sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex // guards events and details
	events  []Event
	details []any // of EventMeasure
}

// start runs an agent until stop or the end of the bubble.
func (r *rig) start(name string, o Options, workers ...Worker) *agent {
	r.t.Helper()
	return r.startOn(r.store, name, o, workers...)
}

func (r *rig) startOn(store *state.Store, name string, o Options, workers ...Worker) *agent {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{rig: r, link: &link{model: r.model, agent: name, dead: r.away}, cancel: cancel, done: make(chan error, 1)}
	o.Agent = name
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Observe = func(e Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if e.Type == EventMeasure {
			a.details = append(a.details, e.Detail)
			return
		}
		a.events = append(a.events, e)
	}
	o.self = rand.Text()[:12]
	o = o.withDefaults()
	a.ledger = &brittle{Store: store}
	jobs, repos := a.link.watch("jobs"), a.link.watch("repositories")
	a.Controller = newController(&env{o: o, server: a.link.way(false), renewals: a.link.way(true), store: a.ledger,
		clock: clock{server: a.link, host: realHost{}, maxError: o.terms().ClockError()}}, jobs, repos)
	for _, w := range workers {
		a.admission.workers[w.Action()] = w
	}
	jobs.handler, repos.handler = a.jobHandler(), a.repoHandler()
	a.parts.Go(func() { jobs.run(ctx) })
	a.parts.Go(func() { repos.run(ctx) })
	a.parts.Go(func() { a.done <- a.Run(ctx) })
	r.agents = append(r.agents, a)
	return a
}

// stop ends the agent as SIGTERM does and waits for it.
func (a *agent) stop() {
	a.once.Do(func() {
		a.cancel()
		if err := <-a.done; err != nil {
			a.rig.t.Errorf("agent %s: %v", a.link.agent, err)
		}
		a.parts.Wait()
	})
}

// crash makes everything the agent does from now on fail, as if the process were gone, and lets its
// goroutines end.
func (a *agent) crash() {
	a.link.cut(true)
	a.ledger.kill()
	a.cancel()
}

func (a *agent) texts(typ string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if e.Type == typ {
			out = append(out, e.Text)
		}
	}
	return out
}

// claims returns how many claims of the agent had a result.
func (a *agent) claimResults(result ClaimResult) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.details {
		if c, ok := d.(ClaimAttempt); ok && c.Result == result {
			n++
		}
	}
	return n
}

// count returns how many events of a type were told.
func (a *agent) count(typ string) int { return len(a.texts(typ)) }

// What tests look at.

func (r *rig) history() []state.Record {
	r.t.Helper()
	records, err := r.store.History(context.Background(), state.Query{})
	if err != nil {
		r.t.Fatal(err)
	}
	return records
}

func (r *rig) claims() []state.Claim {
	r.t.Helper()
	claims, err := r.store.Claims(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return claims
}

// only returns the one record that has to be there.
func (r *rig) only() state.Record {
	r.t.Helper()
	h := r.history()
	if len(h) != 1 {
		r.t.Fatalf("%d history records, want 1", len(h))
	}
	return h[0]
}

// done asserts that a job has ended: gone from the queue, one record, one HistoricJob, no claim.
func (r *rig) done(stateWanted, message string) state.Record {
	r.t.Helper()
	if left := r.model.all("jobs"); len(left) != 0 {
		r.t.Errorf("%d jobs left, the first %v", len(left), left[0].Object)
	}
	if n := len(r.model.all("historicjobs")); n != 1 {
		r.t.Errorf("%d HistoricJobs", n)
	}
	if claims := r.claims(); len(claims) != 0 {
		r.t.Errorf("claims left: %+v", claims)
	}
	rec := r.only()
	if rec.State != stateWanted || !strings.Contains(rec.Message, message) {
		r.t.Errorf("ended as %s %q, want %s %q", rec.State, rec.Message, stateWanted, message)
	}
	return rec
}

// settle lets everything happen that can happen without time passing.
func settle() { synctest.Wait() }

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func contains(text, part string) bool { return strings.Contains(text, part) }

func selector(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

func key(namespace, name string) queue.Key { return queue.Key{Namespace: namespace, Name: name} }

func repoKey(namespace, repository string) queue.RepoKey {
	return queue.RepoKey{Namespace: namespace, Repository: repository}
}

// waiting returns how many keys the queue of an agent has.
func (c *Controller) waiting() int { return c.Backlog().Queued }

// script is a worker that does what a test says.
type script struct {
	action string
	ready  func(t Task) error
	run    func(ctx context.Context, t *Task) error

	mu   sync.Mutex // guards runs
	runs []string   // "name attempt mark"
}

func worker(run func(ctx context.Context, t *Task) error) *script {
	return &script{action: "pull", run: run}
}

// quick is a worker that has nothing to do.
func quick() *script { return worker(func(context.Context, *Task) error { return nil }) }

func (s *script) Action() string { return s.action }

func (s *script) Ready(_ context.Context, t Task) error {
	if s.ready == nil {
		return nil
	}
	return s.ready(t)
}

func (s *script) Run(ctx context.Context, t *Task) error {
	s.mu.Lock()
	s.runs = append(s.runs, fmt.Sprintf("%s %d %s", t.Name, t.Attempt, t.Mark))
	s.mu.Unlock()
	return s.run(ctx, t)
}

func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// work is a worker that takes some time and heeds its context.
func work(d time.Duration) *script {
	return worker(func(ctx context.Context, t *Task) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// brittle is the state file of a process that can die, or whose disk can fill.
type brittle struct {
	*state.Store
	mu   sync.Mutex // guards the fields below
	dead bool
	fail func(op string) error
}

var errDead = errors.New("the process is gone")

func (b *brittle) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
}

func (b *brittle) failing(fn func(op string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fn
}

func (b *brittle) check(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return errDead
	}
	if b.fail != nil {
		return b.fail(op)
	}
	return nil
}

func (b *brittle) PutClaim(ctx context.Context, k state.Claim) error {
	return b.unless("claim", func() error { return b.Store.PutClaim(ctx, k) })
}

func (b *brittle) PutMark(ctx context.Context, uid string, mark json.RawMessage) error {
	return b.unless("mark", func() error { return b.Store.PutMark(ctx, uid, mark) })
}

func (b *brittle) DropClaim(ctx context.Context, uid string) error {
	return b.unless("drop", func() error { return b.Store.DropClaim(ctx, uid) })
}

func (b *brittle) PutRecord(ctx context.Context, rec state.Record) error {
	return b.unless("record", func() error { return b.Store.PutRecord(ctx, rec) })
}

func (b *brittle) Complete(ctx context.Context, uid string, rec state.Record) error {
	return b.unless("complete", func() error { return b.Store.Complete(ctx, uid, rec) })
}

func (b *brittle) EndClaim(ctx context.Context, uid, historic string, queue bool) error {
	return b.unless("end", func() error { return b.Store.EndClaim(ctx, uid, historic, queue) })
}

func (b *brittle) unless(op string, fn func() error) error {
	if err := b.check(op); err != nil {
		return err
	}
	return fn()
}

// writes counts accepted writes that a condition holds for.
func (m *model) writes(ok func(e entry) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.audit {
		if ok(e) {
			n++
		}
	}
	return n
}

// onlyAsksToStop says that a write changes nothing but the wish to stop, which anybody may utter.
func onlyAsksToStop(e entry) bool {
	if e.now == nil || e.now.GetAnnotations()[api.AnnoCancel] == "" {
		return false
	}
	a, b := e.before.DeepCopy(), e.now.DeepCopy()
	for _, u := range []*unstructured.Unstructured{a, b} {
		api.SetAnnotation(u, api.AnnoCancel, "")
		u.SetResourceVersion("")
	}
	return reflect.DeepEqual(a.Object, b.Object)
}

// arrived counts requests that a condition holds for, refused ones included.
func (m *model) arrived(ok func(c call) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.calls {
		if ok(c) {
			n++
		}
	}
	return n
}

// unlawful is the oracle: it returns every accepted write of an agent that the rules of the wire
// forbid.
func (m *model) unlawful(expiry time.Duration) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holder := maps.Clone(m.known) // token -> agent; a1 and a2 are two processes of agent a
	if holder == nil {
		holder = map[string]string{}
	}
	archived := map[string]int{}
	for _, e := range m.audit {
		if e.Agent == "person" {
			continue
		}
		e.Agent = strings.TrimRight(e.Agent, "0123456789")
		bad := func(is bool, format string, args ...any) {
			if is {
				out = append(out, fmt.Sprintf("%s %s %s %s: ", e.Agent, e.Verb, e.Resource, e.Name)+fmt.Sprintf(format, args...))
			}
		}
		bad(!e.bound && e.Verb != "create", "unconditional")
		if e.Resource == "historicjobs" {
			if e.Verb == "create" {
				uid := api.Label(e.now, api.LabelOriginalUID)
				archived[uid]++
				bad(archived[uid] > 1, "second HistoricJob of %s", uid)
				_, named := e.now.GetLabels()[api.LabelRepository]
				bad(claimed(e.now) || !named, "labels %v", e.now.GetLabels())
			}
			continue
		}
		was, since := api.Label(e.before, api.LabelClaimOwner), time.UnixMilli(claimTime(e.before))
		bad(was != "" && holder[was] != e.Agent && e.at.Sub(since).Abs() <= expiry && !onlyAsksToStop(e), "the job is held by %q", holder[was])
		if e.now == nil {
			continue
		}
		is, at := api.Label(e.now, api.LabelClaimOwner), time.UnixMilli(claimTime(e.now))
		bad((is == "") != (api.Label(e.now, api.LabelClaim) == ""), "one claim label without the other")
		bad(is != "" && !at.Equal(since) && at.Sub(e.at).Abs() > expiry/6+10*time.Second, "claim time is %s off", at.Sub(e.at))
		if is != "" && is != was {
			holder[is] = e.Agent
		}
	}
	return out
}
