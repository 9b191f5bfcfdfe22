package controller_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/gitrepository"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/sourcetest"
	"limpet/sync/worker/checkout"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is a controller at work on an API, with a real Git host.
type rig struct {
	*sourcetest.Rig
	writes  *writes
	server  *gittest.Server
	origin  *gittest.Origin
	mirrors *git.Mirrors
	control *controller.Controller
	notices *state.Store   // of the outbox
	outbox  *notify.Outbox // which nothing is taken from
	later   atomic.Int64   // how much the server's clock is ahead
	events  chan reconcile.Event
	busy    chan reconcile.Key // that wait for the turn of a host
	halt    func()             // ends control
}

// writes counts what the controller writes.
type writes struct {
	next http.RoundTripper
	lost atomic.Pointer[func()] // called once when a write is done, whose answer is lost then

	mu   sync.Mutex // guards seen
	seen []string
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.RawQuery, controller.FieldManager) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
		if lost := w.lost.Swap(nil); lost != nil {
			answer, err := w.next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_ = answer.Body.Close()
			(*lost)()
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
	}
	return w.next.RoundTrip(r)
}

// take returns the writes since the last call.
func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.seen
	w.seen = nil
	return out
}

// onEach runs a test on the embedded API and on the API machinery.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, embedded(t)) })
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		s := testenv.Real(t)
		test(t, newRig(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token}, nil, "src-"+
			strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))))
	})
}

func embedded(t *testing.T, rules ...auth.VerificationPolicy) *rig {
	t.Helper()
	cfg := sourcetest.Embedded(t)
	w := &writes{next: cfg.Transport}
	cfg.Transport = w
	return newRig(t, cfg, w, "default", rules...)
}

func newRig(t *testing.T, cfg kube.Config, w *writes, namespace string, rules ...auth.VerificationPolicy) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := &rig{Rig: sourcetest.New(t, cfg, namespace, "GitRepository"), writes: w, server: gittest.NewServer(t),
		events: make(chan reconcile.Event, 1000), busy: make(chan reconcile.Key, 1000)}
	r.origin = gittest.NewOrigin(t, r.server.Root, "site.git")
	r.Spec["url"] = r.server.URL + "/site.git"
	mirrors, err := git.Open(filepath.Join(t.TempDir(), "mirrors"), git.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	r.mirrors = mirrors
	target, err := notify.ParseTargets([]string{"http://127.0.0.1:1"}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	r.notices = sourcetest.Store(t)
	r.outbox, err = notify.Open(t.Context(), notify.Options{Store: r.notices, Targets: target, Client: &netx.Client{}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(r.later.Load())) }
	kind := gitrepository.New(gitrepository.Options{Sources: r.Sources.Of("GitRepository"), Git: mirrors, AllowInsecure: true,
		Credentials: r.Places.WithTransport(r.Places.NamedSecret()), Places: r.Places,
		Signers:   checkout.NewSigners(r.Places.Trust, auth.NewList(rules), r.References.ObservePath),
		Artifacts: r.Artifacts, References: r.References, MaxFiles: 100_000, Now: now})
	r.halt = r.Start(controller.Options{Turns: controller.NewTurns(mirrors.Silent), Outbox: r.outbox, Now: now,
		Observe: func(e reconcile.Event) { r.events <- e }, Worked: r.worked}, kind)
	r.control = r.Controllers["GitRepository"]
	return r
}

func (r *rig) worked(d reconcile.Done) {
	if errors.Is(d.Err, reconcile.ErrBusy) {
		select {
		case r.busy <- d.Key:
		default: // no test asks
		}
	}
}

// ready waits until a source is ready at a revision.
func (r *rig) ready(name, revision string) source.Source {
	r.T.Helper()
	return source.FromObject(r.Ready(name, revision))
}

// get returns a source.
func (r *rig) get(name string) (u *unstructured.Unstructured, known bool) {
	return r.Sources[0].Get(r.Namespace, name)
}

// told returns the reasons of the events about a source so far.
func (r *rig) told(name string) (out []string) {
	for {
		select {
		case e := <-r.events:
			if e.Repository == name {
				reason, _, _ := strings.Cut(e.Text, ":")
				out = append(out, reason)
			}
		default:
			return out
		}
	}
}
