package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// fleet is one real API and agents of the built binary, each behind a proxy of its own.
type fleet struct {
	t      *testing.T
	api    *testenv.Server
	user   *apiClient
	agents []*agent
	began  testenv.Mark
	expiry time.Duration // of the claims
}

// agent is one host. Its name is the user of its requests.
type agent struct {
	*home
	name  string
	flags []string
	proxy *testenv.Proxy
	*daemon
}

// The lease of agents in these tests: as short as is allowed, so that faults that last longer than
// it stay short too.
const (
	fleetExpiry  = 6 * time.Second
	fleetRenewal = 1 * time.Second
	// fieldGivesUp is how long after its last renewal an agent works on.
	fleetGivesUp = fleetExpiry * 2 / 3
)

func fleetLease() []string {
	return []string{"--claim-expiry", fleetExpiry.String(), "--lease-renewal-interval", fleetRenewal.String()}
}

// newFleet starts a server and makes n agents, which are not running yet.
func newFleet(t *testing.T, o testenv.Options, n int, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, api: testenv.Start(t, o), expiry: fleetExpiry}
	f.user = connectUser(t, f.api, "user", "default")
	for i := range n {
		a := &agent{home: newHome(t), name: fmt.Sprintf("agent-%d", i+1), flags: flags}
		a.proxy = f.api.Proxy(t, a.name, f.api.URL)
		a.args = []string{"--provisioning-server-url", a.proxy.URL, "--tls-ca-file", f.api.CAFile,
			"--token-file", a.file(t, "token", f.api.TokenOf(a.name)+"\n"), "--controllers", "off"}
		f.agents = append(f.agents, a)
	}
	f.began = f.api.Mark(t)
	t.Cleanup(f.verifyState)
	return f
}

// verifyState checks at the end what holds after every fault: state files are sound, and no
// secret is where it must not be.
func (f *fleet) verifyState() {
	f.t.Helper()
	for _, a := range f.agents {
		if a.daemon == nil {
			continue
		}
		secrets := []string{f.api.TokenOf(a.name), testenv.SignToken}
		a.noSecret(f.t, a.log.String(), secrets...)
		for _, r := range f.api.Writes(f.t, f.began) {
			if holds(r.Body, secrets...) != "" {
				f.t.Errorf("a secret was sent: %s", r)
			}
		}
		if check := a.run(f.t, "store", "check"); check.code != 0 || !strings.Contains(check.out, " 0 problems") {
			f.t.Errorf("%s: store check: %s%s", a.name, check.out, check.err)
		}
	}
}

// start starts agents, all of them by default, and waits until they are ready.
func (f *fleet) start(agents ...*agent) {
	f.t.Helper()
	if agents == nil {
		agents = f.agents
	}
	for _, a := range agents {
		a.daemon = a.home.daemon(f.t, a.flags...)
	}
}

// suspend stops the process of an agent until resume.
func (a *agent) suspend(t *testing.T) { a.signal(t, syscall.SIGSTOP) }
func (a *agent) resume(t *testing.T)  { a.signal(t, syscall.SIGCONT) }

func (a *agent) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// repository makes a Repository with labels; without a URL it is a disabledRepository.
func (f *fleet) repository(name, url string, labels map[string]string) {
	f.t.Helper()
	spec := disabledRepository(name)
	if url != "" {
		spec = gitRepository(name, url, testenv.Branch, time.Hour)
	}
	f.user.create(api.Repositories, name, labels, spec)
}

// job makes a pull job and returns its UID.
func (f *fleet) job(name, repository string) types.UID {
	f.t.Helper()
	return f.user.create(api.Jobs, name, nil, pullJob(repository, true)).GetUID()
}

// remove deletes the job of that UID.
func (f *fleet) remove(uid types.UID) {
	f.t.Helper()
	for _, u := range f.listJobs() {
		if u.GetUID() != uid {
			continue
		}
		o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		if err := f.user.Resource(api.Jobs).Namespace("default").Delete(f.t.Context(), u.GetName(), o); err != nil && !apierrors.IsNotFound(err) {
			f.t.Fatal(err)
		}
	}
}

// getJob returns a job, nil when there is none.
func (f *fleet) getJob(name string) *unstructured.Unstructured {
	f.t.Helper()
	u, err := f.user.Resource(api.Jobs).Namespace("default").Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// claimOwner returns the owner label of a job, "" when it is not claimed.
func (f *fleet) claimOwner(name string) string {
	f.t.Helper()
	if u := f.getJob(name); u != nil {
		return u.GetLabels()[api.LabelClaimOwner]
	}
	return ""
}

// listJobs returns the jobs of the API.
func (f *fleet) listJobs() []unstructured.Unstructured { return f.user.list(api.Jobs) }

// pendingJobs returns how many jobs the queue has.
func (f *fleet) pendingJobs() int { return len(f.listJobs()) }

// editJobs annotates one of the first hundred jobs each pause, until the returned function is
// called, which returns the number of edits.
func (f *fleet) editJobs(pause time.Duration) func() int {
	f.t.Helper()
	client := connectUser(f.t, f.api, "editor", "default")
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	edits := 0
	running.Go(func() {
		jobs := client.Resource(api.Jobs).Namespace("default")
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			list, err := jobs.List(ctx, metav1.ListOptions{Limit: 100})
			if err != nil || len(list.Items) == 0 {
				continue
			}
			name := list.Items[rand.IntN(len(list.Items))].GetName()
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/noise":"%d"}}}`, edits)
			if _, err := jobs.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
				edits++
			}
		}
	})
	var once sync.Once
	stop := func() int {
		once.Do(func() { cancel(); running.Wait() })
		return edits
	}
	f.t.Cleanup(func() { stop() })
	return stop
}

// requestsOf returns the requests of an agent since the mark.
func (f *fleet) requestsOf(a *agent, since testenv.Mark) []testenv.Request {
	f.t.Helper()
	var out []testenv.Request
	for _, r := range f.api.Requests(f.t, since) {
		if r.User == a.name {
			out = append(out, r)
		}
	}
	return out
}

// TestManyRepositories: one agent checks many Repositories that do not change. Goal for 1,000 each
// minute (-figures): 2 % of a core and 80 MiB, and in no second twice the mean rate. Nothing is
// fetched, and connections are kept.
func TestManyRepositories(t *testing.T) {
	suite.Full(t)
	const (
		mostCheck    = 4 * time.Millisecond // of processor time; with room for a busy machine
		mostResident = 80 << 10             // KiB, of a thousand
		mostOverMean = 2                    // checks in a second over the mean
	)
	count, interval, watched := size(60, 1000), time.Duration(size(10, 60))*time.Second, time.Duration(size(20, 300))*time.Second
	var mu sync.Mutex // guards asked
	var asked []time.Time
	host := testenv.Git(t, testenv.GitOptions{TLS: true, Accept: func(user, password, _ string) bool {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		return user == "git" && password == gitToken
	}})
	h := newHome(t)
	h.env = append(h.env, "SSL_CERT_FILE="+host.CAFile)
	d := h.daemon(t, "--log-level", "info")
	repositories := embeddedWorkload(t, h).client.Resource(api.Repositories).Namespace("default")
	for i := range count {
		repo := testenv.EmptyRepo(t)
		repo.Commit(t, "a dashboard", testenv.Change{Path: testenv.Directory + "/board.json",
			Data: fmt.Appendf(nil, `{"uid":"board-%d","title":"Board","schemaVersion":39,"tags":[],"panels":[]}`, i)})
		name := fmt.Sprintf("r%04d", i)
		u := newObject(api.Repositories, name, nil, gitRepository(name, host.Serve("site/"+name+".git", repo.Dir), testenv.Branch, interval))
		u.Object["secure"] = map[string]any{"token": map[string]any{"create": gitToken}}
		if _, err := repositories.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 10*time.Minute, "all are pulled", func() bool {
		list, err := repositories.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if repo, err := api.RepositoryView(&list.Items[i]); err == nil && repo.Status.Health.Healthy &&
				repo.Status.Sync.State == api.StateSuccess {
				n++
			}
		}
		return n == count
	})
	<-time.After(interval * 5 / 4) // from the first pulls to the rhythm of the interval
	mu.Lock()
	asked = nil
	mu.Unlock()
	host.Reset()
	first := readUsage(t, d.cmd.Process.Pid)
	<-time.After(watched)
	last, counts := readUsage(t, d.cmd.Process.Pid), host.Reset()
	mu.Lock()
	times := slices.Clone(asked)
	mu.Unlock()
	checks, mean, most := len(times), float64(len(times))/watched.Seconds(), 0
	for i, j := 0, 0; j < checks; j++ {
		for times[j].Sub(times[i]) >= time.Second {
			i++
		}
		most = max(most, j-i+1)
	}
	if want := int(float64(count)*watched.Seconds()/interval.Seconds()) * 9 / 10; checks < want {
		t.Fatalf("%d checks, want %d", checks, want)
	}
	cpu := (last.cpu - first.cpu) / time.Duration(checks)
	t.Logf("%d repositories each %s: %s a check; %s; %.1f checks/s, at most %d in one second; %d connections", count, interval, cpu, last,
		mean, most, counts.Connected)
	if cpu > mostCheck || counts.UploadPack > 0 || counts.Connected > checks/10 {
		t.Errorf("%s a check, %+v", cpu, counts)
	}
	if *figures && (last.rss > mostResident || float64(most) > mostOverMean*mean) {
		t.Errorf("%d KiB resident, %d checks in one second", last.rss, most)
	}
}
