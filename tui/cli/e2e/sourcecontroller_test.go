package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// replayed serves one repository under many paths. What git has answered once is answered again
// without git, whose processes would be most of the load.
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

// TestManySources: one agent reconciles many GitRepositories. Goal for 1,000 each minute
// (-figures): all ready within 30 s of the start, which is half of the processor time of two cores;
// at rest 1 % of a core and 90 MiB, one request an interval and source. Beside other tests
// processor time is judged, and no time of the clock.
func TestManySources(t *testing.T) {
	suite.Full(t)
	const (
		readyWithin  = 30 * time.Second
		mostFirst    = 30 * time.Millisecond // of processor time, of a source until it is ready
		mostCheck    = 2 * time.Millisecond  // of processor time: the source-controller of Flux has 2.8 ms
		goalCheck    = 600 * time.Microsecond
		mostResident = 90 << 10 // KiB, of a thousand
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
	changes, err := sources.Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(600))})
	if err != nil {
		t.Fatal(err)
	}
	for ready := map[string]bool{}; len(ready) < count; {
		change, open := <-changes.ResultChan()
		if !open {
			t.Fatalf("%d are ready after %s", len(ready), time.Since(began))
		}
		if u := change.Object.(*unstructured.Unstructured); source.FromObject(u).State == source.Ready {
			ready[u.GetName()] = true
		}
	}
	changes.Stop()
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
	if first := ready.cpu / time.Duration(count); first > mostFirst*wider || cpu > mostCheck*wider {
		t.Errorf("%s of processor time a source until it is ready, %s a check", first, cpu)
	}
	if *figures && (took > readyWithin || last.rss > mostResident || cpu > goalCheck) {
		t.Errorf("ready after %s, %d KiB resident, %s a check", took, last.rss, cpu)
	}
}

// TestSourceCost: what one source costs until it is ready, and what a new commit of it costs. Goals
// of time and memory with -figures, on a machine that does nothing else: a thousand files ready
// within 0.8 s, a commit of them packed within 0.25 s; 20,000 files within 6 s and 120 MiB. A
// commit always takes two requests to the Git host and less than 10 kB of it.
func TestSourceCost(t *testing.T) {
	suite.Full(t)
	for _, c := range []struct {
		name          string
		commits       int
		files, full   int
		ready, commit time.Duration
		mostPeak      int // KiB
	}{
		{"medium", 40, 100, 1000, 800 * time.Millisecond, 250 * time.Millisecond, 60 << 10},
		{"large", 10, 400, 20000, 6 * time.Second, 3 * time.Second, 120 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := testenv.Repo(t, c.commits, size(c.files, c.full))
			repo.Git(t, "repack", "-adfq")
			git := testenv.Git(t, testenv.GitOptions{})
			url, h := git.Serve("site.git", repo.Dir), newHome(t)
			d := h.daemon(t, "--log-level", "info")
			sources := embeddedWorkload(t, h).client.Resource(api.GitRepositories).Namespace("default")
			changes, err := sources.Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(600))})
			if err != nil {
				t.Fatal(err)
			}
			defer changes.Stop()
			stored := func() (writes int) {
				for change := range changes.ResultChan() {
					writes++
					u := change.Object.(*unstructured.Unstructured)
					s := source.FromObject(u)
					if s.State == source.Ready && strings.HasSuffix(s.Artifact.Revision, repo.Head(t)) {
						return writes
					}
				}
				t.Fatal("the watch ended")
				return 0
			}
			u := newObject(api.GitRepositories, "site", nil, map[string]any{"url": url, "interval": "1h", "ref": map[string]any{"branch": testenv.Branch}})
			u.SetKind("GitRepository")
			began := time.Now()
			if _, err := sources.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			writes := stored() - 1
			took, use := time.Since(began), readUsage(t, d.cmd.Process.Pid)
			t.Logf("%d files ready after %s, %d writes, %s; %+v", size(c.files, c.full), took, writes, use, git.Reset())
			if *figures && (took > c.ready || use.peak > c.mostPeak) {
				t.Errorf("ready after %s, peak %d KiB", took, use.peak)
			}
			repo.Commit(t, "a change", testenv.Change{Path: testenv.Directory + "/new.yaml", Data: []byte("kind: List\n")})
			began = time.Now()
			if _, err := sources.Patch(t.Context(), "site", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+source.AnnoRequested+`":"1"}}}`),
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			writes = stored() - 1
			took, asked := time.Since(began), git.Reset()
			t.Logf("a commit packed after %s, %d writes, %+v", took, writes, asked)
			if asked.InfoRefs+asked.UploadPack > 2 || asked.Sent > 10_000 || writes > 2 {
				t.Errorf("%+v of the Git host, %d writes", asked, writes)
			}
			if *figures && took > c.commit {
				t.Errorf("a commit packed after %s", took)
			}
		})
	}
}

// sinkSite is a host with a daemon that writes sources to directories.
type sinkSite struct {
	*home
	url         string
	repo        *testenv.Repository
	prefix, dir string
	exec, runs  string // the program of --sink-exec, and what it has written
	agent       *daemon
}

func newSinkSite(t *testing.T) *sinkSite {
	t.Helper()
	s := &sinkSite{home: newHome(t), repo: testenv.EmptyRepo(t)}
	git := testenv.Git(t, testenv.GitOptions{})
	s.url = git.Serve("site.git", s.repo.Dir)
	s.prefix, s.runs = filepath.Join(s.home.dir, "sinks"), filepath.Join(s.home.dir, "runs")
	s.dir = filepath.Join(s.prefix, "site")
	s.hook(t, "exit 0")
	if err := os.MkdirAll(s.prefix, 0o755); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "HOST_SECRET=s3cret-of-the-host")
	s.start(t)
	return s
}

// hook makes the program write its arguments, directory and environment, and then do more.
func (s *sinkSite) hook(t *testing.T, more string) {
	t.Helper()
	s.exec = s.file(t, "hook", "#!/bin/sh\n{ echo \"run $*\"; pwd; env; } >>"+s.runs+"\n"+more+"\n")
	if err := os.Chmod(s.exec, 0o700); err != nil {
		t.Fatal(err)
	}
}

func (s *sinkSite) start(t *testing.T) {
	t.Helper()
	s.agent = s.daemon(t, "--allow-insecure-git", "--sink-prefix", s.prefix, "--sink-exec", s.exec)
}

// source applies a source with a directory and a program.
func (s *sinkSite) source(t *testing.T, name, dir string, argv ...string) {
	t.Helper()
	line, _ := json.Marshal(argv)
	notes, _ := json.Marshal(map[string]string{api.AnnoSinkDir: dir, api.AnnoSinkExec: string(line)})
	s.must(t, 0, "apply", "-f", s.file(t, name+".yaml", strings.Replace(sourceYAML(name, s.url, "ref: {branch: "+testenv.Branch+"}"),
		"metadata: {", "metadata: {annotations: "+string(notes)+", ", 1)))
}

// condition waits until the condition of the directory has a reason, and returns its message.
func (s *sinkSite) condition(t *testing.T, name, reason, has string) (message string) {
	t.Helper()
	until(t, name+": "+reason+" "+has, func() bool {
		var u unstructured.Unstructured
		if json.Unmarshal([]byte(s.must(t, 0, "source", "show", name, "-o", "json").out), &u.Object) != nil {
			return false
		}
		from := source.FromObject(&u)
		i := slices.IndexFunc(from.Conditions, func(c source.Condition) bool { return c.Type == api.ConditionSinkReady })
		if i < 0 || from.Conditions[i].Reason != reason {
			return false
		}
		message = from.Conditions[i].Message
		return strings.Contains(message, has)
	})
	return message
}

func (s *sinkSite) commit(t *testing.T, files ...string) string {
	t.Helper()
	var all []testenv.Change
	for i := 0; i < len(files); i += 2 {
		all = append(all, testenv.Change{Path: files[i], Data: []byte(files[i+1])})
	}
	return s.repo.Commit(t, "files", all...)
}

func (s *sinkSite) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(s.dir, name))
	return string(data)
}

// ran returns how often the program has run, and its last output.
func (s *sinkSite) ran() (n int, last string) {
	data, _ := os.ReadFile(s.runs)
	n = strings.Count("\n"+string(data), "\nrun ")
	return n, string(data)[max(0, strings.LastIndex(string(data), "run ")):]
}

// TestSourceSinkKilled: an agent that is killed between the switch and the program runs it after
// its start.
func TestSourceSinkKilled(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newSinkSite(t)
	s.agent.stop(t)
	program, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	plain := s.env
	s.home.program, s.env = program, append(slices.Clone(plain), "LIMPET_FAILPOINTS="+failpoint.Switched+"=kill")
	s.start(t)
	s.commit(t, "a", "1")
	s.source(t, "site", s.dir, s.exec)
	<-s.agent.done
	if n, _ := s.ran(); n != 0 || s.read("a") != "1" {
		t.Fatalf("%d runs before the end, %q", n, s.read("a"))
	}
	s.home.program, s.env = "", plain
	s.start(t)
	s.condition(t, "site", "UpToDate", "ended well")
	if n, _ := s.ran(); n != 1 {
		t.Errorf("%d runs", n)
	}
}
