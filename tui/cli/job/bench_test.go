package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// wire is the way to an embedded API that a test can cut.
type wire struct {
	next http.RoundTripper
	down atomic.Bool
	// noHistory is the code with which historicjobs are refused; 0 = they are not.
	noHistory atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if code := w.noHistory.Load(); code != 0 && strings.Contains(req.URL.Path, "historicjobs") {
		return &http.Response{StatusCode: int(code), Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	if w.down.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return w.next.RoundTrip(req)
}

// bench is the rig of a follower: an API, a state file, one claimed job.
type bench struct {
	t     *testing.T
	r     *command.Env
	s     *command.Session
	wire  *wire
	store *state.Store
	errs  *clitest.Buffer
	out   *bytes.Buffer
	job   *unstructured.Unstructured
	how   WaitFlags
}

func newBench(t *testing.T) *bench {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: t.TempDir() + "/limpet.db", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: store, errs: &clitest.Buffer{}, out: &bytes.Buffer{}, wire: &wire{next: server.Transport()}}
	client, err := kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: b.wire, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		store.Close()
	})
	b.how.Wait = true
	b.s = &command.Session{Client: client, Store: store}
	b.r = &command.Env{Flags: &command.Flags{Output: "table"}, Streams: command.Streams{Out: b.out, Err: b.errs, Lookup: func(string) (string, bool) { return "", false }}}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": "pull", "repository": "r", "pull": map[string]any{"incremental": true}}}}
	u.SetAPIVersion(api.Jobs.GroupVersion().String())
	u.SetKind("Job")
	u.SetName("r-sync")
	b.job, err = b.jobs().Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jobCalls are the calls to the API that the tests make.
type jobCalls interface {
	Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error)
	Update(context.Context, *unstructured.Unstructured, metav1.UpdateOptions, ...string) (*unstructured.Unstructured, error)
	Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
	Delete(context.Context, string, metav1.DeleteOptions, ...string) error
}

func (b *bench) jobs() jobCalls {
	return b.s.Client.Resource(api.Jobs).Namespace("default")
}

// claim makes the job look like one that an agent works on.
func (b *bench) claim(message string) {
	b.t.Helper()
	b.status(map[string]any{"state": "working", "message": message, "progress": 40.0})
}

// status writes that of the job, and claims it.
func (b *bench) status(status map[string]any) {
	b.t.Helper()
	u, err := b.jobs().Get(b.t.Context(), "r-sync", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	u.SetLabels(map[string]string{api.LabelClaim: "1795180000000", api.LabelClaimOwner: "somebody"})
	u.Object["status"] = status
	if _, err := b.jobs().Update(b.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// replace creates another job of the name.
func (b *bench) replace() {
	b.t.Helper()
	again := b.job.DeepCopy()
	again.SetUID("")
	again.SetResourceVersion("")
	if _, err := b.jobs().Create(b.t.Context(), again, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// end writes the record and takes the job out of the queue, as an agent does.
func (b *bench) end(rec *state.Record) {
	b.t.Helper()
	if rec != nil {
		rec.UID, rec.Finished = string(b.job.GetUID()), time.Now()
		if err := b.store.PutRecord(b.t.Context(), *rec); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.jobs().Delete(b.t.Context(), "r-sync", metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// follow waits for the job beside the test.
func (b *bench) follow(ctx context.Context) chan error {
	ended := make(chan error, 1)
	go func() { ended <- b.how.finish(ctx, b.r, b.s, b.job, "") }()
	return ended
}

func (b *bench) says(what string) {
	b.t.Helper()
	b.until(fmt.Sprintf("a word of %q", what), func() bool { return strings.Contains(b.errs.String(), what) })
}

// until waits for what comes of other goroutines.
func (b *bench) until(what string, is func() bool) {
	b.t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			b.t.Fatalf("not %s; stderr:\n%s", what, b.errs)
		case <-tick.C:
		}
	}
}

// ends fails the test unless the wait ends with that exit code.
func (b *bench) ends(ended chan error, code int, text string) {
	b.t.Helper()
	select {
	case err := <-ended:
		var f *command.Error
		got := command.ExitOK
		if errors.As(err, &f) {
			got = f.Code
		} else if err != nil {
			b.t.Fatalf("an error without a code: %v", err)
		}
		if got != code || code != command.ExitOK && (!strings.Contains(f.Error(), text) || f.Hint == "") {
			b.t.Errorf("exit %d, want %d: %v", got, code, err)
		}
	case <-time.After(30 * time.Second):
		b.t.Fatal("the wait does not end")
	}
}
