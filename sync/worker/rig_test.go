package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/testenv"
	"limpet/sync/worker/checkout"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// rig is an agent with nothing but the pull worker, between a real Git host and an API server. What
// the tests assert is what went over the wire.
type rig struct {
	t          *testing.T
	namespace  string
	client     *kube.Client
	store      *state.Store
	controller *jobs.Controller
	wire       *recording
	repo       *testenv.Repository
	git        *testenv.GitServer
	mirrors    *git.Mirrors
	url        string
	done       chan jobs.Event // jobs that were completed, left alone or lost
	number     int
	options    PullOptions
	keys       auth.Source
	terms      jobs.Options      // of the next start
	halt       func()            // ends the agent and waits for it
	watched    *kube.Informer    // of the agent, of Repositories
	events     chan struct{}     // of watched, cap 1
	notes      map[string]string // annotations of the Repository
}

// recording is a transport that keeps the requests to the server.
type recording struct {
	next http.RoundTripper

	mu    sync.Mutex // guards the fields below
	fault func(*http.Request) *http.Response
	seen  []request
}

type request struct {
	method, path, query string
	body                string
	code                int
}

// answer has fault answer requests in the server's place, where it does not return nil. A nil fault
// leaves all to the server.
func (r *recording) answer(fault func(*http.Request) *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	r.mu.Lock()
	fault := r.fault
	r.mu.Unlock()
	var resp *http.Response
	var err error
	if fault != nil {
		resp = fault(req)
	}
	if resp == nil {
		resp, err = r.next.RoundTrip(req)
	}
	seen := request{method: req.Method, path: req.URL.Path, query: req.URL.RawQuery, body: string(body)}
	if err == nil {
		seen.code = resp.StatusCode
	}
	if req.URL.Query().Get("watch") == "" {
		r.mu.Lock()
		r.seen = append(r.seen, seen)
		r.mu.Unlock()
	}
	return resp, err
}

// take returns the requests since the last call that are about dashboards, folders and
// repositories: reads and writes apart, as "PUT dashboards/x".
func (r *recording) take() (reads, writes []string, all []request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.seen {
		_, rest, _ := strings.Cut(q.path, "/namespaces/")
		_, rest, _ = strings.Cut(rest, "/")
		name, _, _ := strings.Cut(rest, "/")
		if name == "jobs" || name == "historicjobs" || name == "" {
			continue
		}
		all = append(all, q)
		line := q.method + " " + rest
		if q.method == http.MethodPost {
			var o struct{ Metadata struct{ Name string } }
			_ = json.Unmarshal([]byte(q.body), &o)
			line += "/" + o.Metadata.Name
		}
		if q.code >= 400 {
			line += fmt.Sprintf(" %d", q.code)
		}
		if q.method == http.MethodGet {
			reads = append(reads, line)
		} else if name != "repositories" && !strings.Contains(q.query, "dryRun=All") {
			writes = append(writes, line)
		}
	}
	r.seen = nil
	slices.Sort(writes)
	return reads, writes, all
}

// namespaces keep the rigs on a shared server apart.
var namespaces atomic.Int64

// serverOf starts one of the two servers and returns its base URL and transport.
func serverOf(t *testing.T, kind string, store *state.Store) (string, http.RoundTripper) {
	t.Helper()
	if kind == "real" {
		s := testenv.Real(t)
		return s.URL, s.Client(t).Transport
	}
	s, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		web.Close()
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	return web.URL, transport
}

// newRig starts an agent with an empty Git repository. change may alter the options of the worker.
func newRig(t *testing.T, server string, change func(*PullOptions)) *rig {
	t.Helper()
	dir := t.TempDir()
	store, _, err := state.Open(context.Background(), state.Options{Path: filepath.Join(dir, "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &rig{t: t, store: store, namespace: fmt.Sprintf("pull-%d", namespaces.Add(1)), done: make(chan jobs.Event, 16)}
	url, transport := serverOf(t, server, store)
	r.wire = &recording{next: transport}
	log := slog.New(slog.DiscardHandler)
	if r.client, err = kube.Connect(context.Background(), kube.Config{Server: url, Transport: r.wire, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	r.repo = testenv.EmptyRepo(t)
	r.git = testenv.Git(t, testenv.GitOptions{})
	r.url = r.git.Serve("ops/dashboards.git", r.repo.Dir)
	if r.mirrors, err = git.Open(filepath.Join(dir, "mirrors"), git.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.mirrors.Close() })

	o := PullOptions{Client: r.client, Source: checkout.Source{Git: r.mirrors, Credentials: auth.Chain()}, Store: store, Logger: log}
	if change != nil {
		change(&o)
	}
	r.options = o
	r.start()
	t.Cleanup(func() { r.halt() })
	return r
}

// start starts the agent, again after halt.
func (r *rig) start() {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	queue := r.client.Informer(api.Jobs, r.namespace, kube.InformerOptions{})
	repos := r.client.Informer(api.Repositories, r.namespace, kube.InformerOptions{})
	r.watched, r.events = repos, make(chan struct{}, 1)
	events := r.events
	repos.AddHandler(kube.Handler{Any: func() {
		select {
		case events <- struct{}{}:
		default:
		}
	}})
	var err error
	o := r.terms
	o.Namespace, o.Logger, o.Grace = r.namespace, log, 2*time.Second
	o.Observe = func(e jobs.Event) {
		switch e.Type {
		case jobs.EventCompleted, jobs.EventSkipped, jobs.EventLost, jobs.EventRetry:
			r.done <- e
		}
	}
	pull := NewPull(r.options)
	r.controller, err = jobs.New(r.client, queue, repos, r.store, r.workers(pull), o)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{queue.Run, repos.Run, r.controller.Run} {
		g.Go(func() error { return run(ctx) })
	}
	r.halt = sync.OnceFunc(func() {
		r.watched = nil
		stop()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
}

// update stores a Repository that was read and changed.
func (r *rig) update(u *unstructured.Unstructured) {
	r.t.Helper()
	changed, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Update(r.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.seen(changed)
}

// seen waits until the watch of the agent, if it runs, has shown a version of the Repository.
func (r *rig) seen(u *unstructured.Unstructured) {
	r.t.Helper()
	late := time.After(time.Minute)
	for r.watched != nil {
		shown, ok := r.watched.Get(r.namespace, u.GetName())
		if ok && version(r.t, shown) >= version(r.t, u) {
			return
		}
		select {
		case <-r.events:
		case <-late:
			r.t.Fatal("the watch has not shown the Repository within a minute")
		}
	}
}

func version(t *testing.T, u *unstructured.Unstructured) int {
	t.Helper()
	n, err := strconv.Atoi(u.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (r *rig) workers(pull *Pull) []jobs.Worker {
	orphans := NewOrphans(r.options)
	all := []jobs.Worker{pull, NewPullRequest(pull), NewRelease(orphans), NewRemove(orphans)}
	for _, w := range NewWrites(pull, r.keys) {
		all = append(all, w)
	}
	return all
}

// repository makes the Repository object "repo".
func (r *rig) repository(spec map[string]any, annotations map[string]string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": merged(map[string]any{
		"title": "Dashboards", "type": "git", "workflows": []any{},
		"git":  map[string]any{"url": r.url, "branch": testenv.Branch},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)},
	}, spec)}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("repo")
	u.SetAnnotations(annotations)
	made, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Create(r.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.seen(made)
}

func merged(a, b map[string]any) map[string]any {
	for k, v := range b {
		inner, both := a[k].(map[string]any)
		if more, ok := v.(map[string]any); ok && both {
			v = merged(inner, more)
		}
		a[k] = v
	}
	return a
}

// submit queues a pull job without waiting for it.
func (r *rig) submit(incremental bool, annotations map[string]string) {
	r.t.Helper()
	r.create(map[string]any{"action": "pull", "pull": map[string]any{"incremental": incremental}}, annotations)
}

// create queues a job with this spec.
func (r *rig) create(spec map[string]any, annotations map[string]string) {
	r.t.Helper()
	r.number++
	spec["repository"] = "repo"
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(api.Jobs.GroupVersion().String())
	u.SetKind("Job")
	u.SetName(strings.ToLower(fmt.Sprintf("repo-%s-%d", spec["action"], r.number)))
	u.SetLabels(map[string]string{api.LabelRepository: "repo"})
	u.SetAnnotations(annotations)
	if _, err := r.client.Resource(api.Jobs).Namespace(r.namespace).Create(r.t.Context(), u, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// ended waits for the next job to end, or to be left alone.
func (r *rig) ended() jobs.Event {
	r.t.Helper()
	select {
	case e := <-r.done:
		return e
	case <-time.After(60 * time.Second):
		r.t.Fatal("no job has ended within a minute")
	}
	return jobs.Event{}
}

// pull runs a pull job and returns its record and its status.
func (r *rig) pull(incremental bool, annotations map[string]string) (state.Record, api.JobStatus) {
	r.t.Helper()
	return r.run(map[string]any{"action": "pull", "pull": map[string]any{"incremental": incremental}}, annotations)
}

// run runs a job with this spec and returns its record and its status.
func (r *rig) run(spec map[string]any, annotations map[string]string) (state.Record, api.JobStatus) {
	r.t.Helper()
	r.create(spec, annotations)
	e := r.ended()
	if e.Type != jobs.EventCompleted {
		r.t.Fatalf("the job was %s: %s", e.Type, e.Text)
	}
	records, err := r.store.History(r.t.Context(), state.Query{UID: e.UID})
	if err != nil || len(records) != 1 {
		r.t.Fatalf("history of %s: %d records, %v", e.UID, len(records), err)
	}
	var status api.JobStatus
	if err := json.Unmarshal(records[0].Status, &status); err != nil {
		r.t.Fatal(err)
	}
	return records[0], status
}

// expect runs a pull and checks its state, message and writes.
func (r *rig) expect(name string, incremental bool, wantState, wantMessage string, writes ...string) api.JobStatus {
	r.t.Helper()
	r.wire.take()
	record, status := r.pull(incremental, nil)
	_, got, _ := r.wire.take()
	slices.Sort(writes)
	if !slices.Equal(got, writes) {
		r.t.Fatalf("%s: writes\n got %q\nwant %q\nstatus %+v", name, got, writes, status)
	}
	if record.State != wantState || !strings.Contains(record.Message, wantMessage) {
		r.t.Fatalf("%s: ended as %s %q, want %s %q; %+v", name, record.State, record.Message, wantState, wantMessage, status)
	}
	return status
}

// object reads an object of the server; nil when there is none.
func (r *rig) object(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	r.t.Helper()
	u, err := r.client.Resource(gvr).Namespace(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

// remove deletes an object of the server.
func (r *rig) remove(gvr schema.GroupVersionResource, name string) {
	r.t.Helper()
	if err := r.client.Resource(gvr).Namespace(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

var (
	dashboards = schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}
	folders    = schema.GroupVersionResource{Group: api.FolderGroup, Version: "v1", Resource: "folders"}
)

// sync returns the sync status of the Repository.
func (r *rig) sync() (api.SyncStatus, *unstructured.Unstructured) {
	r.t.Helper()
	u := r.object(api.Repositories, "repo")
	view, err := api.RepositoryView(u)
	if err != nil {
		r.t.Fatal(err)
	}
	return view.Status.Sync, u
}

// commit changes files: path, content, ...; an empty content deletes.
func (r *rig) commit(files ...string) string {
	r.t.Helper()
	var changes []testenv.Change
	for i := 0; i < len(files); i += 2 {
		c := testenv.Change{Path: files[i]}
		if files[i+1] != "" {
			c.Data = []byte(files[i+1])
		}
		changes = append(changes, c)
	}
	return r.repo.Commit(r.t, "change", changes...)
}

func board(uid, title string) string {
	return fmt.Sprintf(`{"uid":%q,"title":%q,"panels":[],"schemaVersion":39,"tags":[]}`+"\n", uid, title)
}

func folderID(dir string) string { return resources.FolderID("repo", dir) }

// change is a rename of from to path, or with content a write of path.
func change(path, from string, content ...string) testenv.Change {
	c := testenv.Change{Path: path, From: from}
	for _, data := range content {
		c.Data = []byte(data)
	}
	return c
}
