package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/testenv"
)

// How much an agent weighs while a crowd of jobs waits. Its drivers are busy
// all the time with a Git host that never answers.
//
//	go test ./tui/cli -run Crowd -v -crowd 100000 -crowd-repos 1000

var (
	crowdSize  = flag.Int("crowd", 0, "pending jobs of TestCrowd; 0 = a few thousand")
	crowdRepos = flag.Int("crowd-repos", 200, "repositories of TestCrowd")
	crowdWatch = flag.Duration("crowd-watch", 3*time.Second, "how long TestCrowd looks at the idle agent")
)

// What an agent may weigh at most in front of n pending jobs, in KiB: 100 MiB for
// a hundred thousand. Pages of a list cost more for a moment than events do,
// however many jobs there are.
func streamLimit(n int) int { return 55<<10 + n*45/100 }
func listLimit(n int) int   { return 75<<10 + n/4 }

// crowd is how many jobs a test has that has so many without the flag.
func crowd(usual int) int {
	if *crowdSize > 0 {
		return *crowdSize
	}
	return usual
}

func TestCrowdEmbedded(t *testing.T) {
	t.Parallel()
	h, n := newHome(t), crowd(10_000)
	store, _, err := state.Open(t.Context(), state.Options{Path: h.state()})
	if err != nil {
		t.Fatal(err)
	}
	fillCrowd(t, n, func(plural, name, object string) error {
		key := state.ObjectKey{Resource: "provisioning.grafana.app/" + plural, Namespace: "default", Name: name}
		_, err := store.Mutate(t.Context(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
			return state.Mutation{Data: bytes.Replace([]byte(object), []byte(`"0"`), fmt.Appendf(nil, `"%d"`, rev), 1)}, nil
		})
		return err
	})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	weigh(t, h, n, streamLimit(n))
}

// TestCrowdReal has the jobs in the API machinery, which streams them to the
// agent. TestCrowdReal/list has them behind something that does not know of
// such streams, so that the agent lists them page by page.
func TestCrowdReal(t *testing.T) {
	t.Parallel()
	server, n := testenv.Start(t, testenv.Options{}), crowd(2_000)
	client := server.Client(t)
	fillCrowd(t, n, func(plural, name, object string) error {
		url := server.URL + "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/" + plural
		resp, err := client.Post(url, "application/json", strings.NewReader(object))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("POST %s: %s %s %w", url, resp.Status, answer, err)
		}
		return nil
	})
	for _, way := range []string{"stream", "list"} {
		t.Run(way, func(t *testing.T) {
			h := newHome(t)
			url, ca, limit := server.URL, server.CAFile, streamLimit(n)
			if way == "list" {
				url, ca = listsOnly(t, h, server)
				limit = listLimit(n)
			}
			h.args = []string{"--provisioning-server-url", url, "--tls-ca-file", ca, "--token-file", h.file(t, "token", server.Token+"\n"), "--controllers", "off"}
			weigh(t, h, n, limit)
		})
	}
}

// listsOnly is a way to a server that refuses watches with initial events.
func listsOnly(t *testing.T, h *home, s *testenv.Server) (address, caFile string) {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = s.Client(t).Transport, -1
	forward.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sendInitialEvents") {
			http.Error(w, "sendInitialEvents is not known here", http.StatusUnprocessableEntity)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog, front.EnableHTTP2 = forward.ErrorLog, true
	front.StartTLS()
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	return front.URL, h.file(t, "ca.crt", string(ca))
}

// fillCrowd makes the repositories and the jobs.
func fillCrowd(t *testing.T, n int, put func(plural, name, object string) error) {
	t.Helper()
	url := strings.TrimSuffix(hang(t), "/x.git")
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(64)
	meta := func(name, labels string) string {
		var id [16]byte
		_, _ = rand.Read(id[:])
		return fmt.Sprintf(`"metadata":{"name":%q,"namespace":"default","uid":"%x-%x-%x-%x-%x","resourceVersion":"0","generation":1,"creationTimestamp":%q,"labels":{%s}}`,
			name, id[:4], id[4:6], id[6:8], id[8:10], id[10:], start.Add(-time.Hour).UTC().Format(time.RFC3339), labels)
	}
	for i := range *crowdRepos {
		name := fmt.Sprintf("repository-%04d", i)
		g.Go(func() error {
			return put("repositories", name, fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",%s,"spec":{"title":%q,"type":"git","git":{"url":"%s/%s.git","branch":"main","path":"/"},"sync":{"enabled":true,"target":"folder","intervalSeconds":3600},"workflows":[]},"status":{"observedGeneration":1,"health":{"healthy":true,"checked":1},"sync":{"state":"success","message":[],"finished":%d}}}`,
				meta(name, ""), name, url, name, time.Now().UnixMilli()))
		})
	}
	for i := range n {
		repo := fmt.Sprintf("repository-%04d", i%*crowdRepos)
		name := fmt.Sprintf("%s-pull-%06d", repo, i)
		g.Go(func() error {
			return put("jobs", name, fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job",%s,"spec":{"action":"pull","repository":%q,"pull":{"incremental":true}},"status":{"state":"pending"}}`,
				meta(name, fmt.Sprintf(`"provisioning.grafana.app/repository":%q`, repo)), repo))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs of %d repositories made in %s", n, *crowdRepos, time.Since(start).Round(time.Millisecond))
}

// weigh starts an agent, waits until it works, looks at it for a while, and
// stops it. limit is in KiB.
func weigh(t *testing.T, h *home, n, limit int) {
	t.Helper()
	limpetBinary(t)
	began := time.Now()
	d := h.daemon(t)
	desk, err := control.Attach(t.Context(), filepath.Join(filepath.Dir(h.state()), "limpet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer desk.Close()
	var snap *snapshot.Snapshot
	until(t, "the drivers are busy and the crowd is seen", func() bool {
		if snap, err = desk.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		return snap.Counts.Working > 0 && snap.Counts.All() >= n
	})
	first := readWeight(t, d.cmd.Process.Pid)
	t.Logf("after %s, of which %s until the first claim: %s", time.Since(began).Round(time.Millisecond), firstClaim(t, d, began), first)
	ctx, cancel := context.WithTimeout(t.Context(), *crowdWatch)
	<-ctx.Done()
	cancel()
	last := readWeight(t, d.cmd.Process.Pid)
	cpu := (last.cpu - first.cpu).Seconds() / crowdWatch.Seconds() * 100
	t.Logf("fault: crowd: %s, %d jobs: %s later %s; %.1f %% of a core since", t.Name(), n, *crowdWatch, last, cpu)
	if last.peak > limit {
		t.Errorf("%d MiB at most, want %d", last.peak>>10, limit>>10)
	}
	d.kill()
}

// firstClaim is when the agent claimed its first job.
func firstClaim(t *testing.T, d *daemon, began time.Time) time.Duration {
	t.Helper()
	for line := range strings.Lines(d.log.String()) {
		var e struct {
			Time time.Time `json:"time"`
			Step string    `json:"step"`
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Step == "claimed" {
			return e.Time.Sub(began).Round(time.Millisecond)
		}
	}
	t.Error("no job was claimed")
	return 0
}

// weight is what a process holds, in KiB, and the processor time it has used.
type weight struct {
	peak, rss, anon, file int
	cpu                   time.Duration
}

func (w weight) String() string {
	mib := func(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }
	return fmt.Sprintf("VmHWM %s MiB, VmRSS %s (RssAnon %s, RssFile %s), %s of processor time",
		mib(w.peak), mib(w.rss), mib(w.anon), mib(w.file), w.cpu)
}

func readWeight(t *testing.T, pid int) weight {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	figure := func(name string) int {
		_, rest, _ := strings.Cut(string(text), name+":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			t.Fatalf("no %s in %s", name, text)
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w := weight{peak: figure("VmHWM"), rss: figure("VmRSS"), anon: figure("RssAnon"), file: figure("RssFile")}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	for _, n := range []int{11, 12} { // utime and stime in hundredths of a second
		ticks, err := strconv.Atoi(string(bytes.Fields(rest)[n]))
		if err != nil {
			t.Fatal(err)
		}
		w.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return w
}
