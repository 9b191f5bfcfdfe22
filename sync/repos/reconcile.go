package repos

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/kube"
)

// Phases of a reconcile, as Grafana's metrics name them.
const (
	phaseFetch  = "fetch"
	phaseBuild  = "build"
	phaseBranch = "branch"
	phaseStatus = "status"
	phaseSync   = "sync"
	phaseToken  = "token"
)

// lostAfter is how long the job of a pull under way may be out of sight before it
// counts as lost: two watches do not go hand in hand.
const lostAfter = 10 * time.Second

// reconcile looks into one Repository. It returns when it is to be looked into
// again without any event, and how often that happens; zero is never.
func (c *Controller) reconcile(ctx context.Context, k Key) (next time.Time, period time.Duration, err error) {
	defer c.pass(k)
	obj := c.newest(k)
	if obj == nil {
		c.forget(k)
		c.unused(k)
		return time.Time{}, 0, errors.Join(c.unsuspend(ctx, k, ""), c.forgetJudged(ctx, k))
	}
	if obj.GetLabels()[api.LabelPendingDelete] != "" || c.o.Selector != nil && !c.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		c.unused(k)
		return time.Time{}, 0, nil
	}
	c.uses(k, obj)
	if obj.GetDeletionTimestamp() != nil {
		return c.end(ctx, k, obj)
	}
	if c.o.Suspensions != nil {
		if err := c.unsuspend(ctx, k, string(obj.GetUID())); err != nil {
			return time.Time{}, 0, err
		}
		if s, on := c.o.Suspensions.Of(k, string(obj.GetUID())); on {
			return s.Until, unhealthyFor, nil
		}
	}
	n := c.noteOf(k, string(obj.GetUID()))
	repo, err := n.read(obj)
	if err != nil {
		c.o.Meter.Failed(phaseFetch, true)
		return time.Time{}, 0, &unreadable{obj.GetResourceVersion(), err}
	}
	r := &reconciling{Controller: c, key: k, obj: obj, note: n}
	r.gather(repo)
	wish := c.wished(k)
	if wish != 0 {
		n.tokenAfter = time.Time{}
	}
	r.gatherToken(ctx)
	r.due = r.facts.flags()
	r.due.health = r.due.health || wish.due(repo.Status.Health)
	r.gatherRevision()
	r.gatherHook(ctx)
	if why := cmp.Or(r.due.trigger(), r.hookDue); why != "" {
		r.o.Meter.Triggered(string(why))
		r.log.Debug("look into a repository", "repo", k.Name, "namespace", k.Namespace, "trigger", why)
		if err := r.run(ctx); err != nil {
			c.wish(k, wish)
			return time.Time{}, 0, err
		}
	}
	next, period = r.again(ctx)
	return next, period, nil
}

// newest is the Repository as it was seen last: what the watch shows, or what our
// own last patch has made of that. nil when there is none.
func (c *Controller) newest(k Key) *unstructured.Unstructured {
	seen, ok := c.repos.Get(k.Namespace, k.Name)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.notes[k]
	if n == nil || n.last == nil {
		return seen
	}
	if n.uid == string(seen.GetUID()) && n.before[seen.GetResourceVersion()] {
		return n.last
	}
	n.last, n.before = nil, nil
	return seen
}

// wrote notes what a patch has made of the Repository.
func (r *reconciling) wrote(now *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.note.before == nil {
		r.note.before = map[string]bool{}
	}
	r.note.before[r.obj.GetResourceVersion()] = true
	r.note.last, r.obj = now, now
}

// reconciling is one reconcile under way.
type reconciling struct {
	*Controller
	key   Key
	obj   *unstructured.Unstructured
	note  *note
	facts facts
	due   flags
	probe *probe

	said      *api.Condition // of signatures, nil = nothing
	judgedNow string         // the object that it is about; "" = none

	hookURL string  // of the webhook that is wanted; "" = none
	hookDue trigger // "" = nothing is to do about it

	hookSecret string // of the webhook that was made now
	hookTried  *api.Condition
}

// gatherHook finds out whether something is to do about the webhook.
func (r *reconciling) gatherHook(ctx context.Context) {
	if r.o.Hooks == nil {
		return
	}
	url, known := hookURL(r.o.Hooks.Base, r.key, r.facts.repo)
	if r.hookURL, r.hookDue = url, ""; !known {
		return
	}
	changed := r.facts.specChanged()
	r.hookDue = hookDue(url, r.facts.repo.Status.Webhook, changed || r.note.hookOwed || r.hookMoved(ctx), r.facts.now)
	r.note.hookOwed = r.note.hookOwed || changed && r.hookDue != ""
	if r.note.hookRest(r.facts.now) > 0 && !changed {
		r.hookDue = ""
	}
}

// gather finds out what is known. It asks nobody.
func (r *reconciling) gather(repo api.Repository) {
	f := &r.facts
	*f = facts{now: r.now(), uid: string(r.obj.GetUID()), generation: r.obj.GetGeneration(), repo: repo, interval: r.interval(repo), quota: r.o.Quota.over(repo.Status.Quota), start: r.began()}
	if f.quota.Repositories > 0 {
		f.count = r.census.count(r.key.Namespace, r.repos.Objects)
	}
	n := r.note
	if n.generation != f.generation {
		n.generation, n.started, n.access = f.generation, repo.Status.Sync.Started, access{}
	}
	f.asked, f.after = n.asked, repo.Status.Sync.Started != 0 && repo.Status.Sync.Started != n.started
	if f.pulledWhole() {
		n.owed, n.whole = false, true
	}
	f.owed, f.settled = n.owed, n.settled
	f.lost = !n.whole && repo.Status.Sync.Finished > 0 && time.UnixMilli(repo.Status.Sync.Finished).Before(r.o.Since)
	f.job, f.gone = r.sight(repo.Status.Sync)
}

var pathRepository = kube.PathTo("spec", "repository")

// sight says whether a sync job is there, and whether one that ought to be there
// has been missed for long enough.
func (r *reconciling) sight(sync api.SyncStatus) (job, gone bool) {
	for _, name := range []string{api.JobName(r.key.Name, "pull"), sync.Job} {
		if s, ok := r.jobs.Lookup(r.key.Namespace, name); ok && s.Text(pathRepository) == r.key.Name {
			r.note.missing = time.Time{}
			return true, false
		}
	}
	if sync.State != api.StatePending && sync.State != api.StateWorking {
		r.note.missing = time.Time{}
		return false, false
	}
	if r.note.missing.IsZero() || r.note.missing.After(r.facts.now) { // or by a clock that was wrong
		r.note.missing = r.facts.now
	}
	return false, r.facts.now.Sub(r.note.missing) >= lostAfter
}

// run asks, writes and queues what is due.
func (r *reconciling) run(ctx context.Context) error {
	blocked := r.due.over || r.due.blocked
	check := r.due.health || r.due.unblock
	found := finding{}
	if check && !blocked {
		found = r.rules()
	}
	if !blocked && found.ok() && (check || (r.due.resync || r.due.token || r.hookDue != "") && r.facts.repo.Status.Health.Healthy) {
		if host := hostOf(r.facts.repo); host != "" {
			if !r.lanes.enter(host, r.key) {
				return errWaits
			}
			defer r.leave(host)
		}
		p, err := r.prepare(ctx, r.key, r.facts.repo)
		if err != nil {
			r.o.Meter.Failed(phaseBuild, false)
			return err
		}
		p.access = &r.note.access
		r.probe = p
	}
	switch {
	case blocked:
		check = true
		found = overQuotaFinding(r.facts.namespaceQuota().Message)
	case check && found.ok():
		var err error
		if found, err = r.examine(ctx); err != nil {
			return err
		}
	}
	health := r.facts.repo.Status.Health
	healthy := health.Healthy
	if check {
		healthy = found.ok()
	}
	r.gatherTrust(ctx)
	queue := strategy(&r.facts, r.due, healthy, func() (string, error) {
		err := r.probe.ask(ctx)
		if err == nil {
			err = r.probe.err
		}
		r.facts.retagged = r.tagMoved()
		return r.probe.ref.Hash, err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch look := r.looked(); {
	case check:
	case !look.ok() && look.lasts():
		// The look for the interval has shown what the next check would.
		check, found, healthy, queue = true, look, false, nil
	case look.ok() && r.probed() && r.mirrorNews(look):
		check, found = true, look
	}
	if queue == nil && healthy {
		said, err := r.judge(ctx)
		if err != nil {
			return err
		}
		r.said = said
	}
	return r.write(ctx, check, found, healthy, queue)
}

// looked is what the remote has shown, if it was asked.
func (r *reconciling) looked() finding {
	if !r.probed() {
		return finding{}
	}
	return r.probe.finding()
}

// probed says that the remote was asked.
func (r *reconciling) probed() bool { return r.probe != nil && r.probe.asked }

// errWaits says that the host of a Repository has enough to do: it has its turn
// later.
var errWaits = errors.New("waits for its host")

// rules checks what can be checked without asking anybody: nobody is given a token
// for a Repository that breaks them.
func (r *reconciling) rules() finding {
	if errs := admission.Check(r.obj, r.obj); len(errs) > 0 {
		return structural(errs)
	}
	return finding{}
}

// examine checks the health. What a person may leave out of the spec is filled in.
func (r *reconciling) examine(ctx context.Context) (found finding, err error) {
	found, broken, err := r.probe.examine(ctx, r.obj, r.obj)
	if broken || err != nil {
		return found, err
	}
	r.o.Meter.Checked(found.ok(), r.probe.took)
	return found, r.complete(ctx, found)
}

// write tells what was found, in one patch, and then queues the pull. A pull that
// is wanted while another is under way is owed.
func (r *reconciling) write(ctx context.Context, check bool, found finding, healthy bool, queue *request) error {
	f := &r.facts
	asked := f.now
	f.now = r.now()
	status := f.repo.Status
	c := &change{obj: r.obj, now: f.now}
	if r.hookDue != "" && r.probe != nil && r.probe.err == nil && !r.probe.mirrored() && healthy {
		switch hook, changed := r.hook(ctx); {
		case changed && hook == nil:
			c.ops = append(c.ops, op{Op: "remove", Path: "/status/webhook"})
			r.handOver(ctx, c)
		case changed:
			c.set(hook, "webhook")
			r.handOver(ctx, c)
		}
	}
	r.token(ctx, c)
	if f.quotaChanged() {
		c.quota(f.quota)
	}
	if check {
		if h, due := noted(status.Health, found, f.now); due {
			c.set(wireHealth(h), "health")
		}
		c.fieldErrors(found.errors)
	}
	waits := queue != nil && f.job
	if !f.observed() && !waits {
		c.observe(f.generation)
	}
	wanted := []api.Condition{f.namespaceQuota()}
	if check {
		wanted = append(wanted, found.ready())
	}
	if held, ok := f.resourceQuota(); ok {
		wanted = append(wanted, held)
	}
	if told, ok := r.hookTold(); ok {
		wanted = append(wanted, told)
	}
	if told, ok := r.revisionTold(); ok {
		wanted = append(wanted, told)
	}
	if r.said != nil {
		wanted = append(wanted, *r.said)
	}
	c.conditions(wanted...)
	switch {
	case waits && !queue.incremental:
		r.note.owed = true
		fallthrough
	case waits:
		queue = nil
	}
	if !f.job { // while a pull runs its status is its own
		c.sync(status.Sync, healthy, queue)
	}
	if ops := c.patch(); ops != nil {
		now, err := r.send(ctx, c)
		if err != nil {
			r.o.Meter.Failed(phaseStatus, false)
			return err
		}
		r.wrote(now)
	}
	r.report(status.Health, check, found)
	r.dealtWithRevision()
	if r.judgedNow != "" {
		r.keepJudged(ctx, f.trust, r.judgedNow)
	}
	if r.due.resync && r.probe != nil && r.probe.asked {
		r.note.asked = asked
	}
	if queue == nil {
		return nil
	}
	return r.pull(ctx, *queue)
}

// pull queues a pull job.
func (r *reconciling) pull(ctx context.Context, q request) error {
	err := r.server.pull(ctx, r.key, q.incremental)
	switch {
	case apierrors.IsAlreadyExists(err):
		r.note.owed = r.note.owed || !q.incremental
		return nil
	case err != nil:
		r.o.Meter.Failed(phaseSync, false)
		return err
	}
	r.note.asked = r.facts.now
	if r.facts.rekeyed { // whatever it is queued for, it verifies
		r.keepJudged(ctx, r.facts.trust, "")
	}
	if !q.incremental {
		r.note.owed, r.note.whole = false, true
	}
	r.tell(r.key, "info", "pull queued: "+q.reason)
	return nil
}
