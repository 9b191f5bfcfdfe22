package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
)

// model stands for Grafana's API server where the real embedded one cannot go:
// inside a synctest bubble, without sockets, with faults at will. It keeps to
// the semantics that this package depends on: resourceVersion and UID conflicts,
// delete preconditions, generateName, label selectors, limit and continue, watch
// with initial events and bookmark, the Date header, no jobs/status. It writes
// down who changed what, so that tests can ask whether a write was lawful.
type model struct {
	mu       sync.Mutex // guards everything below; never held while waiting
	rev      int64
	objects  map[string]map[string]*unstructured.Unstructured // resource -> ns/name
	watchers map[*watcher]bool
	audit    []entry
	skew     time.Duration     // of the server's clock
	absent   map[string]int    // resource -> status with which it is refused
	known    map[string]string // token -> agent, of claims that were there before
	noDate   bool              // answers carry no time
	calls    []call            // everything that arrived, but watches
	fault    func(c call) fault
}

// call is one request, as faults and audits see it.
type call struct {
	Agent, Verb, Resource, Name string
	Lease                       bool // it changes nothing of a job but its claim time
	bound                       bool // a delete: it carries UID and resourceVersion
	body                        *unstructured.Unstructured
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

func newModel() *model {
	return &model{rev: 100, objects: map[string]map[string]*unstructured.Unstructured{}, watchers: map[*watcher]bool{},
		absent: map[string]int{}}
}

// link is one agent's way to the model.
type link struct {
	model *model
	agent string
	mu    sync.Mutex // guards dead and behind
	dead  bool       // the agent has crashed or is cut off
	// behind is how long each piece of a watch takes; nil = no time.
	behind func() time.Duration
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

var errCut = errors.New("connect: connection refused")

func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	if l.isDead() {
		return nil, errCut
	}
	c := l.model.parse(req, body)
	c.Agent = l.agent
	var f fault
	l.model.mu.Lock()
	hook := l.model.fault
	if c.Verb != "watch" {
		l.model.calls = append(l.model.calls, c)
	}
	l.model.mu.Unlock()
	if hook != nil {
		f = hook(c)
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	switch {
	case f.lose || l.isDead():
		return nil, errCut
	case f.status != 0:
		resp := l.model.failure(f.status, "injected")
		if f.after > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(f.after))
		}
		return resp, nil
	}
	resp := l.model.serve(req, c, body)
	if f.lateAnswer > 0 {
		<-time.After(f.lateAnswer)
	}
	if f.loseAnswer || l.isDead() {
		resp.Body.Close()
		return nil, errCut
	}
	if c.Verb == "watch" {
		resp.Body = &slow{ReadCloser: resp.Body, link: l}
	}
	resp.Request = req
	return resp, nil
}

// slow is a watch that is behind as far as its link says.
type slow struct {
	io.ReadCloser
	link *link
}

func (s *slow) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.link.mu.Lock()
	behind := s.link.behind
	s.link.mu.Unlock()
	if behind != nil {
		<-time.After(behind())
	}
	return n, err
}

// parse reads verb, resource and name from the path.
func (m *model) parse(req *http.Request, body []byte) call {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/provisioning.grafana.app/v0alpha1/"), "/")
	c := call{}
	if len(parts) >= 3 && parts[0] == "namespaces" {
		c.Resource = parts[2]
		if len(parts) > 3 {
			c.Name = parts[3]
		}
	} else {
		c.Resource = parts[0]
	}
	c.Verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}[req.Method]
	if c.Verb == "get" && c.Name == "" {
		c.Verb = "list"
		if req.URL.Query().Get("watch") == "true" {
			c.Verb = "watch"
		}
	}
	if c.Verb == "create" || c.Verb == "update" {
		c.body = &unstructured.Unstructured{}
		if err := c.body.UnmarshalJSON(body); err != nil {
			panic(err)
		}
	}
	if c.Verb == "update" && c.Resource == "jobs" {
		m.mu.Lock()
		if cur := m.objects["jobs"][c.body.GetNamespace()+"/"+c.Name]; cur != nil {
			c.Lease = onlyRenews(cur, c.body)
		}
		m.mu.Unlock()
	}
	return c
}

// onlyRenews says that the two differ in the time of the claim at most.
func onlyRenews(before, after *unstructured.Unstructured) bool {
	owner := before.GetLabels()[api.LabelClaimOwner]
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, u := range []*unstructured.Unstructured{a, b} {
		l := u.GetLabels()
		delete(l, api.LabelClaim)
		u.SetLabels(l)
		u.SetResourceVersion("")
	}
	return owner != "" && equal(a, b) && before.GetLabels()[api.LabelClaim] != after.GetLabels()[api.LabelClaim]
}

func equal(a, b *unstructured.Unstructured) bool {
	x, _ := json.Marshal(a.Object)
	y, _ := json.Marshal(b.Object)
	return bytes.Equal(x, y)
}

func (m *model) now() time.Time { return time.Now().Add(m.skew) }

func (m *model) answer(status int, body any) *http.Response {
	data, _ := json.Marshal(body)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: m.header(), Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data))}
}

func (m *model) header() http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if !m.noDate {
		h.Set("Date", m.now().UTC().Format(http.TimeFormat))
	}
	return h
}

var reasons = map[int]string{404: "NotFound", 409: "Conflict", 403: "Forbidden", 405: "MethodNotAllowed", 422: "Invalid",
	429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 410: "Expired"}

func (m *model) failure(status int, text string) *http.Response {
	return m.answer(status, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reasons[status],
		"code": status, "message": text})
}

func (m *model) serve(req *http.Request, c call, body []byte) *http.Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status := m.absent[c.Resource]; status != 0 {
		return m.failure(status, c.Resource+" is not served")
	}
	ns := ""
	if parts := strings.Split(req.URL.Path, "/"); len(parts) > 5 && parts[4] == "namespaces" {
		ns = parts[5]
	}
	cur := m.objects[c.Resource][ns+"/"+c.Name]
	switch c.Verb {
	case "list":
		return m.list(req, c.Resource, ns)
	case "watch":
		return m.watch(req, c.Resource, ns)
	case "create":
		obj := c.body
		if obj.GetName() == "" {
			m.rev++
			obj.SetName(obj.GetGenerateName() + strconv.FormatInt(m.rev, 36))
		}
		if m.objects[c.Resource][ns+"/"+obj.GetName()] != nil {
			resp := m.failure(409, "already exists")
			resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","status":"Failure","reason":"AlreadyExists","code":409}`))
			return resp
		}
		return m.answer(201, m.store(c, ns, nil, obj).Object)
	case "get":
		if cur == nil {
			return m.failure(404, "not found")
		}
		return m.answer(200, cur.Object)
	case "update":
		return m.update(c, ns, cur)
	case "delete":
		return m.delete(c, ns, cur, body)
	}
	return m.failure(405, "no such verb")
}

func (m *model) update(c call, ns string, cur *unstructured.Unstructured) *http.Response {
	switch {
	case cur == nil && c.body.GetUID() != "": // create-on-update, refused for the UID
		return m.failure(409, "precondition failed: UID")
	case cur == nil:
		return m.failure(404, "not found")
	case c.body.GetUID() != "" && c.body.GetUID() != cur.GetUID():
		return m.failure(409, "precondition failed: UID")
	case c.body.GetResourceVersion() != "" && c.body.GetResourceVersion() != cur.GetResourceVersion():
		return m.failure(409, "the object has been modified")
	}
	same := c.body.DeepCopy()
	same.SetResourceVersion(cur.GetResourceVersion())
	if equal(same, cur) {
		return m.answer(200, cur.Object)
	}
	return m.answer(200, m.store(c, ns, cur, c.body).Object)
}

func (m *model) delete(c call, ns string, cur *unstructured.Unstructured, body []byte) *http.Response {
	var o struct {
		Preconditions struct{ UID, ResourceVersion *string }
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &o); err != nil {
			panic(err)
		}
	}
	switch uid, rv := o.Preconditions.UID, o.Preconditions.ResourceVersion; {
	case cur == nil:
		return m.failure(404, "not found")
	case uid != nil && *uid != string(cur.GetUID()), rv != nil && *rv != cur.GetResourceVersion():
		return m.failure(409, "precondition failed")
	}
	c.bound = o.Preconditions.UID != nil && o.Preconditions.ResourceVersion != nil
	m.store(c, ns, cur, nil)
	return m.answer(200, map[string]any{"kind": "Status", "status": "Success"})
}

// store puts or, with a nil object, removes, and tells the watchers.
func (m *model) store(c call, ns string, before, obj *unstructured.Unstructured) *unstructured.Unstructured {
	m.rev++
	typ := "MODIFIED"
	id := ns + "/" + c.Name
	if obj != nil {
		obj = obj.DeepCopy()
		obj.SetNamespace(ns)
		obj.SetGenerateName("")
		id = ns + "/" + obj.GetName()
		if before == nil {
			typ = "ADDED"
			obj.SetUID(uidOf(m.rev))
			obj.SetCreationTimestamp(stamp(m.now()))
			obj.SetGeneration(1)
		}
		obj.SetResourceVersion(strconv.FormatInt(m.rev, 10))
		if m.objects[c.Resource] == nil {
			m.objects[c.Resource] = map[string]*unstructured.Unstructured{}
		}
		m.objects[c.Resource][id] = obj
	} else {
		typ = "DELETED"
		delete(m.objects[c.Resource], id)
	}
	m.audit = append(m.audit, entry{call: c, at: m.now(), before: before, now: obj})
	seen := obj
	if seen == nil {
		seen = before.DeepCopy()
		seen.SetResourceVersion(strconv.FormatInt(m.rev, 10))
	}
	for w := range m.watchers {
		if w.resource == c.Resource && (w.namespace == "" || w.namespace == ns) {
			w.send(typ, seen)
		}
	}
	return obj
}

func (m *model) sorted(resource, ns string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for id, obj := range m.objects[resource] {
		if ns == "" || strings.HasPrefix(id, ns+"/") {
			out = append(out, obj)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].GetNamespace()+"/"+out[i].GetName() < out[j].GetNamespace()+"/"+out[j].GetName()
	})
	return out
}

func (m *model) list(req *http.Request, resource, ns string) *http.Response {
	q := req.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return m.failure(400, err.Error())
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	items, next := []any{}, ""
	for _, obj := range m.sorted(resource, ns) {
		id := obj.GetNamespace() + "/" + obj.GetName()
		if !selector.Matches(labels.Set(obj.GetLabels())) || id <= q.Get("continue") {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = items[limit-1].(map[string]any)["metadata"].(map[string]any)["namespace"].(string) + "/" +
				items[limit-1].(map[string]any)["metadata"].(map[string]any)["name"].(string)
			break
		}
		items = append(items, obj.Object)
	}
	return m.answer(200, map[string]any{"kind": "List", "apiVersion": "provisioning.grafana.app/v0alpha1",
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(m.rev, 10), "continue": next}, "items": items})
}

// watcher is one open watch.
type watcher struct {
	resource, namespace string
	events              chan []byte
}

func (w *watcher) send(typ string, obj *unstructured.Unstructured) {
	data, _ := json.Marshal(map[string]any{"type": typ, "object": obj.Object})
	w.events <- append(data, '\n')
}

// watchRoom is more events than any test makes before its watches are read.
const watchRoom = 100_000

func (m *model) watch(req *http.Request, resource, ns string) *http.Response {
	w := &watcher{resource: resource, namespace: ns, events: make(chan []byte, watchRoom)}
	initial := req.URL.Query().Get("sendInitialEvents") == "true"
	from, _ := strconv.ParseInt(req.URL.Query().Get("resourceVersion"), 10, 64)
	for _, obj := range m.sorted(resource, ns) {
		if rv, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64); initial || rv > from {
			w.send("ADDED", obj)
		}
	}
	if initial {
		mark := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job"}}
		mark.SetResourceVersion(strconv.FormatInt(m.rev, 10))
		mark.SetAnnotations(map[string]string{"k8s.io/initial-events-end": "true"})
		w.send("BOOKMARK", mark)
	}
	m.watchers[w] = true
	r, pipe := io.Pipe()
	go func() {
		defer func() {
			m.mu.Lock()
			delete(m.watchers, w)
			m.mu.Unlock()
			pipe.Close()
		}()
		for {
			select {
			case data := <-w.events:
				if _, err := pipe.Write(data); err != nil {
					return
				}
			case <-req.Context().Done():
				return
			}
		}
	}()
	resp := m.answer(200, nil)
	resp.Body, resp.ContentLength = r, -1
	return resp
}

// What tests do to the model as a person or another program would.

func (m *model) create(resource, ns string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store(call{Agent: "person", Verb: "create", Resource: resource}, ns, nil, obj).DeepCopy()
}

func (m *model) get(resource, ns, name string) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	if obj := m.objects[resource][ns+"/"+name]; obj != nil {
		return obj.DeepCopy()
	}
	return nil
}

func (m *model) all(resource string) []*unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted(resource, "")
}

func (m *model) edit(resource, ns, name string, fn func(obj *unstructured.Unstructured)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cur := m.objects[resource][ns+"/"+name]
	next := cur.DeepCopy()
	fn(next)
	m.store(call{Agent: "person", Verb: "update", Resource: resource, Name: name}, ns, cur, next)
}

func (m *model) remove(resource, ns, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(call{Agent: "person", Verb: "delete", Resource: resource, Name: name}, ns, m.objects[resource][ns+"/"+name], nil)
}

func (m *model) inject(fn func(c call) fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fn
}

// set changes how the server behaves.
func (m *model) set(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}
