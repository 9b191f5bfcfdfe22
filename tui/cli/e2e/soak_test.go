package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

var soakFor = flag.Duration("soak", 8*time.Second, "how long TestSoak works before it judges")

// soak is a fleet of agents at work on real servers while things go wrong. The
// first agent is never killed: what it keeps in memory and open is watched.
type soak struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	api    *testenv.Server
	admin  *http.Client
	host   *testenv.GitServer
	sites  []*testenv.Repository // site i is Repository "boards" in namespace "site-i"
	agents []*soaker
	git    *testenv.Proxy
	jobs   map[string]bool // UIDs made; true = deleted by hand
	counts map[string]int  // what was done
	heals  []heal          // what has to end
	ill    map[string]bool // parts with an illness
}

// heal ends a fault.
type heal struct {
	at time.Time
	do func()
}

// soaker is one agent of the fleet.
type soaker struct {
	*home
	name  string
	flags []string
	way   *testenv.Proxy // to the API
	*daemon
	before int64 // size of its log when the process was started
}

// TestSoak lets a fleet work for -soak, with jobs, commits, kills, stops and
// suspensions at random, and then asks that nothing is lost: every job has ended
// once, nothing was written without a lease, every board is as the branch says,
// every state file is sound, no secret is anywhere, and the agent that ran all the
// time has not grown.
func TestSoak(t *testing.T) {
	suite.Full(t)
	s := newSoak(t)
	const samples = 60
	every := max(*soakFor/samples, 200*time.Millisecond)
	var used []usage
	end, sample := time.After(*soakFor), time.NewTicker(every)
	defer sample.Stop()
	step := time.NewTicker(250 * time.Millisecond)
	defer step.Stop()
	for running := true; running; {
		select {
		case <-step.C:
			s.step()
		case <-sample.C:
			used = append(used, s.agents[0].usage(t))
		case <-end:
			running = false
		}
	}
	s.settle()
	s.judge()
	s.report(used)
}

func newSoak(t *testing.T) *soak {
	n := suite.Seed(t)
	s := &soak{t: t, seed: n, rng: rand.New(rand.NewPCG(n, 11)), jobs: map[string]bool{}, counts: map[string]int{}, ill: map[string]bool{},
		api:  testenv.Start(t, testenv.Options{}),
		host: testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken}),
	}
	s.admin = s.api.Client(t)
	s.git = s.api.Proxy(t, "git", s.host.URL)
	ca, err := os.ReadFile(s.host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		repo := testenv.Repo(t, 8, 12)
		s.sites = append(s.sites, repo)
		url := strings.Replace(s.host.Serve(fmt.Sprintf("site-%d.git", i), repo.Dir), s.host.URL, s.git.URL, 1)
		s.post("repositories", s.namespace(i), map[string]any{"kind": "Repository", "apiVersion": "provisioning.grafana.app/v0alpha1",
			"metadata": map[string]any{"name": "boards"},
			"spec": map[string]any{"title": "Boards", "type": "git", "workflows": []string{}, "sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": 60},
				"git": map[string]any{"url": url, "branch": testenv.Branch, "path": testenv.Directory}}})
	}
	for i := range 3 {
		a := &soaker{home: newHome(t), name: fmt.Sprintf("agent-%d", i)}
		for n := range s.sites {
			a.file(t, fmt.Sprintf("credentials/%s.boards/token", s.namespace(n)), gitToken)
			a.file(t, fmt.Sprintf("credentials/%s.boards/ca.crt", s.namespace(n)), string(ca))
		}
		a.way = s.api.Proxy(t, a.name, s.api.URL)
		a.args = []string{"--provisioning-server-url", a.way.URL, "--tls-ca-file", s.api.CAFile, "--token-file", a.file(t, "token", s.api.TokenOf(a.name)+"\n"), "--controllers", "off"}
		a.flags = append(fieldLease(), "--credentials-dir", filepath.Join(a.dir, "credentials"), "--job-interval", "2s", "--max-attempts", "1000", "--log-format", "json")
		s.agents = append(s.agents, a)
		a.begin(t)
	}
	return s
}

func (s *soak) namespace(i int) string { return fmt.Sprintf("site-%d", i) }

// step does one thing: mostly work, sometimes harm.
func (s *soak) step() {
	s.mend(time.Now())
	i := s.rng.IntN(len(s.sites))
	repo := s.sites[i]
	other := s.agents[1+s.rng.IntN(len(s.agents)-1)]
	switch n := s.rng.IntN(40); {
	case n < 18:
		s.pull(i, n%3 == 0)
	case n < 24:
		boards := repo.Dashboards()
		repo.Edit(s.t, boards[s.rng.IntN(len(boards))].Path)
		s.counts["edits"]++
	case n == 24:
		repo.Add(s.t, fmt.Sprintf("%s/new/board-%d.json", testenv.Directory, s.counts["added"]))
		s.counts["added"]++
	case n == 25 && len(repo.Dashboards()) > 6:
		boards := repo.Dashboards()
		repo.Delete(s.t, boards[s.rng.IntN(len(boards))].Path)
		s.counts["deleted"]++
	case n == 26:
		repo.ForcePush(s.t, 1)
		s.counts["force pushes"]++
	case n == 27:
		s.cancel(i)
	case n == 28:
		s.remove(i)
	case n < 31 && !s.ailing(other.name):
		other.kill()
		other.begin(s.t)
		s.counts["kills"]++
	case n == 31 && !s.ailing(other.name):
		// Before its first line of code a process cannot heed a signal.
		if code := other.stop(s.t); code != 0 && (code > 0 || other.spoken(s.t)) {
			s.t.Errorf("%s: exit %d on SIGTERM", other.name, code)
		}
		other.begin(s.t)
		s.counts["restarts"]++
	case n == 32:
		s.ail(other.name, "suspensions", 9*time.Second,
			func() { other.signal(s.t, syscall.SIGSTOP) }, func() { other.signal(s.t, syscall.SIGCONT) })
	case n == 33:
		a := s.agents[s.rng.IntN(len(s.agents))]
		s.ail(a.way.URL, "cuts to the API", 9*time.Second, func() { a.way.Down(s.t) }, func() { a.way.Set(s.t) })
	case n == 34:
		a := s.agents[s.rng.IntN(len(s.agents))]
		toxic := []testenv.Toxic{testenv.Silence(), testenv.Latency(700*time.Millisecond, 300*time.Millisecond),
			testenv.ResetPeer(200 * time.Millisecond), testenv.Slicer(200, time.Millisecond)}[s.rng.IntN(4)]
		s.ail(a.way.URL, "bad links to the API", 9*time.Second, func() { a.way.Set(s.t, toxic) }, func() { a.way.Set(s.t) })
	case n == 35:
		s.ail("git", "cuts to the Git host", 5*time.Second, func() { s.git.Down(s.t) }, func() { s.git.Set(s.t) })
	case n == 36:
		s.ail("git", "bad links to the Git host", 5*time.Second, func() { s.git.Set(s.t, testenv.LimitData(3000)) }, func() { s.git.Set(s.t) })
	}
}

// ail lets one part fall ill for a while; a part has one illness at a time.
func (s *soak) ail(part, what string, longest time.Duration, harm, mend func()) {
	if s.ailing(part) {
		return
	}
	harm()
	s.counts[what]++
	s.ill[part] = true
	at := time.Now().Add(time.Duration(s.rng.Int64N(int64(longest))))
	s.heals = append(s.heals, heal{at, func() { mend(); delete(s.ill, part) }})
}

func (s *soak) ailing(part string) bool { return s.ill[part] }

// mend ends the illnesses whose time is over by now.
func (s *soak) mend(now time.Time) {
	s.heals = slices.DeleteFunc(s.heals, func(h heal) bool {
		if h.at.After(now) {
			return false
		}
		h.do()
		return true
	})
}

// request sends one request to the API and returns its status and answer.
func (s *soak) request(method, path string, body any) (int, map[string]any) {
	s.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.api.URL+"/apis/provisioning.grafana.app/v0alpha1/"+path, bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.admin.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func (s *soak) post(resource, namespace string, body map[string]any) (uid string, made bool) {
	s.t.Helper()
	code, answer := s.request(http.MethodPost, "namespaces/"+namespace+"/"+resource, body)
	if code == http.StatusConflict {
		return "", false
	}
	if code != http.StatusCreated {
		s.t.Fatalf("create %s: %d %v", resource, code, answer)
	}
	return answer["metadata"].(map[string]any)["uid"].(string), true
}

// pull queues a job, unless one is in the queue.
func (s *soak) pull(i int, full bool) bool {
	uid, made := s.post("jobs", s.namespace(i), map[string]any{"kind": "Job", "apiVersion": "provisioning.grafana.app/v0alpha1",
		"metadata": map[string]any{"name": "boards-sync", "labels": map[string]string{"provisioning.grafana.app/repository": "boards"}},
		"spec":     map[string]any{"action": "pull", "repository": "boards", "pull": map[string]any{"incremental": !full}}})
	if made {
		s.jobs[uid] = false
		s.counts["jobs"]++
	}
	return made
}

func (s *soak) cancel(i int) {
	code, _ := s.request(http.MethodPatch, "namespaces/"+s.namespace(i)+"/jobs/boards-sync",
		map[string]any{"metadata": map[string]any{"annotations": map[string]string{"limpet/cancel": "enough"}}})
	if code == http.StatusOK {
		s.counts["cancelled"]++
	}
}

func (s *soak) remove(i int) {
	path := "namespaces/" + s.namespace(i) + "/jobs/boards-sync"
	code, job := s.request(http.MethodGet, path, nil)
	if code != http.StatusOK {
		return
	}
	uid := job["metadata"].(map[string]any)["uid"].(string)
	code, _ = s.request(http.MethodDelete, path, map[string]any{"preconditions": map[string]string{"uid": uid}})
	if code == http.StatusOK {
		s.jobs[uid] = true
		s.counts["removed"]++
	}
}

// settle ends the faults and lets the last jobs bring everything in order.
func (s *soak) settle() {
	s.t.Helper()
	s.mend(time.Now().Add(time.Hour))
	s.idle()
	for i := range s.sites {
		s.pull(i, true)
	}
	s.idle()
}

func (s *soak) idle() {
	s.t.Helper()
	// A job that has failed often rests for up to 5 min before it is tried again.
	within(s.t, 8*time.Minute, "the queue is empty", func() bool { return len(s.list("jobs")) == 0 })
}

func (s *soak) list(resource string) []map[string]any {
	s.t.Helper()
	code, answer := s.request(http.MethodGet, resource, nil)
	if code != http.StatusOK {
		s.t.Fatalf("list %s: %d %v", resource, code, answer)
	}
	var out []map[string]any
	for _, item := range answer["items"].([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

// judge is the oracle.
func (s *soak) judge() {
	s.t.Helper()
	archived := map[string]int{}
	for _, h := range s.list("historicjobs") {
		labels := h["metadata"].(map[string]any)["labels"].(map[string]any)
		archived[labels["provisioning.grafana.app/original-uid"].(string)]++
	}
	kept := map[string]bool{}
	for _, a := range s.agents {
		for _, r := range a.history(s.t) {
			kept[r.UID] = true
		}
	}
	for uid, deleted := range s.jobs {
		if n := archived[uid]; n > 1 || n == 0 && !deleted {
			s.t.Errorf("job %s has %d HistoricJobs, deleted by hand: %v", uid, n, deleted)
		}
		if !kept[uid] && !deleted {
			s.t.Errorf("job %s is in nobody's history", uid)
		}
	}
	for _, w := range auditOf(s.t, s.api.Requests(s.t, 0), fieldExpiry).wrong {
		s.t.Error(w)
	}
	for i, repo := range s.sites {
		boardsMatch(s.t, s.agents[0].home, s.namespace(i), "boards", repo)
	}
	for _, a := range s.agents {
		if code := a.stop(s.t); code != 0 {
			s.t.Errorf("%s: exit %d on SIGTERM", a.name, code)
		}
		var info struct{ Claims int }
		if err := json.Unmarshal([]byte(a.must(s.t, 0, "store", "info", "-o", "json").out), &info); err != nil || info.Claims != 0 {
			s.t.Errorf("%s: %d claims left, %v", a.name, info.Claims, err)
		}
		if check := a.must(s.t, 0, "store", "check"); !strings.Contains(check.out, " 0 problems") {
			s.t.Errorf("%s: store check: %s", a.name, check.out)
		}
		a.noSecret(s.t, "", gitToken, s.api.TokenOf(a.name)) // its log is in its home
	}
}

// report prints one page of figures, and fails when the agent that ran all the
// time has grown: the middle of its last quarter against its second one.
func (s *soak) report(all []usage) {
	s.t.Helper()
	var done []string
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		done = append(done, fmt.Sprintf("%d %s", s.counts[name], name))
	}
	if len(all) < 8 {
		s.t.Fatalf("%d samples only", len(all))
	}
	early, late := middle(all[len(all)/4:len(all)/2]), middle(all[len(all)*3/4:])
	s.t.Logf("fault: soak of %s, seed %d: %s", *soakFor, s.seed, strings.Join(done, ", "))
	s.t.Logf("fault: agent-0, medians of the second and of the last quarter: %.1f and %.1f MiB resident, %d and %d descriptors, %d and %d threads, state file %d and %d KiB",
		mib(early.resident), mib(late.resident), early.files, late.files, early.threads, late.threads, early.state>>10, late.state>>10)
	if late.resident > early.resident+early.resident/4+(8<<20) {
		s.t.Errorf("memory grows: %.1f MiB, then %.1f MiB", mib(early.resident), mib(late.resident))
	}
	// Mirrors keep their packs open, up to some dozen files each.
	if late.files > early.files+64 || late.threads > early.threads+8 {
		s.t.Errorf("descriptors or threads grow: %+v, then %+v", early, late)
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// usage is what a process holds at one moment.
type usage struct {
	resident, state int64 // bytes
	files, threads  int
}

func middle(all []usage) usage {
	by := func(get func(usage) int64) int64 {
		var list []int64
		for _, u := range all {
			list = append(list, get(u))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	return usage{
		resident: by(func(u usage) int64 { return u.resident }), state: by(func(u usage) int64 { return u.state }),
		files: int(by(func(u usage) int64 { return int64(u.files) })), threads: int(by(func(u usage) int64 { return int64(u.threads) })),
	}
}

// usage reads what the system knows of the agent.
func (a *soaker) usage(t *testing.T) usage {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", a.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	u := usage{files: len(files)}
	for line := range strings.Lines(string(status)) {
		var n int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &n); err == nil {
			u.resident = n << 10
		}
		if _, err := fmt.Sscanf(line, "Threads: %d", &n); err == nil {
			u.threads = int(n)
		}
	}
	if info, err := os.Stat(a.state()); err == nil {
		u.state = info.Size()
	}
	return u
}

// begin starts the process, with its log in a file.
func (a *soaker) begin(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a.before = sizeOf(t, log)
	d := &daemon{done: make(chan struct{})}
	d.cmd = a.command(context.WithoutCancel(t.Context()), t, append([]string{"--daemon"}, a.flags...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(d.done); d.cmd.Wait() }()
	a.daemon = d
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(a.dir, "log"))
			t.Logf("log of %s:\n%s", a.name, tail(string(text), 4_000))
		}
	})
}

// spoken says whether the process has logged anything.
func (a *soaker) spoken(t *testing.T) bool {
	t.Helper()
	log, err := os.Open(filepath.Join(a.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	return sizeOf(t, log) > a.before
}

func sizeOf(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func (a *soaker) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
