package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// replayed serves one repository under many paths. What git has answered once is answered again without git, whose
// processes would be most of the load.
func replayed(t *testing.T, repo *testenv.Repository) (url string, requests func() int) {
	t.Helper()
	git := testenv.Git(t, testenv.GitOptions{})
	git.Serve("site.git", repo.Dir)
	var mu sync.Mutex // guards answers and count
	answers, count := map[[32]byte]*httptest.ResponseRecorder{}, 0
	path := regexp.MustCompile(`^/r[0-9]+\.git`)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.URL.Path, r.Body = path.ReplaceAllString(r.URL.Path, "/site.git"), io.NopCloser(bytes.NewReader(body))
		key := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", r.Method, r.URL, body))
		mu.Lock()
		defer mu.Unlock()
		count++
		a := answers[key]
		if a == nil {
			a = httptest.NewRecorder()
			git.ServeHTTP(a, r)
			answers[key] = a
		}
		w.Header().Set("Content-Type", a.Header().Get("Content-Type"))
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes())
	}))
	t.Cleanup(host.Close)
	return host.URL, func() int { mu.Lock(); defer mu.Unlock(); n := count; count = 0; return n }
}

// TestManySources: one agent reconciles many GitRepositories. Goal for 1,000 each minute (-figures): all ready within 30 s
// of the start; at rest 1 % of a core and 90 MiB, one request an interval and source.
func TestManySources(t *testing.T) {
	suite.Full(t)
	const (
		readyWithin  = 30 * time.Second
		mostCheck    = 600 * time.Microsecond // of processor time
		mostResident = 90 << 10               // KiB, of a thousand
	)
	wider := time.Duration(size(10, 1))
	count, interval, watched := size(60, 1000), time.Duration(size(10, 60))*time.Second, time.Duration(size(20, 180))*time.Second
	repo := testenv.EmptyRepo(t)
	repo.Commit(t, "a file", testenv.Change{Path: "apps/site.yaml", Data: []byte("kind: List\n")})
	url, requests := replayed(t, repo)
	h := newHome(t)
	d := h.daemon(t, "--sources", "off", "--log-level", "info")
	sources := embeddedWorkload(t, h).client.Resource(api.GitRepositories).Namespace("default")
	for i := range count {
		u := newObject(api.GitRepositories, fmt.Sprintf("s%04d", i), nil, map[string]any{"url": fmt.Sprintf("%s/r%04d.git", url, i),
			"interval": interval.String(), "ref": map[string]any{"branch": testenv.Branch}})
		u.SetKind("GitRepository")
		if _, err := sources.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Fatalf("exit %d", code)
	}
	began := time.Now()
	d = h.daemon(t, "--log-level", "info")
	sources = embeddedWorkload(t, h).client.Resource(api.GitRepositories).Namespace("default")
	within(t, 10*time.Minute, "all are ready", func() bool {
		list, err := sources.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if source.FromObject(&list.Items[i]).State == source.Ready {
				n++
			}
		}
		return n == count
	})
	took := time.Since(began)
	ready := readUsage(t, d.cmd.Process.Pid)
	<-time.After(interval * 5 / 4)
	requests()
	first := readUsage(t, d.cmd.Process.Pid)
	<-time.After(watched)
	last, checks := readUsage(t, d.cmd.Process.Pid), requests()
	if want := int(float64(count)*watched.Seconds()/interval.Seconds()) * 9 / 10; checks < want {
		t.Fatalf("%d checks, want %d", checks, want)
	}
	cpu := (last.cpu - first.cpu) / time.Duration(checks)
	t.Logf("%d sources each %s: ready after %s (%s); %s a check, %.2f %% of a core; %s", count, interval, took, ready, cpu,
		100*(last.cpu-first.cpu).Seconds()/watched.Seconds(), last)
	if took > readyWithin*wider || cpu > mostCheck*wider {
		t.Errorf("ready after %s, %s a check", took, cpu)
	}
	if *figures && last.rss > mostResident {
		t.Errorf("%d KiB resident", last.rss)
	}
}
