package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// mortalBinary is limpet with failpoints, built once for all tests.
var mortalBinary = sync.OnceValues(func() (string, error) {
	path := binary.path + "-failpoints"
	out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", path, "limpet").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// world is the servers that outlive the agents of a crash test.
type world struct {
	api    *testenv.Server
	host   *testenv.GitServer
	people *kube.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{api: testenv.Start(t, testenv.Options{}), host: testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})}
	var err error
	w.people, err = kube.Connect(t.Context(), kube.Config{Server: w.api.URL, TLS: kube.TLS{CAFile: w.api.CAFile}, Token: w.api.Token, UserAgent: "people"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.people.Close)
	return w
}

// mortal is an agent that is killed again and again, in a namespace of its own,
// with Repositories that are directories of one Git repository.
type mortal struct {
	*home
	*world
	t         *testing.T
	rng       *rand.Rand
	namespace string
	repo      *testenv.Repository
	sizes     map[string]int // dashboards of each Repository
	revision  map[string]int
	jobs      map[string]bool // UIDs of those that people made; true = nobody held them then
	made      int
	log       log           // of all its lives
	logged    int           // length of the log when the last life began
	died      time.Time     // when the last life ended
	slowest   time.Duration // from a kill to the moment when an own claim was taken up again
	attempts  int           // --max-attempts
	forgets   bool          // records may be missing from the local history
	fails     bool          // jobs may end as error
}

// The lease of these tests, and what a claim may take to be taken up again.
const (
	mortalExpiry = 6 * time.Second
	mortalRenew  = 2 * time.Second
	resumeWithin = mortalExpiry + 10*time.Second
)

// small and large are numbers of dashboards: few for speed, and more than there
// are between two progress marks.
const (
	small = 6
	large = 210
)

func newMortal(t *testing.T, w *world, namespace string, seed uint64, sizes map[string]int) *mortal {
	t.Helper()
	m := &mortal{home: newHome(t), world: w, t: t, rng: rand.New(rand.NewPCG(seed, 3)), namespace: namespace, repo: testenv.EmptyRepo(t),
		attempts: 1000, sizes: sizes, revision: map[string]int{}, jobs: map[string]bool{}}
	ca, err := os.ReadFile(w.host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range m.names() {
		m.edit(name)
	}
	url := w.host.Serve(namespace+".git", m.repo.Dir)
	for _, name := range m.names() {
		m.file(t, "credentials/"+namespace+"."+name+"/token", gitToken)
		m.file(t, "credentials/"+namespace+"."+name+"/ca.crt", string(ca))
		m.create(api.Repositories, "Repository", name, nil, map[string]any{"title": name, "type": "git",
			"git":  map[string]any{"url": url, "branch": testenv.Branch, "path": name},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}})
	}
	tmp := filepath.Join(m.dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	m.env = append(m.env, "TMPDIR="+tmp)
	m.args = []string{"--provisioning-server-url", w.api.URL, "--tls-ca-file", w.api.CAFile, "--token-exchange-url", w.api.SignURL,
		"--token-file", m.file(t, "token", testenv.SignToken+"\n"), "--namespace", namespace, "--controllers", "off"}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", namespace, tail(m.log.String(), 8_000))
		}
	})
	return m
}

func (m *mortal) names() []string { return slices.Sorted(maps.Keys(m.sizes)) }

func (m *mortal) create(kind schema.GroupVersionResource, noun, name string, labels map[string]string, spec map[string]any) *unstructured.Unstructured {
	m.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": noun, "spec": spec}}
	u.SetName(name)
	all := map[string]string{}
	maps.Copy(all, labels)
	if repo, ok := spec["repository"].(string); ok {
		all[api.LabelRepository] = repo
	}
	u.SetLabels(all)
	u, err := m.people.Resource(kind).Namespace(m.namespace).Create(m.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		m.t.Fatalf("create %s %s: %v", noun, name, err)
	}
	return u
}

func (m *mortal) list(kind schema.GroupVersionResource) []unstructured.Unstructured {
	m.t.Helper()
	list, err := m.people.Resource(kind).Namespace(m.namespace).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// edit commits a change of every dashboard of a Repository.
func (m *mortal) edit(name string) {
	m.revision[name]++
	var changes []testenv.Change
	for i := range m.sizes[name] {
		changes = append(changes, testenv.Change{Path: fmt.Sprintf("%s/shelf-%d/board-%d.json", name, i%3, i),
			Data: fmt.Appendf(nil, `{"uid":"%s-%d","title":"Board %d","tags":["revision %d"],"panels":[],"schemaVersion":41}`, name, i, i, m.revision[name])})
	}
	m.repo.Commit(m.t, fmt.Sprintf("Revision %d of %s", m.revision[name], name), changes...)
}

// feed sees to it that each of these Repositories has a job that waits, with
// something to do.
func (m *mortal) feed(names ...string) {
	m.t.Helper()
	busy := map[string]bool{}
	for _, job := range m.list(api.Jobs) {
		busy[job.GetLabels()[api.LabelRepository]] = true
	}
	for _, name := range names {
		if !busy[name] {
			m.edit(name)
			m.pull(name, nil)
		}
	}
}

// pull makes a job.
func (m *mortal) pull(name string, labels map[string]string) {
	m.t.Helper()
	m.made++
	job := m.create(api.Jobs, "Job", fmt.Sprintf("%s-%d", name, m.made), labels, map[string]any{"action": "pull", "repository": name,
		"pull": map[string]any{"incremental": m.rng.IntN(2) == 0}})
	m.jobs[string(job.GetUID())] = labels[api.LabelClaim] == ""
}

// life is one process of a mortal agent.
type life struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start begins a life; what it dies of is for LIMPET_FAILPOINTS.
func (m *mortal) start(failpoints string, flags ...string) *life {
	m.t.Helper()
	path, err := mortalBinary()
	if err != nil {
		m.t.Fatal(err)
	}
	return m.startAs(path, failpoints, flags...)
}

func (m *mortal) startAs(path, failpoints string, flags ...string) *life {
	m.t.Helper()
	l := &life{done: make(chan struct{})}
	l.cmd = tied(exec.Command(path, append(m.flags(), flags...)...))
	l.cmd.Env, l.cmd.Dir = append(slices.Clone(m.env), "LIMPET_FAILPOINTS="+failpoints), m.dir
	l.cmd.Stdout, l.cmd.Stderr = &m.log, &m.log
	m.logged = len(m.log.String())
	if err := l.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { defer close(l.done); _ = l.cmd.Wait() }()
	m.t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.done
	})
	return l
}

// flags are those of every life.
func (m *mortal) flags() []string {
	return append(slices.Clone(m.args), "--daemon", "--log-format", "json", "--log-level", "debug", "--credentials-dir", filepath.Join(m.dir, "credentials"),
		"--claim-expiry", mortalExpiry.String(), "--lease-renewal-interval", mortalRenew.String(), "--job-interval", "1s", "--drivers", "2", "--max-attempts", strconv.Itoa(m.attempts),
		"--history-expiration", "24h")
}

// claims waits until a life has taken up a job.
func (m *mortal) claims(l *life) {
	m.t.Helper()
	until(m.t, "a job is claimed", func() bool {
		select {
		case <-l.done:
			return true
		default:
		}
		now := m.log.String()[m.logged:]
		return strings.Contains(now, stepped("claimed")) || strings.Contains(now, stepped("resumed"))
	})
}

// end waits for the end of a life and says whether it was killed.
func (m *mortal) end(l *life) (killed bool) {
	m.t.Helper()
	select {
	case <-l.done:
	case <-time.After(callTimeout):
		m.t.Fatalf("still alive, with %d jobs in the queue", len(m.list(api.Jobs)))
	}
	m.took()
	m.died = time.Now()
	status := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() && status.ExitStatus() != 0 {
		m.t.Fatalf("ended with exit code %d", status.ExitStatus())
	}
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// rest lets an agent live until the queue is empty, and then stops it in order.
func (m *mortal) rest(flags ...string) {
	m.t.Helper()
	l := m.start("", flags...)
	until(m.t, "all jobs have ended in "+m.namespace, func() bool {
		select {
		case <-l.done:
			m.t.Fatal("the agent ended by itself")
		default:
		}
		// One that is stopped before it listens leaves the socket of a killed one.
		return len(m.list(api.Jobs)) == 0 && m.listens()
	})
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	if m.end(l) {
		m.t.Fatal("killed, but nobody did")
	}
}

// listens says whether a living agent has the socket.
func (m *mortal) listens() bool {
	c, err := net.Dial("unix", filepath.Join(filepath.Dir(m.state()), "limpet.sock"))
	if err != nil {
		return false
	}
	return c.Close() == nil
}
