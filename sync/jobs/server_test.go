package jobs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// memory stands for Grafana's API server where the real embedded one cannot go: inside a synctest
// bubble, with faults at will. It keeps to the semantics that this package depends on:
// resourceVersion and UID conflicts, delete preconditions, names that are used again, label
// selectors, unconditional writes, no jobs/status. It writes down who changed what. Objects are
// never changed once they are stored: who sends one gives it away, and who gets one from a write or
// a watch does not touch it.
type memory struct {
	mu      sync.Mutex // guards everything below; never held while waiting
	rev     int64
	objects map[string]map[queue.Key]*unstructured.Unstructured // by resource
	skew    time.Duration                                       // of the server's clock
	absent  map[string]int                                      // resource -> status with which it is refused
	audit   []entry
	tell    func(e entry) // of every change
}

// call is one request, as faults and audits see it.
type call struct {
	Agent, Verb, Resource, Name string
	Lease                       bool // it renews a lease
	bound                       bool // it carries UID and resourceVersion
	sent                        simSent
	body                        *unstructured.Unstructured
}

// entry is one accepted write.
type entry struct {
	call
	at          time.Time // of the bubble
	before, now *unstructured.Unstructured
}

func newMemory(tell func(e entry)) memory {
	type kind = map[queue.Key]*unstructured.Unstructured
	return memory{rev: 100, absent: map[string]int{}, tell: tell, objects: map[string]kind{"jobs": {}, "repositories": {}, "historicjobs": {}}}
}

func (m *memory) now() time.Time { return time.Now().Add(m.skew) }

// The API. The caller has the lock.

func status(code int, c *call, after int) error {
	gr := schema.GroupResource{Group: api.ProvisioningGroup, Resource: c.Resource}
	return apierrors.NewGenericServerResponse(code, c.Verb, gr, c.Name, "", after, true)
}

func (m *memory) find(c *call, k queue.Key) (*unstructured.Unstructured, error) {
	if u := m.objects[c.Resource][k]; u != nil {
		return u, nil
	}
	return nil, status(http.StatusNotFound, c, 0)
}

// create makes an object.
func (m *memory) create(c *call, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if u.GetName() == "" {
		u.SetName(u.GetGenerateName() + strconv.FormatInt(m.rev, 36))
	}
	if m.objects[c.Resource][keyOf(u)] != nil {
		return nil, apierrors.NewAlreadyExists(api.Jobs.GroupResource(), u.GetName())
	}
	u.SetUID(uidOf(m.rev + 1))
	u.SetCreationTimestamp(stamp(m.now()))
	u.SetGeneration(1)
	return u, m.store(entry{call: *c, now: u})
}

// update replaces an object; without a resourceVersion it does so whatever is there.
func (m *memory) update(c *call, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	cur := m.objects[c.Resource][keyOf(u)]
	switch {
	case cur == nil && u.GetUID() == "" && u.GetResourceVersion() == "":
		return m.create(c, u)
	case cur == nil && u.GetUID() == "":
		return nil, status(http.StatusNotFound, c, 0)
	case cur == nil, u.GetUID() != "" && u.GetUID() != cur.GetUID(),
		u.GetResourceVersion() != "" && u.GetResourceVersion() != cur.GetResourceVersion():
		return nil, status(http.StatusConflict, c, 0)
	}
	c.bound = u.GetUID() != "" && u.GetResourceVersion() != ""
	u.SetUID(cur.GetUID())
	u.SetCreationTimestamp(cur.GetCreationTimestamp())
	return u, m.store(entry{call: *c, before: cur, now: u})
}

// delete deletes under the preconditions that are given.
func (m *memory) delete(c *call, k queue.Key, uid, version string) error {
	cur, err := m.find(c, k)
	if err != nil {
		return err
	}
	if uid != "" && uid != api.Meta(cur, "uid") || version != "" && version != cur.GetResourceVersion() {
		return status(http.StatusConflict, c, 0)
	}
	c.bound = uid != "" && version != ""
	return m.store(entry{call: *c, before: cur})
}

// store makes a change and tells of it.
func (m *memory) store(e entry) error {
	m.rev++
	e.at = time.Now()
	if e.now != nil {
		e.now.SetResourceVersion(strconv.FormatInt(m.rev, 10))
		m.objects[e.Resource][keyOf(e.now)] = e.now
	} else {
		delete(m.objects[e.Resource], keyOf(e.before))
	}
	m.audit = append(m.audit, e)
	m.tell(e)
	return nil
}

func (m *memory) sorted(resource string) (out []*unstructured.Unstructured) {
	for _, k := range slices.SortedFunc(maps.Keys(m.objects[resource]), byName) {
		out = append(out, m.objects[resource][k])
	}
	return out
}

// way is an agent's way to the server. carry takes a call there and its answer back; do runs at the
// server, under its lock.
type way struct {
	memory *memory
	carry  func(ctx context.Context, c *call, do func() error) error
}

var _ server = way{}

func (w way) travel(ctx context.Context, c *call, do func() error) error {
	return w.carry(ctx, c, func() error {
		if code := w.memory.absent[c.Resource]; code != 0 {
			return status(code, c, 0)
		}
		return do()
	})
}

func (w way) get(
	ctx context.Context, kind schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	c := &call{Verb: "get", Resource: kind.Resource, Name: name}
	var out *unstructured.Unstructured // may be written when the caller has gone
	err := w.travel(ctx, c, func() (err error) {
		if out, err = w.memory.find(c, key(namespace, name)); err == nil {
			out = out.DeepCopy()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (w way) list(ctx context.Context, kind schema.GroupVersionResource, _, selector string, each visit) error {
	picks, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	var found []*unstructured.Unstructured
	err = w.travel(ctx, &call{Verb: "list", Resource: kind.Resource, Name: selector}, func() error {
		for _, u := range w.memory.sorted(kind.Resource) {
			if picks.Matches(labels.Set(u.GetLabels())) {
				found = append(found, u)
			}
		}
		return nil
	})
	if err != nil { // found may be written later
		return err
	}
	for _, u := range found {
		err = cmp.Or(err, each(u))
	}
	return err
}

func (w way) putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if job.GetUID() == "" || job.GetResourceVersion() == "" {
		panic("jobs: internal error: unconditional write of a job")
	}
	c := &call{Verb: "update", Resource: "jobs", Name: job.GetName(), body: job}
	var out *unstructured.Unstructured // may be written when the caller has gone
	if err := w.travel(ctx, c, func() (err error) { out, err = w.memory.update(c, job); return err }); err != nil {
		return nil, err
	}
	return out, nil
}

func (w way) archive(ctx context.Context, historic *unstructured.Unstructured) error {
	c := &call{Verb: "create", Resource: "historicjobs", Name: historic.GetName(), body: historic}
	return w.travel(ctx, c, func() error {
		_, err := w.memory.create(c, historic)
		return err
	})
}

func (w way) delete(ctx context.Context, kind schema.GroupVersionResource, u *unstructured.Unstructured) error {
	c := &call{Verb: "delete", Resource: kind.Resource, Name: u.GetName(), body: u}
	return w.travel(ctx, c, func() error { return w.memory.delete(c, keyOf(u), api.Meta(u, "uid"), u.GetResourceVersion()) })
}

// cache is what an agent knows of a resource.
type cache struct {
	handler kube.Handler
	synced  chan struct{}

	mu      sync.Mutex // guards the fields below
	objects map[queue.Key]*unstructured.Unstructured
	ready   bool
}

var _ lister = (*cache)(nil)

func newCache() cache {
	return cache{synced: make(chan struct{}), objects: map[queue.Key]*unstructured.Unstructured{}}
}

// show changes the cache, then calls the handler.
func (s *cache) show(k queue.Key, now *unstructured.Unstructured) {
	s.mu.Lock()
	old := s.objects[k]
	if now == nil {
		delete(s.objects, k)
	} else {
		s.objects[k] = now
	}
	s.mu.Unlock()
	switch {
	case now == old:
	case now == nil:
		s.handler.Delete(kube.ObjectOf(old))
	case old == nil:
		s.handler.Add(kube.ObjectOf(now))
	default:
		s.handler.Update(kube.ObjectOf(old), kube.ObjectOf(now))
	}
}

// complete reports that all of a first list was shown.
func (s *cache) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		s.ready = true
		close(s.synced)
	}
}

func (s *cache) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.objects[key(namespace, name)]
	return u, ok
}

func (s *cache) Objects() (out []kube.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(s.objects), byName) {
		out = append(out, kube.ObjectOf(s.objects[k]))
	}
	return out
}

func (s *cache) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

func (s *cache) WaitSynced(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func byName(a, b queue.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// model is the server of the tests of a rig.
type model struct {
	memory
	watches map[*watch]bool
	known   map[string]string // token -> agent, of claims that were there before
	calls   []call            // everything that arrived
	fault   func(c call) fault
}

func newModel() *model {
	m := &model{watches: map[*watch]bool{}}
	m.memory = newMemory(func(e entry) {
		for w := range m.watches {
			if w.resource == e.Resource {
				w.events <- e
			}
		}
	})
	return m
}

// fault is what goes wrong with a call.
type fault struct {
	delay      time.Duration // before the server sees it
	lose       bool          // the request never arrives
	loseAnswer bool          // it is carried out, the answer never arrives
	lateAnswer time.Duration // it is carried out, the answer takes that long
	status     int           // it is refused with this status
	after      int           // seconds, Retry-After of the refusal
}

// link is one agent's way to the model, and its clock of the server.
type link struct {
	model  *model
	agent  string
	mu     sync.Mutex           // guards the fields below
	dead   bool                 // the agent has crashed or is cut off
	known  bool                 // an answer has told the time
	behind func() time.Duration // how long each event of a watch takes; nil = no time
}

// lag makes the watches of an agent slow.
func (l *link) lag(behind func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = behind
}

func (l *link) cut(dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = dead
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Now and Millis are the server's clock, as its answers tell it to the second.
func (l *link) Now() (time.Time, time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.model.now(), time.Second / 2, l.known
}

func (l *link) Millis(time.Duration) (int64, error) {
	if now, _, known := l.Now(); known {
		return now.UnixMilli(), nil
	}
	return 0, errSimClock
}

var errCut = errors.New("connect: connection refused")

// way returns the way of ordinary calls, or that of renewals.
func (l *link) way(renewals bool) way {
	return way{&l.model.memory, func(ctx context.Context, c *call, do func() error) error {
		ctx, cancel := context.WithTimeout(ctx, simCallTime)
		defer cancel()
		c.Agent, c.Lease = l.agent, renewals && c.Verb == "update"
		if l.isDead() {
			return errCut
		}
		l.model.mu.Lock()
		l.model.calls = append(l.model.calls, *c)
		hook := l.model.fault
		l.model.mu.Unlock()
		var f fault
		if hook != nil {
			f = hook(*c)
		}
		if f.delay > 0 && !waitFor(ctx, f.delay) {
			return ctx.Err()
		}
		if f.lose || l.isDead() {
			return errCut
		}
		err := error(nil)
		if f.status != 0 {
			refused := *c
			refused.Name = "" // as a proxy refuses
			err = status(f.status, &refused, f.after)
		} else {
			l.model.mu.Lock()
			err = do()
			l.model.mu.Unlock()
		}
		if f.lateAnswer > 0 && !waitFor(ctx, f.lateAnswer) {
			return ctx.Err()
		}
		if f.loseAnswer || l.isDead() {
			return errCut
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.known = true
		return err
	}}
}

// watch is an agent's watch of a resource of the model. Once it is open it goes on whatever the
// link does.
type watch struct {
	cache
	resource string
	link     *link
	events   chan entry
}

// watchRoom is more events than any test makes before its watches are read.
const watchRoom = 100_000

func (l *link) watch(resource string) *watch {
	return &watch{cache: newCache(), resource: resource, link: l, events: make(chan entry, watchRoom)}
}

func (w *watch) run(ctx context.Context) {
	for w.link.isDead() {
		if !waitFor(ctx, time.Second) {
			return
		}
	}
	m := w.link.model
	m.mu.Lock()
	all := m.sorted(w.resource)
	m.watches[w] = true
	m.mu.Unlock()
	defer m.set(func() { delete(m.watches, w) })
	w.link.mu.Lock()
	w.link.known = true
	w.link.mu.Unlock()
	w.listing(true)
	for _, u := range all {
		w.show(keyOf(u), u)
	}
	w.listing(false)
	w.complete()
	for {
		select {
		case e := <-w.events:
			w.link.mu.Lock()
			behind := w.link.behind
			w.link.mu.Unlock()
			if behind != nil {
				<-time.After(behind())
			}
			if e.now != nil {
				w.show(keyOf(e.now), e.now)
			} else {
				w.show(keyOf(e.before), nil)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) listing(on bool) {
	if w.handler.Listing != nil {
		w.handler.Listing(on)
	}
}

// What tests do to the model as a person or another program would.

func person(verb, resource, name string) *call {
	return &call{Agent: "person", Verb: verb, Resource: resource, Name: name}
}

func (m *model) put(resource, ns string, u *unstructured.Unstructured) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	u.SetNamespace(ns)
	u, _ = m.create(person("create", resource, u.GetName()), u)
	return u.DeepCopy()
}

func (m *model) get(resource, ns, name string) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.objects[resource][key(ns, name)]; u != nil {
		return u.DeepCopy()
	}
	return nil
}

func (m *model) all(resource string) []*unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted(resource)
}

func (m *model) edit(resource, ns, name string, fn func(u *unstructured.Unstructured)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.objects[resource][key(ns, name)].DeepCopy()
	fn(next)
	_, _ = m.update(person("update", resource, name), next)
}

func (m *model) remove(resource, ns, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.memory.delete(person("delete", resource, name), key(ns, name), "", "")
}

func (m *model) inject(fn func(c call) fault) { m.set(func() { m.fault = fn }) }

// set changes how the server behaves.
func (m *model) set(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}
