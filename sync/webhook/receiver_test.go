package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const boards = "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/repositories/boards/webhook"

const hookSecret = "canary-3f1c-hook-secret"

// fakeStore is one Repository, default/boards, and the jobs that are asked for.
type fakeStore struct {
	mu     sync.Mutex // guards what follows
	repo   *Repository
	blind  bool
	err    error // of the next jobs
	queued []map[string]any
	seen   int
	enter  chan struct{} // if not nil, told when Queue begins, which then waits for leave
	leave  chan struct{}
}

func (d *fakeStore) Repository(_ context.Context, namespace, name string) *Repository {
	d.mu.Lock()
	defer d.mu.Unlock()
	if namespace != "default" || name != "boards" {
		return nil
	}
	return d.repo
}

func (d *fakeStore) Blind() bool    { return d.blind }
func (d *fakeStore) Now() time.Time { return time.Now() }

func (d *fakeStore) Queue(ctx context.Context, r *Repository, spec map[string]any) (*unstructured.Unstructured, error) {
	if d.enter != nil {
		d.enter <- struct{}{}
		<-d.leave
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmp.Or(d.err, ctx.Err()); err != nil {
		return nil, err
	}
	d.queued = append(d.queued, spec)
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job", "spec": spec}}
	job.SetName(r.Name + "-sync")
	return job, nil
}

func (d *fakeStore) Seen(context.Context, *Repository) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen++
	return nil
}

// rig is a Receiver with what it was asked to do.
type rig struct {
	*Receiver
	store  *fakeStore
	log    bytes.Buffer
	counts map[string]int
}

func newRig(t testing.TB) *rig {
	t.Helper()
	g := &rig{counts: map[string]int{},
		store: &fakeStore{repo: &Repository{Namespace: "default", Name: "boards", Secrets: [][]byte{[]byte(hookSecret)},
			URL: "https://github.com/ops/dashboards", Branch: "main", Sync: true, Hooked: true}}}
	var mu sync.Mutex // guards counts
	r, err := New(t.Context(), Options{Store: g.store, Facts: opened(t, filepath.Join(t.TempDir(), "limpet.db")), Incremental: Listed(100),
		Logger:    slog.New(slog.NewTextHandler(&g.log, nil)),
		Count:     func(outcome string) { mu.Lock(); defer mu.Unlock(); g.counts[outcome]++ },
		Processed: func(string) {},
		Accepted:  func(string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	g.Receiver = r
	return g
}

// send has the receiver answer a request of a client of its own.
func (g *rig) send(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, req)
	return w
}

// signed is a delivery of GitHub.
func signed(path, event string, body []byte) *http.Request {
	req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	req.Header = header("X-GitHub-Event", event, "X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958", "Content-Type",
		"application/json",
		"X-Hub-Signature-256", "sha256="+hexMAC(hookSecret, string(body)))
	return req
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	push, pull := payload(t, "github-push"), payload(t, "github-pull-request")
	form := []byte("payload=" + url.QueryEscape(string(push)))
	tests := []struct {
		name    string
		store   func(*fakeStore)
		req     func() *http.Request
		code    int
		body    string // is in the body
		outcome string
		queued  bool
		after   string
	}{
		{name: "ping", req: func() *http.Request { return signed(boards, "ping", payload(t, "github-ping")) }, code: 200,
			body: `"added":"ping received"`, outcome: Ignored},
		{name: "push", req: func() *http.Request { return signed(boards, "push", push) }, code: 202, body: `"kind":"Job"`, outcome: Queued,
			queued: true},
		{name: "push as a form", req: func() *http.Request {
			req := signed(boards, "push", form)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return req
		}, code: 202, body: `"incremental":false`, outcome: Queued, queued: true},
		{name: "a form without a payload", req: func() *http.Request {
			req := signed(boards, "push", []byte("x=1"))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return req
		}, code: 400, body: "invalid payload", outcome: Invalid},
		{name: "pull request", req: func() *http.Request { return signed(boards, "pull_request", pull) }, code: 202, body: `"pr":12`,
			outcome: Queued, queued: true},
		{name: "pull request that nobody would run", store: func(d *fakeStore) { d.err = ErrNotRun },
			req: func() *http.Request { return signed(boards, "pull_request", pull) }, code: 200, body: ErrNotRun.Error(), outcome: Ignored},
		{name: "other event", req: func() *http.Request { return signed(boards, "star", []byte("{}")) }, code: 501, body: `"code":501`,
			outcome: Unsupported},
		{name: "other repository", store: func(d *fakeStore) { d.repo.URL = "https://github.com/x/y" },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 400, body: "mismatch", outcome: Mismatched},
		{name: "not JSON", req: func() *http.Request { return signed(boards, "push", []byte("{")) }, code: 400, body: "invalid payload",
			outcome: Invalid},
		{name: "the secret of before", store: func(d *fakeStore) { d.repo.Secrets = [][]byte{[]byte("new"), []byte(hookSecret)} },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 202, outcome: Queued, queued: true},

		{name: "wrong signature", store: func(d *fakeStore) { d.repo.Secrets = [][]byte{[]byte("other")} },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 401, body: `"message":"invalid signature"`, outcome: Forged},
		{name: "no signature", req: func() *http.Request {
			req := signed(boards, "push", push)
			req.Header.Del("X-Hub-Signature-256")
			return req
		}, code: 401, body: `"message":"invalid signature"`, outcome: Forged},
		{name: "no secret", store: func(d *fakeStore) { d.repo.Secrets = nil },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 401, body: `"message":"invalid signature"`, outcome: Forged},
		{name: "no such repository", req: func() *http.Request {
			return signed(strings.Replace(boards, "/boards/", "/other/", 1), "push",
				push)
		}, code: 401, body: `"message":"invalid signature"`, outcome: Forged},
		{name: "wrong signature while the API is away", store: func(d *fakeStore) { d.blind = true; d.repo.Secrets = nil },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 503, outcome: Unavailable, after: "30"},
		{name: "no such repository while the API is away", store: func(d *fakeStore) { d.blind = true },
			req: func() *http.Request { return signed(strings.Replace(boards, "/boards/", "/other/", 1), "push", push) }, code: 503,
			outcome: Unavailable, after: "30"},

		{name: "no hook", store: func(d *fakeStore) { d.repo.Hooked = false }, req: func() *http.Request { return signed(boards, "push", push) },
			code: 400, body: "unexpected webhook request", outcome: Refused},
		{name: "unhealthy", store: func(d *fakeStore) { d.repo.Unhealthy = []string{"not healthy"} },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 424, body: `"reason":"FailedDependency"`, outcome: Refused},

		{name: "job exists", store: func(d *fakeStore) {
			d.err = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "jobs"}, "boards-sync")
		}, req: func() *http.Request { return signed(boards, "push", push) }, code: 409, body: `"reason":"AlreadyExists"`, outcome: Exists},
		{name: "repository is gone", store: func(d *fakeStore) {
			d.err = apierrors.NewNotFound(schema.GroupResource{Resource: "repositories"}, "boards")
		}, req: func() *http.Request { return signed(boards, "push", push) }, code: 404, outcome: Refused},
		{name: "API busy", store: func(d *fakeStore) { d.err = apierrors.NewTooManyRequests("wait", 5) },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 503, outcome: Unavailable, after: "30"},
		{name: "API away", store: func(d *fakeStore) { d.err = errors.New("no route to host") },
			req: func() *http.Request { return signed(boards, "push", push) }, code: 503, outcome: Unavailable, after: "30"},
		{name: "may not make jobs", store: func(d *fakeStore) {
			d.err = apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "",
				nil)
		}, req: func() *http.Request { return signed(boards, "push", push) }, code: 503, outcome: Unavailable, after: "30"},

		{name: "GET", req: func() *http.Request { return httptest.NewRequest(http.MethodGet, boards, nil) }, code: 405, outcome: Refused},
		{name: "another path", req: func() *http.Request { return httptest.NewRequest(http.MethodPost, "/metrics", nil) }, code: 404,
			outcome: NotFound},
		{name: "too large", req: func() *http.Request {
			req := signed(boards, "push", push)
			req.ContentLength = maxBody + 1
			return req
		}, code: 413, outcome: TooLarge},
		{name: "too large without saying so", req: func() *http.Request {
			req := signed(boards, "push", push)
			req.Body, req.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1)), -1
			return req
		}, code: 413, outcome: TooLarge},
		{name: "cut short", req: func() *http.Request {
			req := signed(boards, "push", push)
			req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(push[:100]), broken{}))
			return req
		}, code: 400, body: "ended early", outcome: Broken},
	}
	for _, tt := range tests {
		g := newRig(t)
		if tt.store != nil {
			tt.store(g.store)
		}
		w := g.send(tt.req())
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) || g.counts[tt.outcome] != 1 || len(g.counts) != 1 ||
			(len(g.store.queued) > 0) != tt.queued || w.Header().Get("Retry-After") != tt.after {
			t.Errorf("%s: %d %s %v, %d queued, Retry-After %q; want %d %q %s", tt.name, w.Code, w.Body, g.counts, len(g.store.queued),
				w.Header().Get("Retry-After"), tt.code, tt.body, tt.outcome)
		}
		var any map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &any); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if strings.Contains(w.Body.String(), hookSecret) || strings.Contains(g.log.String(), hookSecret) {
			t.Errorf("%s: the secret is told", tt.name)
		}
		if again := g.send(tt.req()); w.Code < 300 && (again.Code != 200 || !strings.Contains(again.Body.String(), `"added":"ok"`) ||
			len(g.store.queued) > 1) {
			t.Errorf("%s again: %d %s", tt.name, again.Code, again.Body)
		} else if w.Code >= 300 && again.Code != w.Code {
			t.Errorf("%s again: %d, was %d", tt.name, again.Code, w.Code)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// broken is a connection that has ended.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestUnknownAndForgedHaveOneAnswer compares all that a stranger can see.
func TestUnknownAndForgedHaveOneAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.store.repo.Secrets = [][]byte{[]byte("other")}
	known := g.send(signed(boards, "push", payload(t, "github-push")))
	unknown := g.send(signed(strings.Replace(boards, "/boards/", "/nowhere/", 1), "push", payload(t, "github-push")))
	if known.Code != unknown.Code || known.Body.String() != unknown.Body.String() ||
		fmt.Sprint(known.Header()) != fmt.Sprint(unknown.Header()) {
		t.Errorf("%d %v %s\n%d %v %s", known.Code, known.Header(), known.Body, unknown.Code, unknown.Header(), unknown.Body)
	}
}

// TestFailedDeliveryIsNotRemembered holds the order of a power cut: what was not
// queued is not remembered, neither here nor after a restart.
func TestFailedDeliveryIsNotRemembered(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	push := payload(t, "github-push")
	g.store.err = errors.New("no route to host")
	if w := g.send(signed(boards, "push", push)); w.Code != 503 {
		t.Fatalf("%d", w.Code)
	}
	if facts, err := g.o.Facts.Facts(t.Context(), memoryPrefix); err != nil || len(facts) != 0 {
		t.Errorf("%d facts, %v", len(facts), err)
	}
	g.store.err = nil
	if w := g.send(signed(boards, "push", push)); w.Code != 202 || len(g.store.queued) != 1 {
		t.Errorf("again: %d, %d queued", w.Code, len(g.store.queued))
	}
	if facts, err := g.o.Facts.Facts(t.Context(), memoryPrefix); err != nil || len(facts) != 1 {
		t.Errorf("%d facts, %v", len(facts), err)
	}
	again, err := New(t.Context(), g.o)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	again.ServeHTTP(w, signed(boards, "push", push))
	if w.Code != 200 || len(g.store.queued) != 1 {
		t.Errorf("after a restart: %d, %d queued", w.Code, len(g.store.queued))
	}
}

// TestConcurrentCopies has a copy come while the first is served.
func TestConcurrentCopies(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		g := newRig(t)
		g.store.enter, g.store.leave = make(chan struct{}), make(chan struct{})
		if fails {
			g.store.err = errors.New("no route to host")
		}
		codes := make(chan int, 2)
		for range 2 {
			go func() { codes <- g.send(signed(boards, "push", payload(t, "github-push"))).Code }()
		}
		<-g.store.enter // one is at work; the other cannot be
		go func() {     // the other may share the failure, or try for itself
			for range g.store.enter {
			}
		}()
		close(g.store.leave)
		want := map[int]int{202: 1, 200: 1}
		if fails {
			want = map[int]int{503: 2}
		}
		got := map[int]int{}
		for range 2 {
			got[<-codes]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("fails %v: %v, want %v", fails, got, want)
		}
		close(g.store.enter)
	}
}

// TestHostClosesEarly closes its connection while its job is queued: the job is
// queued all the same, and the delivery is known again.
func TestHostClosesEarly(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.store.enter, g.store.leave = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.send(signed(boards, "push", payload(t, "github-push")).WithContext(ctx))
	}()
	<-g.store.enter
	cancel()
	g.store.leave <- struct{}{}
	<-done
	if facts, err := g.o.Facts.Facts(t.Context(), memoryPrefix); err != nil || len(facts) != 1 || len(g.store.queued) != 1 {
		t.Errorf("%d deliveries are remembered, %d jobs queued, %v", len(facts), len(g.store.queued), err)
	}
}

func TestClientRateLimit(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	codes := map[int]int{}
	var last *httptest.ResponseRecorder
	for range 3 * requestBurst {
		last = g.send(httptest.NewRequest(http.MethodPost, boards, nil))
		codes[last.Code]++
	}
	if codes[401] < requestBurst || codes[429] < requestBurst || last.Header().Get("Retry-After") != "1" {
		t.Errorf("%v, Retry-After %q", codes, last.Header().Get("Retry-After"))
	}
	if w := g.send(signed(boards, "ping", []byte(`{}`))); w.Code != http.StatusOK {
		t.Errorf("an authentic delivery of the same client: %d", w.Code)
	}
	other := httptest.NewRequest(http.MethodPost, boards, nil)
	other.RemoteAddr = "198.51.100.9:1"
	if w := g.send(other); w.Code != 401 {
		t.Errorf("another client: %d", w.Code)
	}
}

// TestLargeBodyLimit fills the common room: small deliveries still pass.
func TestLargeBodyLimit(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	if !g.room.TryAcquire(bodyRoom - smallBody) {
		t.Fatal("the room is not empty")
	}
	large := bytes.Repeat([]byte(" "), 2*smallBody)
	if w := g.send(signed(boards, "ping", large)); w.Code != 503 {
		t.Errorf("large: %d %s", w.Code, w.Body)
	}
	if w := g.send(signed(boards, "push", payload(t, "github-push"))); w.Code != 202 {
		t.Errorf("small: %d %s", w.Code, w.Body)
	}
	g.room.Release(bodyRoom - smallBody)
	if w := g.send(signed(boards, "ping", large)); w.Code != 200 {
		t.Errorf("large, later: %d %s", w.Code, w.Body)
	}
	if !g.room.TryAcquire(bodyRoom) {
		t.Error("the room is not given back")
	}
}

// TestLastEventOnceAMinute counts the notes in the status.
func TestLastEventOnceAMinute(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for n, step := range []struct {
		hooked bool
		last   time.Duration // ago
		seen   int
	}{
		{true, time.Hour, 1},
		{true, time.Second, 1}, // noted by this agent or another one
		{true, 2 * seenEvery, 2},
		{false, time.Hour, 2}, // its status has no place for the note
	} {
		g.store.repo.Hooked, g.store.repo.Given, g.store.repo.LastEvent = step.hooked, !step.hooked, time.Now().Add(-step.last)
		if w := g.send(signed(boards, "ping", fmt.Appendf(nil, `{"n":%d}`, n))); w.Code != 200 || g.store.seen != step.seen {
			t.Errorf("%d: %d, the status was written %d times", n, w.Code, g.store.seen)
		}
	}
}

// TestPushed: the URL of an authentic push is told, whatever its branch, and that of a forged one
// is not.
func TestPushed(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var told []string
	g.o.Pushed = func(url string) { told = append(told, url) }
	push, path := payload(t, "github-push"), "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/repositories/boards/webhook"
	g.store.repo.Branch = "another"
	if w := g.send(signed(path, "push", push)); w.Code != http.StatusOK || !slices.Equal(told, []string{g.store.repo.URL}) {
		t.Errorf("%d %s, told %q", w.Code, w.Body, told)
	}
	forged := signed(path, "push", push)
	forged.Header.Set("X-Hub-Signature-256", "sha256="+hexMAC("other", string(push)))
	if w := g.send(forged); w.Code != http.StatusUnauthorized || len(told) != 1 {
		t.Errorf("%d, told %q", w.Code, told)
	}
}
