package e2e

import (
	"bytes"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestRace: agents on different hosts find a full queue at once while a client edits its jobs.
// Every job is done once: one HistoricJob, one DELETE, one record, and no write without the
// claim. In every second run one agent is killed halfway and others take over.
func TestRace(t *testing.T) {
	suite.Full(t)
	rng := rand.New(rand.NewPCG(suite.Seed(t), 8))
	jobs := suite.Count(120, 1000)
	for run := range suite.Count(1, 3) {
		t.Run(fmt.Sprint(run+1), func(t *testing.T) { race(t, rng, jobs, 20, run%2 == 1) })
	}
}

func race(t *testing.T, rng *rand.Rand, jobs, repositories int, kill bool) {
	f := newFleet(t, testenv.Options{}, 4, fleetLease()...)
	for i := range repositories {
		f.repository(fmt.Sprintf("repo-%02d", i), "", nil)
	}
	f.start()
	for _, a := range f.agents {
		a.suspend(t)
	}
	uids := map[string]bool{}
	for i := range jobs {
		uids[string(f.job(fmt.Sprintf("job-%04d", i), fmt.Sprintf("repo-%02d", rng.IntN(repositories))))] = true
	}
	noise := f.editJobs(50 * time.Millisecond)
	for _, a := range f.agents {
		a.resume(t)
	}
	if kill {
		within(t, 5*time.Minute, "half of the jobs are done", func() bool { return f.pendingJobs() <= jobs/2 })
		f.agents[rng.IntN(len(f.agents))].kill()
	}
	within(t, 5*time.Minute, "the queue is empty", func() bool { return f.pendingJobs() == 0 })
	noise()

	a := auditOf(t, f.api.Requests(t, f.began), fleetExpiry)
	list := make([]string, 0, len(uids))
	for uid := range uids {
		list = append(list, uid)
	}
	historic := f.user.archived()
	if kill { // the killed agent may not have got the answer to its POST
		for uid, n := range historic {
			a.jobs[uid].perhapsArchived += n
		}
	}
	a.judge(t, list...)
	records, share := map[string]int{}, []string{}
	for _, agent := range f.agents {
		n := 0
		for _, r := range agent.history(t) {
			records[r.UID]++
			n++
		}
		share = append(share, fmt.Sprint(n))
	}
	for _, uid := range list {
		if historic[uid] != 1 {
			t.Errorf("job %s has %d HistoricJobs", uid, historic[uid])
		}
		// Who is killed between its record and the HistoricJob has a record, and so has who did it again.
		if n := records[uid]; n != 1 && !(kill && n == 2) {
			t.Errorf("job %s has %d records", uid, n)
		}
	}
	slices.Sort(share)
}

// TestAgentsShareTheWork runs no-op jobs through 1, 2, 4 and 8 agents on one API and counts what
// they ask of it: requests and conflicts for each job, and how the total rate compares with that of
// one agent. All processes share the machine, so the rates tell what more agents cost, not what
// they gain.
func TestAgentsShareTheWork(t *testing.T) {
	suite.Full(t)
	const (
		mostRequests  = 4.0  // for each job of an agent that is alone
		mostConflicts = 0.05 // for each claim, 8 agents
		leastTotal    = 0.7  // 8 agents over 1
	)
	counts := []int{1, 2, 4, 8}
	if !*figures {
		counts = []int{1, 4}
	}
	server := testenv.Start(t, testenv.Options{})
	y, flags := realWorkload(t, server)
	y.repositories(20)
	s := y.watchJobs()
	n, rounds := size(60, 600), size(1, 3)
	rate := map[int]float64{}
	for _, agents := range counts {
		t.Run(fmt.Sprint(agents, " agents"), func(t *testing.T) {
			for range agents {
				newHome(t, flags...).daemon(t, "--log-level", "warn")
			}
			y.runJobs(s, n/4, 8) // warm
			since := server.Mark(t)
			var took []time.Duration
			for range rounds {
				took = append(took, y.runJobs(s, n, 8))
			}
			rate[agents] = perSecond(n, median(took))
			total, lost := 0.0, 0.0
			asked := counted(server.Requests(t, since))
			var parts []string
			for _, kind := range kinds(asked) {
				each := float64(asked[kind]) / float64(n*rounds)
				total += each
				parts = append(parts, fmt.Sprintf("%s %.3f", kind, each))
			}
			lost = float64(asked["PUT jobs "+http.StatusText(http.StatusConflict)]) / float64(n*rounds)
			t.Logf("%d agents: %.0f jobs/s, %.2f times one agent; %.2f requests a job (%s); %.3f conflicts a claim (n=%d)",
				agents, rate[agents], rate[agents]/rate[1], total, strings.Join(parts, ", "), lost, n*rounds)
			if removed := asked["DELETE jobs"]; removed != n*rounds {
				t.Errorf("%d removals of %d jobs", removed, n*rounds)
			}
			if posted := asked["POST historicjobs"]; posted != n*rounds {
				t.Errorf("%d HistoricJobs of %d jobs", posted, n*rounds)
			}
			if agents == 1 && total > mostRequests+0.1 {
				t.Errorf("%.2f requests a job, goal %.0f", total, mostRequests)
			}
			if agents == 8 && lost > mostConflicts {
				t.Errorf("%.3f conflicts a claim, goal %.1f", lost, mostConflicts)
			}
			if agents == 8 && rate[8] < leastTotal*rate[1] {
				t.Errorf("8 agents do %.2f times the jobs of one, goal %.1f", rate[8]/rate[1], leastTotal)
			}
		})
	}
}

// TestAgentsShareRepositories: of two agents with --controllers on one manages the
// Repositories of an API, and when that one dies the other takes over.
func TestAgentsShareRepositories(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Leases: true})
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})
	user := connectUser(t, server, "user", "default")
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	repo := testenv.Repo(t, 2, 2)
	url := host.Serve("boards.git", repo.Dir)
	const count = 12
	var agents []*home
	for i := range 2 {
		h := newHome(t)
		for n := range count {
			h.file(t, fmt.Sprintf("credentials/default.repo-%d/token", n), gitToken)
			h.file(t, fmt.Sprintf("credentials/default.repo-%d/ca.crt", n), string(ca))
		}
		h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file",
			h.file(t, "token", server.TokenOf(fmt.Sprint("agent-", i))+"\n")}
		agents = append(agents, h)
	}
	run := func(h *home) *daemon {
		return h.daemon(t, "--controllers", "on", "--credentials-dir", h.dir+"/credentials", "--claim-expiry", "6s", "--lease-renewal-interval",
			"2s")
	}
	first := run(agents[0])
	until(t, "the first is active", func() bool { return strings.Contains(agents[0].run(t, "status").out, "managed by this agent") })
	second := run(agents[1])
	until(t, "the second is standby", func() bool { return strings.Contains(agents[1].run(t, "status").out, "standby; active: ") })
	mark := server.Mark(t)
	res := user.Resource(api.Repositories).Namespace("default")
	for n := range count {
		user.create(api.Repositories, fmt.Sprintf("repo-%d", n), nil, gitRepository("Boards", url, testenv.Branch, time.Hour))
	}
	observed := func(generation int64) func() bool {
		return func() bool {
			n := 0
			for _, u := range user.list(api.Repositories) {
				if view, err := api.RepositoryView(&u); err == nil && view.Status.ObservedGeneration >= generation && view.Status.Health.Healthy {
					n++
				}
			}
			return n == count
		}
	}
	until(t, "all are managed", observed(1))
	// Each was checked once, by the active agent.
	checkedBy := map[string]string{}
	for _, r := range server.Requests(t, mark) {
		var ops []struct{ Op, Path string }
		if r.Method != "PATCH" || !strings.HasSuffix(r.Path, "/status") || json.Unmarshal(r.Body, &ops) != nil || r.Code != 200 {
			continue
		}
		name := path.Base(path.Dir(r.Path))
		for _, o := range ops {
			if o.Path != "/status/health" {
				continue
			}
			if who := checkedBy[name]; who != "" {
				t.Errorf("%s was checked by %s and again by %s", name, who, r.User)
			}
			checkedBy[name] = r.User
		}
	}
	for name, user := range checkedBy {
		if user != "agent-0" {
			t.Errorf("%s was checked by %s", name, user)
		}
	}
	if len(checkedBy) != count {
		t.Errorf("%d were checked, want %d", len(checkedBy), count)
	}
	first.kill()
	for n := range count {
		patch := []byte(`{"spec":{"title":"Other"}}`)
		if _, err := res.Patch(t.Context(), fmt.Sprintf("repo-%d", n), "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the second manages all of them", observed(2))
	if code := second.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	leases := user.list(testenv.Leases)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	if holder, held, _ := unstructured.NestedString(leases[0].Object, "spec", "holderIdentity"); held {
		t.Errorf("the lease is still held by %s", holder)
	}
}

// TestControllersAutoElsewhere: on an API that is not the embedded one an agent leaves
// the Repositories to their controller unless --controllers on is given.
func TestControllersAutoElsewhere(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	connectUser(t, server, "grafana", "default").create(api.Repositories, "boards", nil,
		gitRepository("boards", "https://git.example.com/x.git", testenv.Branch, time.Hour))
	mark := server.Mark(t)
	h := newHome(t)
	h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file",
		h.file(t, "token", server.TokenOf("agent")+"\n")}
	d := h.daemon(t)
	until(t, "status shows the role", func() bool {
		return strings.Contains(h.run(t, "status").out, "not managed by this agent (--controllers auto)")
	})
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if writes := server.Writes(t, mark); len(writes) > 0 {
		t.Errorf("the agent has written %v", writes)
	}
}

// pendingRepositories is how many repositories the pending jobs are for.
const pendingRepositories = 200

// TestPendingJobsMemory bounds the memory of an agent while 10,000 jobs are pending, with -figures
// 100,000. Its drivers are busy with a Git host that never answers.
func TestPendingJobsMemory(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h, n := newHome(t), size(10_000, 100_000)
	store, _, err := state.Open(t.Context(), state.Options{Path: h.state()})
	if err != nil {
		t.Fatal(err)
	}
	createPendingJobs(t, n, func(plural, name, object string) error {
		key := state.ObjectKey{Resource: "provisioning.grafana.app/" + plural, Namespace: "default", Name: name}
		_, err := store.Mutate(t.Context(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
			return state.Mutation{Data: bytes.Replace([]byte(object), []byte(`"0"`), fmt.Appendf(nil, `"%d"`, rev), 1)}, nil
		})
		return err
	})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	d := h.daemon(t)
	until(t, "the drivers are busy and all jobs are seen", func() bool {
		var status struct {
			Live struct {
				Counts struct{ Working, Pending int }
			}
		}
		r := h.run(t, "status", "-o", "json")
		return json.Unmarshal([]byte(r.out), &status) == nil && status.Live.Counts.Working > 0 &&
			status.Live.Counts.Working+status.Live.Counts.Pending >= n
	})
	w := readUsage(t, d.cmd.Process.Pid)
	t.Logf("%d jobs: %s", n, w)
	if limit := 69<<10 + n*45/100; w.peak > limit { // KiB; 114 MiB for a hundred thousand, of them 33 of mapped files
		t.Errorf("%d MiB at most, want %d", w.peak>>10, limit>>10)
	}
	d.kill()
}

// createPendingJobs makes the repositories and the jobs.
func createPendingJobs(t *testing.T, n int, put func(plural, name, object string) error) {
	t.Helper()
	url, _ := hangingHost(t)
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(64)
	meta := func(name, labels string) string {
		var id [16]byte
		_, _ = crand.Read(id[:])
		return fmt.Sprintf(`"metadata":{"name":%q,"namespace":"default","uid":"%x-%x-%x-%x-%x","resourceVersion":"0","generation":1,"creationTimestamp":%q,"labels":{%s}}`,
			name, id[:4], id[4:6], id[6:8], id[8:10], id[10:], start.Add(-time.Hour).UTC().Format(time.RFC3339), labels)
	}
	for i := range pendingRepositories {
		name := fmt.Sprintf("repository-%04d", i)
		g.Go(func() error {
			return put("repositories", name, fmt.Sprintf(
				`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",%s,"spec":{"title":%q,"type":"git","git":{"url":"%s/%s.git","branch":"main","path":"/"},"sync":{"enabled":true,"target":"folder","intervalSeconds":3600},"workflows":[]},"status":{"observedGeneration":1,"health":{"healthy":true,"checked":1},"sync":{"state":"success","message":[],"finished":%d}}}`,
				meta(name, ""), name, url, name, time.Now().UnixMilli()))
		})
	}
	for i := range n {
		repo := fmt.Sprintf("repository-%04d", i%pendingRepositories)
		name := fmt.Sprintf("%s-pull-%06d", repo, i)
		g.Go(func() error {
			return put("jobs", name, fmt.Sprintf(
				`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job",%s,"spec":{"action":"pull","repository":%q,"pull":{"incremental":true}},"status":{"state":"pending"}}`,
				meta(name, fmt.Sprintf(`"provisioning.grafana.app/repository":%q`, repo)), repo))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs of %d repositories made in %s", n, pendingRepositories, time.Since(start).Round(time.Millisecond))
}
