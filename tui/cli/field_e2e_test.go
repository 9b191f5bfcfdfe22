package cli_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// field is one real API, agents of the built binary that reach it each by a
// way of its own, and the people who make jobs.
type field struct {
	t      *testing.T
	api    *testenv.Server
	people *api.Client
	agents []*agent
	began  testenv.Mark
	expiry time.Duration // of the claims
}

// agent is one host. Its name is the user of its requests.
type agent struct {
	*home
	name  string
	flags []string
	way   *testenv.Proxy
	*daemon
}

// The lease of agents in these tests: as short as is allowed, so that faults
// that last longer than it stay short too.
const (
	fieldExpiry = 6 * time.Second
	fieldRenew  = 1 * time.Second
	// fieldGivesUp is how long after its last renewal an agent works on.
	fieldGivesUp = fieldExpiry * 2 / 3
)

func fieldLease() []string {
	return []string{"--claim-expiry", fieldExpiry.String(), "--lease-renewal-interval", fieldRenew.String()}
}

// newField starts a server, and n agents that are not running yet.
func newField(t *testing.T, o testenv.Options, n int, flags ...string) *field {
	t.Helper()
	f := &field{t: t, api: testenv.Start(t, o), expiry: fieldExpiry}
	var err error
	f.people, err = api.Connect(t.Context(), api.Config{Server: f.api.URL, TLS: api.TLS{CAFile: f.api.CAFile}, Token: f.api.TokenOf("people"), UserAgent: "people"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.people.Close)
	for i := range n {
		a := &agent{home: newHome(t), name: fmt.Sprintf("agent-%d", i+1), flags: flags}
		a.way = f.api.Proxy(t, a.name, f.api.URL)
		a.args = []string{"--provisioning-server-url", a.way.URL, "--tls-ca-file", f.api.CAFile,
			"--token-file", a.file(t, "token", f.api.TokenOf(a.name)+"\n"), "--controllers", "off"}
		f.agents = append(f.agents, a)
	}
	f.began = f.api.Mark(t)
	t.Cleanup(f.sound)
	return f
}

// sound asks at the end, when no agent runs any more, what has to be true after
// every fault: the state files are in order, and no secret is where it must not be.
func (f *field) sound() {
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

// start starts agents, all of them when none is given, and waits until they
// work.
func (f *field) start(agents ...*agent) {
	f.t.Helper()
	if agents == nil {
		agents = f.agents
	}
	for _, a := range agents {
		a.daemon = a.home.daemon(f.t, a.flags...)
	}
}

// suspend stops the process of an agent as it is, until resume.
func (a *agent) suspend(t *testing.T) { a.signal(t, syscall.SIGSTOP) }
func (a *agent) resume(t *testing.T)  { a.signal(t, syscall.SIGCONT) }

func (a *agent) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// cpu is the processor time that an agent has taken so far.
func (a *agent) cpu(t *testing.T) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	var ticks int64
	for _, field := range strings.Fields(rest)[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ
}

// repository makes a Repository. Without a URL its sync is off: a pull of it is
// claimed, begun, and ends as error at once; nothing in limpet does less.
func (f *field) repository(name, url string) {
	f.t.Helper()
	f.labelled(name, url, nil)
}

// labelled makes a Repository with labels.
func (f *field) labelled(name, url string, labels map[string]string) {
	f.t.Helper()
	on := url != ""
	if !on {
		url = "https://git.invalid/" + name + ".git"
	}
	f.create(api.Repositories, "Repository", name, labels, map[string]any{"title": name, "type": "git",
		"git":  map[string]any{"url": url, "branch": testenv.Branch, "path": testenv.Directory},
		"sync": map[string]any{"enabled": on, "target": "folder", "intervalSeconds": int64(3600)}})
}

// job makes a pull job and returns its UID.
func (f *field) job(name, repository string) types.UID {
	f.t.Helper()
	return f.create(api.Jobs, "Job", name, map[string]string{api.LabelRepository: repository}, map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": true}})
}

func (f *field) create(kind schema.GroupVersionResource, noun, name string, labels map[string]string, spec map[string]any) types.UID {
	f.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": noun, "spec": spec}}
	u.SetName(name)
	u.SetLabels(labels)
	u, err := f.people.Resource(kind).Namespace("default").Create(f.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatalf("create %s %s: %v", noun, name, err)
	}
	return u.GetUID()
}

// remove deletes the job of that UID.
func (f *field) remove(uid types.UID) {
	f.t.Helper()
	for _, u := range f.queue() {
		if u.GetUID() != uid {
			continue
		}
		o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		if err := f.people.Resource(api.Jobs).Namespace("default").Delete(f.t.Context(), u.GetName(), o); err != nil && !apierrors.IsNotFound(err) {
			f.t.Fatal(err)
		}
	}
}

// look reads one job; nil when there is none.
func (f *field) look(name string) *unstructured.Unstructured {
	f.t.Helper()
	u, err := f.people.Resource(api.Jobs).Namespace("default").Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// owner is the token under which a job is claimed, "" when nobody has it.
func (f *field) owner(name string) string {
	f.t.Helper()
	if u := f.look(name); u != nil {
		return u.GetLabels()[api.LabelClaimOwner]
	}
	return ""
}

// queue returns the jobs of the API.
func (f *field) queue() []unstructured.Unstructured {
	f.t.Helper()
	list, err := f.people.Resource(api.Jobs).Namespace("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Items
}

// waiting is how many jobs the queue has.
func (f *field) waiting() int {
	f.t.Helper()
	list, err := f.people.Resource(api.Jobs).Namespace("default").List(f.t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	more := int64(0)
	if n := list.GetRemainingItemCount(); n != nil {
		more = *n
	}
	return len(list.Items) + int(more)
}

// historicJobs returns the UIDs of the jobs that the API has a HistoricJob of.
func (f *field) historicJobs() []string {
	f.t.Helper()
	list, err := f.people.Resource(api.HistoricJobs).Namespace("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].GetLabels()[api.LabelOriginalUID])
	}
	return out
}

// within is until with a patience of its own.
func within(t *testing.T, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// noise has somebody edit a job of the queue, any of the first hundred, each
// pause until the returned function is called. That returns how many edits were
// taken.
func (f *field) noise(pause time.Duration) func() int {
	f.t.Helper()
	client, err := api.Connect(f.t.Context(), api.Config{Server: f.api.URL, TLS: api.TLS{CAFile: f.api.CAFile}, Token: f.api.TokenOf("noise"), UserAgent: "noise"})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	edits := 0
	running.Go(func() {
		defer client.Close()
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

// requestsOf returns what an agent has asked since the mark.
func (f *field) requestsOf(a *agent, since testenv.Mark) []testenv.Request {
	f.t.Helper()
	var out []testenv.Request
	for _, r := range f.api.Requests(f.t, since) {
		if r.User == a.name {
			out = append(out, r)
		}
	}
	return out
}
