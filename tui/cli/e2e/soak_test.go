package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

var soakFor = flag.Duration("soak", 8*time.Second, "how long TestSoak works before it judges")

// soak is a fleet of agents at work on real servers while things go wrong. The first
// agent is never killed: its memory and descriptors are watched.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	api    *testenv.Server
	user   *apiClient
	host   *testenv.GitServer
	git    *testenv.Proxy
	sites  []*testenv.Repository // site i is Repository "boards" in namespace "site-i"
	agents []*agent
	jobs   map[types.UID]bool // made; true = deleted by hand
	counts map[string]int     // what was done
	faults map[string]fault   // by the part that has it
}

// fault is what is wrong with a part until a moment.
type fault struct {
	until time.Time
	mend  func()
}

// TestSoak lets a fleet work for -soak, with jobs, commits, kills, stops and suspensions at random.
// Then every job has ended once, nothing was written without a lease, every board is as in the
// branch, every state file is sound, no secret is anywhere, and the agent that ran all the time has
// not grown.
func TestSoak(t *testing.T) {
	suite.Full(t)
	s := newSoak(t)
	var used []usage
	var files []int
	end, sample, step := time.After(*soakFor), time.NewTicker(max(*soakFor/60, 200*time.Millisecond)), time.NewTicker(250*time.Millisecond)
	defer sample.Stop()
	defer step.Stop()
	for running := true; running; {
		select {
		case <-step.C:
			s.step()
		case <-sample.C:
			pid := s.agents[0].cmd.Process.Pid
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				t.Fatal(err)
			}
			used, files = append(used, readUsage(t, pid)), append(files, len(open))
		case <-end:
			running = false
		}
	}
	s.mend(time.Now().Add(time.Hour))
	s.idle()
	for i := range s.sites {
		s.pull(i, true)
	}
	s.idle()
	s.judge()
	var done []string
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		done = append(done, fmt.Sprintf("%d %s", s.counts[name], name))
	}
	early, late := len(used)/3, len(used)-1
	t.Logf("soak of %s: %s; after a third %s and %d descriptors, at the end %s and %d", *soakFor, strings.Join(done, ", "), used[early],
		files[early], used[late], files[late])
	// Mirrors keep their packs open, up to some dozen files each.
	if used[late].rss > used[early].rss*5/4+(8<<10) || files[late] > files[early]+64 {
		t.Error("the agent grows")
	}
}

func newSoak(t *testing.T) *soak {
	s := &soak{t: t, rng: rand.New(rand.NewPCG(suite.Seed(t), 11)), jobs: map[types.UID]bool{}, counts: map[string]int{},
		faults: map[string]fault{},
		api:    testenv.Start(t, testenv.Options{}), host: testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})}
	s.user = connectUser(t, s.api, "user", "")
	s.git = s.api.Proxy(t, "git", s.host.URL)
	ca, err := os.ReadFile(s.host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		repo := testenv.Repo(t, 8, 12)
		s.sites = append(s.sites, repo)
		url := strings.Replace(s.host.Serve(fmt.Sprintf("site-%d.git", i), repo.Dir), s.host.URL, s.git.URL, 1)
		s.site(i).create(api.Repositories, "boards", nil, gitRepository("boards", url, testenv.Branch, time.Minute))
	}
	for i := range 3 {
		a := &agent{home: newHome(t), name: fmt.Sprintf("agent-%d", i)}
		for n := range s.sites {
			a.file(t, fmt.Sprintf("credentials/site-%d.boards/token", n), gitToken)
			a.file(t, fmt.Sprintf("credentials/site-%d.boards/ca.crt", n), string(ca))
		}
		a.proxy = s.api.Proxy(t, a.name, s.api.URL)
		a.args = []string{"--provisioning-server-url", a.proxy.URL, "--tls-ca-file", s.api.CAFile, "--token-file",
			a.file(t, "token", s.api.TokenOf(a.name)+"\n"), "--controllers", "off"}
		a.flags = append(fleetLease(), "--credentials-dir", filepath.Join(a.dir, "credentials"), "--job-interval", "2s", "--max-attempts",
			"1000", "--log-format", "json")
		s.agents = append(s.agents, a)
		a.begin(t)
	}
	return s
}

// site is the user in the namespace of a site.
func (s *soak) site(n int) *apiClient { return &apiClient{s.user.Client, s.t, fmt.Sprint("site-", n)} }

// pull queues a job, unless one is in the queue.
func (s *soak) pull(site int, full bool) {
	job := s.site(site).create(api.Jobs, "boards-sync", nil, pullJob("boards", !full))
	if job != nil {
		s.jobs[job.GetUID()] = false
		s.counts["jobs"]++
	}
}

// step does one thing: mostly work, sometimes a fault.
func (s *soak) step() {
	s.mend(time.Now())
	site := s.rng.IntN(len(s.sites))
	repo, jobs := s.sites[site], s.user.Resource(api.Jobs).Namespace(fmt.Sprint("site-", site))
	boards := repo.Dashboards()
	any, other := s.agents[s.rng.IntN(len(s.agents))], s.agents[1+s.rng.IntN(len(s.agents)-1)]
	_, suspended := s.faults[other.name]
	switch n := s.rng.IntN(40); {
	case n < 18:
		s.pull(site, n%3 == 0)
	case n < 24:
		repo.Edit(s.t, boards[s.rng.IntN(len(boards))].Path)
	case n == 24:
		s.counts["added"]++
		repo.Add(s.t, fmt.Sprintf("%s/new/board-%d.json", testenv.Directory, s.counts["added"]))
	case n == 25 && len(boards) > 6:
		repo.Delete(s.t, boards[s.rng.IntN(len(boards))].Path)
	case n == 26:
		repo.ForcePush(s.t, 1)
	case n == 27:
		patch := []byte(`{"metadata":{"annotations":{"limpet/cancel":"enough"}}}`)
		if _, err := jobs.Patch(s.t.Context(), "boards-sync", types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			s.counts["cancelled"]++
		}
	case n == 28:
		if job, err := jobs.Get(s.t.Context(), "boards-sync", metav1.GetOptions{}); err == nil {
			uid := job.GetUID()
			if jobs.Delete(s.t.Context(), "boards-sync", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}) == nil {
				s.jobs[uid] = true
				s.counts["deleted"]++
			}
		}
	case n < 31 && !suspended:
		other.kill()
		other.begin(s.t)
		s.counts["kills"]++
	case n == 31 && !suspended:
		until(s.t, "the agent can heed a signal", func() bool { return other.owner() == other.cmd.Process.Pid })
		if code := other.stop(s.t); code != 0 {
			s.t.Errorf("%s: exit %d on SIGTERM", other.name, code)
		}
		other.begin(s.t)
		s.counts["restarts"]++
	case n == 32:
		s.harm(other.name, "suspensions", func() { _ = other.cmd.Process.Signal(syscall.SIGSTOP) },
			func() { _ = other.cmd.Process.Signal(syscall.SIGCONT) })
	case n == 33:
		s.harm(any.proxy.URL, "cuts to the API", func() { any.proxy.Down(s.t) }, func() { any.proxy.Set(s.t) })
	case n == 34:
		toxics := []testenv.Toxic{testenv.Silence(), testenv.Latency(700*time.Millisecond, 300*time.Millisecond),
			testenv.ResetPeer(200 * time.Millisecond), testenv.Slicer(200, time.Millisecond)}
		s.harm(any.proxy.URL, "bad links to the API", func() { any.proxy.Set(s.t, toxics[s.rng.IntN(len(toxics))]) },
			func() { any.proxy.Set(s.t) })
	case n == 35:
		s.harm("git", "cuts to the Git host", func() { s.git.Down(s.t) }, func() { s.git.Set(s.t) })
	case n == 36:
		s.harm("git", "bad links to the Git host", func() { s.git.Set(s.t, testenv.LimitData(3000)) }, func() { s.git.Set(s.t) })
	}
}

// harm lets one part have a fault for some seconds; a part has one at a time.
func (s *soak) harm(part, what string, harm, mend func()) {
	if _, has := s.faults[part]; has {
		return
	}
	harm()
	s.counts[what]++
	s.faults[part] = fault{time.Now().Add(time.Duration(s.rng.Int64N(int64(9 * time.Second)))), mend}
}

// mend ends the faults whose time is over by now.
func (s *soak) mend(now time.Time) {
	for part, f := range s.faults {
		if f.until.Before(now) {
			f.mend()
			delete(s.faults, part)
		}
	}
}

func (s *soak) idle() {
	s.t.Helper()
	// A job that has failed often backs off for up to 5 min.
	within(s.t, 8*time.Minute, "the queue is empty", func() bool { return len(s.user.list(api.Jobs)) == 0 })
}

// judge holds the end against what must be true of it.
func (s *soak) judge() {
	s.t.Helper()
	archived, recorded := s.user.archived(), map[types.UID]bool{}
	for _, a := range s.agents {
		for _, r := range a.history(s.t) {
			recorded[types.UID(r.UID)] = true
		}
	}
	for uid, deleted := range s.jobs {
		if n := archived[string(uid)]; n > 1 || !deleted && (n == 0 || !recorded[uid]) {
			s.t.Errorf("job %s has %d HistoricJobs; deleted %t, recorded %t", uid, n, deleted, recorded[uid])
		}
	}
	for _, w := range auditOf(s.t, s.api.Requests(s.t, 0), fleetExpiry).wrong {
		s.t.Error(w)
	}
	for i, repo := range s.sites {
		boardsMatch(s.t, s.agents[0].home, fmt.Sprint("site-", i), "boards", repo)
	}
	for _, a := range s.agents {
		if code := a.stop(s.t); code != 0 {
			s.t.Errorf("%s: exit %d on SIGTERM", a.name, code)
		}
		if n := claimsOf(s.t, a.home); n != 0 {
			s.t.Errorf("%s: %d claims left", a.name, n)
		}
		a.must(s.t, 0, "store", "check")
		a.noSecret(s.t, "", gitToken, s.api.TokenOf(a.name)) // its log is in its home
	}
}

// begin starts the process, with its log in a file.
func (a *agent) begin(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := &daemon{log: &log{}, done: make(chan struct{})}
	d.cmd = a.command(context.WithoutCancel(t.Context()), t, append([]string{"--daemon"}, a.flags...)...)
	d.cmd.Stdout, d.cmd.Stderr = file, file
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(d.done); _ = d.cmd.Wait() }()
	a.daemon = d
	t.Cleanup(d.kill)
}
