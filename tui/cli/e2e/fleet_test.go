package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// field is one real API, agents of the built binary that reach it each by a
// way of its own, and the people who make jobs.
type field struct {
	t      *testing.T
	api    *testenv.Server
	people *kube.Client
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
	f.people, err = kube.Connect(t.Context(), kube.Config{Server: f.api.URL, TLS: kube.TLS{CAFile: f.api.CAFile}, Token: f.api.TokenOf("people"), UserAgent: "people"})
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
	client, err := kube.Connect(f.t.Context(), kube.Config{Server: f.api.URL, TLS: kube.TLS{CAFile: f.api.CAFile}, Token: f.api.TokenOf("noise"), UserAgent: "noise"})
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

// What is asked of an agent that was killed again and again.

// judge asks after the last life that nothing is lost and nothing was done twice.
func (m *mortal) judge() {
	m.t.Helper()
	m.once()
	m.content()
	m.resumed()
	m.keptClaims()
	m.clean()
	if check := m.must(m.t, 0, "store", "check"); !strings.Contains(check.out, " 0 problems") {
		m.t.Errorf("store check: %s", check.out)
	}
}

// once: each job has one record and one HistoricJob, and nothing waits.
func (m *mortal) once() {
	m.t.Helper()
	historic, records := map[string]int{}, map[string]int{}
	for _, h := range m.list(api.HistoricJobs) {
		historic[h.GetLabels()[api.LabelOriginalUID]]++
	}
	for _, r := range m.history(m.t) {
		records[r.UID]++
		if r.State != "success" && !m.fails {
			m.t.Errorf("job %s ended as %s: %s", r.Name, r.State, r.Message)
		}
	}
	if !maps.Equal(historic, records) && !m.forgets {
		m.t.Errorf("%d HistoricJobs, %d records, which differ", len(historic), len(records))
	}
	for uid, n := range historic {
		if n != 1 {
			m.t.Errorf("job %s has %d HistoricJobs", uid, n)
		}
	}
	for uid := range m.jobs {
		if n := historic[uid]; n != 1 || records[uid] > 1 || records[uid] == 0 && !m.forgets {
			m.t.Errorf("job %s has %d HistoricJobs and %d records", uid, n, records[uid])
		}
	}
}

var dashboards = schema.GroupVersionResource{Group: "dashboard.grafana.app", Version: "v1", Resource: "dashboards"}

// content: the API has what the branch has, file by file.
func (m *mortal) content() {
	m.t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for line := range strings.Lines(m.repo.Git(m.t, "ls-tree", "-r", "--format=%(objectname) %(path)", testenv.Branch)) {
		hash, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[file] = hash
	}
	for _, o := range m.list(dashboards) {
		a := o.GetAnnotations()
		got[a["grafana.app/managerId"]+"/"+a["grafana.app/sourcePath"]] = a["grafana.app/sourceChecksum"]
	}
	if !maps.Equal(got, want) {
		m.t.Errorf("%d dashboards that differ from the %d of the branch", len(got), len(want))
	}
}

// rewritten counts the writes of dashboards to the API that were not needed:
// what they wrote was there already.
func (m *mortal) rewritten() (writes, again int) {
	m.t.Helper()
	seen := map[string]bool{}
	for _, r := range m.api.Writes(m.t, 0) {
		if !strings.Contains(r.Path, "/namespaces/"+m.namespace+"/dashboards") || r.Code >= 300 {
			continue
		}
		var body struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			m.t.Fatal(err)
		}
		writes++
		key := body.Metadata.Name + " " + body.Metadata.Annotations["grafana.app/sourceChecksum"]
		if seen[key] {
			again++
		}
		seen[key] = true
	}
	return writes, again
}

// resumed reads from the log how long an own claim waited after a kill.
func (m *mortal) resumed() {
	if m.slowest > resumeWithin {
		m.t.Errorf("an own claim was taken up again %s after the kill", m.slowest)
	}
}

// took notes how long after the end of one life the next took up an own claim.
func (m *mortal) took() {
	m.t.Helper()
	if m.died.IsZero() {
		return
	}
	for line := range strings.Lines(m.log.String()[m.logged:]) {
		if !strings.Contains(line, stepped("resumed")) {
			continue
		}
		var entry struct{ Time time.Time }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		m.slowest = max(m.slowest, entry.Time.Sub(m.died))
	}
}

// keptClaims: each life knows the claims of the last one. Who forgets them has to
// wait until they expire like those of anybody else, and then takes them off.
func (m *mortal) keptClaims() {
	m.t.Helper()
	for line := range strings.Lines(m.log.String()) {
		if !strings.Contains(line, stepped("requeued")) {
			continue
		}
		var entry struct{ UID string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		if m.jobs[entry.UID] {
			m.t.Errorf("the agent has taken its own claim for that of a dead one: %s", line)
		}
	}
}

// clean: no temporary file is left, and no secret is in any.
func (m *mortal) clean() {
	m.t.Helper()
	m.noSecret(m.t, m.log.String(), gitToken, testenv.SignToken)
	for _, r := range m.api.Writes(m.t, 0) {
		if found := holds(r.Body, gitToken, testenv.SignToken); found != "" {
			m.t.Errorf("a secret was sent: %s", r)
		}
	}
	for _, dir := range []string{filepath.Dir(m.state()), filepath.Join(m.dir, "tmp")} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if name := d.Name(); file != m.state() && file != m.state()+".key" && file != m.state()+".reserve" && !strings.Contains(file, "/mirrors/") && !strings.HasPrefix(file, m.state()+".schema-") ||
				strings.Contains(name, "tmp") || strings.HasSuffix(name, ".lock") {
				m.t.Errorf("left behind: %s", file)
			}
			return nil
		})
		if err != nil {
			m.t.Error(err)
		}
	}
}
