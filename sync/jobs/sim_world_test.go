package jobs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

// simWorld is one simulated installation: an API server in memory, agents on
// hosts, Grafana's own drivers, people. One seed decides everything in it.
//
// The server keeps to what jobs depend on: resourceVersion and UID conflicts,
// delete preconditions, names that are used again, unconditional writes, no
// jobs/status. Objects are never changed once they are stored: who sends one gives
// it away, and who gets one from a write or a watch does not touch it.
type simWorld struct {
	seed  uint64
	fate  fate
	start time.Time
	calm  time.Time // from here on nothing goes wrong any more
	skew  time.Duration
	down  []window // the server answers nobody
	loki  bool     // it keeps no HistoricJobs
	rough int      // how many calls in a thousand go wrong
	hosts []*simHost
	repos simRepos

	grafanas []*simGrafana

	ordered bool // watches show all jobs in the order of their writes, as one server does
	deadly  int  // how many steps of a job in a thousand kill the process
	options Options
	change  func(*simProcess) // nil but in TestSimulationFinds
	waited  time.Duration     // from the calm to the end
	over    atomic.Bool

	mu        sync.Mutex // guards everything below
	rev       int64
	jobs      map[queue.Key]*unstructured.Unstructured
	historic  map[string]*unstructured.Unstructured // by namespace and name
	watches   []*simWatch
	processes []*simProcess
	audit     []simEntry
	told      []simTale
	oracle    simOracle
}

// simEntry is one accepted write.
type simEntry struct {
	at          time.Time // of the bubble
	who         string
	verb        string
	sent        simSent
	before, now *unstructured.Unstructured
}

// simSent is how it stood with a process when it sent a write.
type simSent struct {
	at      time.Time     // of the bubble
	clock   bool          // it knew the server's time
	held    bool          // it had a confirmed claim of the job
	proof   time.Duration // age of that claim by its own monotonic clock
	asleep  bool          // the host slept before the request left
	process *simProcess   // nil for everybody else
}

// simTale is a line of the story of a job.
type simTale struct {
	at             time.Time
	who, what, uid string
}

var errSimClock = errors.New("the time of the server is not known")

func (w *simWorld) now() time.Time { return time.Now().Add(w.skew) }

func (w *simWorld) tale(who, what, uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, simTale{time.Now(), who, what, uid})
}

// The API. The caller has the lock.

func (w *simWorld) getJob(k queue.Key) (*unstructured.Unstructured, error) {
	if u := w.jobs[k]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(api.Jobs.GroupResource(), k.Name)
}

// putJob replaces a job; without a resourceVersion it does so whatever is there.
func (w *simWorld) putJob(who string, sent simSent, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k := keyOf(job)
	cur := w.jobs[k]
	conflict := func(why string) error {
		return apierrors.NewConflict(api.Jobs.GroupResource(), k.Name, errors.New(why))
	}
	switch {
	case cur == nil && job.GetUID() != "":
		return nil, conflict("precondition failed: UID")
	case cur == nil && job.GetResourceVersion() != "":
		return nil, apierrors.NewNotFound(api.Jobs.GroupResource(), k.Name)
	case cur == nil:
		return w.createJob(who, job)
	case job.GetUID() != "" && job.GetUID() != cur.GetUID():
		return nil, conflict("precondition failed: UID")
	case job.GetResourceVersion() != "" && job.GetResourceVersion() != cur.GetResourceVersion():
		return nil, conflict("the object has been modified")
	}
	job.SetUID(cur.GetUID())
	job.SetCreationTimestamp(cur.GetCreationTimestamp())
	w.store(simEntry{who: who, sent: sent, verb: "put", before: cur, now: job})
	return job, nil
}

func (w *simWorld) createJob(who string, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if w.jobs[keyOf(job)] != nil {
		return nil, apierrors.NewAlreadyExists(api.Jobs.GroupResource(), job.GetName())
	}
	job.SetUID(uidOf(w.rev + 1))
	job.SetCreationTimestamp(stamp(w.now()))
	job.SetGeneration(1)
	w.store(simEntry{who: who, verb: "create", now: job})
	return job, nil
}

// deleteJob deletes under the preconditions that are given.
func (w *simWorld) deleteJob(who string, sent simSent, k queue.Key, uid, resourceVersion string) error {
	cur := w.jobs[k]
	switch {
	case cur == nil:
		return apierrors.NewNotFound(api.Jobs.GroupResource(), k.Name)
	case uid != "" && uid != api.Meta(cur, "uid"), resourceVersion != "" && resourceVersion != cur.GetResourceVersion():
		return apierrors.NewConflict(api.Jobs.GroupResource(), k.Name, errors.New("precondition failed"))
	}
	w.store(simEntry{who: who, sent: sent, verb: "delete", before: cur})
	return nil
}

// store makes a change, lets the oracle judge it and tells the watches.
func (w *simWorld) store(e simEntry) {
	w.rev++
	e.at = time.Now()
	u := e.now
	if u != nil {
		u.SetResourceVersion(strconv.FormatInt(w.rev, 10))
		w.jobs[keyOf(u)] = u
	} else {
		u = e.before
		delete(w.jobs, keyOf(u))
	}
	w.audit = append(w.audit, e)
	w.oracle.judge(w, e)
	for _, watch := range w.watches {
		watch.expect(w.rev, e)
	}
}

// addHistoric keeps a HistoricJob.
func (w *simWorld) addHistoric(who string, sent simSent, h *unstructured.Unstructured) error {
	if w.loki {
		return apierrors.NewNotFound(api.HistoricJobs.GroupResource(), "")
	}
	w.rev++
	if h.GetName() == "" {
		h.SetName(h.GetGenerateName() + strconv.FormatInt(w.rev, 36))
	}
	id := keyOf(h).String()
	if w.historic[id] != nil {
		return apierrors.NewAlreadyExists(api.HistoricJobs.GroupResource(), h.GetName())
	}
	h.SetUID(uidOf(w.rev))
	h.SetResourceVersion(strconv.FormatInt(w.rev, 10))
	w.historic[id] = h
	e := simEntry{at: time.Now(), who: who, sent: sent, verb: "archive", now: h}
	w.audit = append(w.audit, e)
	w.oracle.judge(w, e)
	return nil
}

// expired lists the claims older than a time.
func (w *simWorld) expired(before int64) (out []unstructured.Unstructured) {
	for _, k := range slices.SortedFunc(maps.Keys(w.jobs), byName) {
		if at, err := strconv.ParseInt(api.Label(w.jobs[k], api.LabelClaim), 10, 64); err == nil && at < before {
			out = append(out, *w.jobs[k])
		}
	}
	return out
}

func (w *simWorld) archived(uid string) bool {
	for _, h := range w.historic {
		if api.Label(h, api.LabelOriginalUID) == uid {
			return true
		}
	}
	return false
}

// What people do.

func (w *simWorld) newJob(repository, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec": map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": false}}}}
	u.SetNamespace("default")
	u.SetName(name)
	u.SetLabels(map[string]string{api.LabelRepository: repository})
	return u
}

func uidIn(e simEntry) string {
	switch {
	case e.verb == "archive":
		return api.Label(e.now, api.LabelOriginalUID)
	case e.now != nil:
		return string(e.now.GetUID())
	}
	return string(e.before.GetUID())
}

func (e simEntry) String() string {
	show := func(u *unstructured.Unstructured) string {
		if u == nil {
			return "-"
		}
		state, _, _ := unstructured.NestedString(u.Object, "status", "state")
		l := u.GetLabels()
		return fmt.Sprintf("rv%s [%s %s] %s %v", u.GetResourceVersion(), l[api.LabelClaimOwner], l[api.LabelClaim], state, u.GetAnnotations())
	}
	return fmt.Sprintf("%s %s: %s -> %s", e.verb, uidIn(e), show(e.before), show(e.now))
}
