package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
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

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// failpointBinary is limpet with failpoints, built once for all tests.
var failpointBinary = sync.OnceValues(func() (string, error) {
	path := binary.path + "-failpoints"
	return path, suite.Program(path, "-tags", "failpoints")
})

// servers are those that outlive the agents of a crash test.
type servers struct {
	api  *testenv.Server
	host *testenv.GitServer
}

func newServers(t *testing.T) *servers {
	t.Helper()
	return &servers{api: testenv.Start(t, testenv.Options{}),
		host: testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})}
}

// crashAgent is an agent that is killed again and again, in a namespace of its own,
// with Repositories that are directories of one Git repository.
type crashAgent struct {
	*home
	*servers
	user              *apiClient
	t                 *testing.T
	rng               *rand.Rand
	namespace         string
	repo              *testenv.Repository
	sizes             map[string]int // dashboards of each Repository
	revision          map[string]int
	jobs              map[string]bool // UIDs of those that people made; true = nobody held them then
	jobsCreated       int
	log               log           // of all its lives
	logStart          int           // length of the log when the last life began
	startedAt         time.Time     // when the last life began
	slowest           time.Duration // from the start of a process to when it took up a claim of the last
	attempts          int           // --max-attempts
	historyIncomplete bool          // records may be missing from the local history
	jobsMayFail       bool          // jobs may end as error
}

// The lease of these tests, and what a claim may take to be taken up again.
const (
	shortExpiry  = 6 * time.Second
	shortRenewal = 2 * time.Second
	resumeWithin = shortExpiry + 10*time.Second
)

// small and large are numbers of dashboards: few for speed, and more than there are between two
// progress marks.
const (
	small = 6
	large = 210
)

func newCrashAgent(t *testing.T, w *servers, namespace string, seed uint64, sizes map[string]int) *crashAgent {
	t.Helper()
	m := &crashAgent{home: newHome(t), servers: w, user: connectUser(t, w.api, "user", namespace), t: t, rng: rand.New(rand.NewPCG(seed, 3)),
		namespace: namespace, repo: testenv.EmptyRepo(t),
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
		spec := gitRepository(name, url, testenv.Branch, time.Hour)
		spec["git"].(map[string]any)["path"] = name
		m.user.create(api.Repositories, name, nil, spec)
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

func (m *crashAgent) names() []string { return slices.Sorted(maps.Keys(m.sizes)) }

// edit commits a change of every dashboard of a Repository.
func (m *crashAgent) edit(name string) {
	m.revision[name]++
	var changes []testenv.Change
	for i := range m.sizes[name] {
		changes = append(changes, testenv.Change{Path: fmt.Sprintf("%s/shelf-%d/board-%d.json", name, i%3, i),
			Data: fmt.Appendf(nil, `{"uid":"%s-%d","title":"Board %d","tags":["revision %d"],"panels":[],"schemaVersion":41}`, name, i, i,
				m.revision[name])})
	}
	m.repo.Commit(m.t, fmt.Sprintf("Revision %d of %s", m.revision[name], name), changes...)
}

// ensureJobs commits a change for each of these Repositories that has no job and queues one.
func (m *crashAgent) ensureJobs(names ...string) {
	m.t.Helper()
	busy := map[string]bool{}
	for _, job := range m.user.list(api.Jobs) {
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
func (m *crashAgent) pull(name string, labels map[string]string) {
	m.t.Helper()
	m.jobsCreated++
	job := m.user.create(api.Jobs, fmt.Sprintf("%s-%d", name, m.jobsCreated), labels, pullJob(name, m.rng.IntN(2) == 0))
	m.jobs[string(job.GetUID())] = labels[api.LabelClaim] == ""
}

// process is one run of a crashAgent.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start runs the agent with LIMPET_FAILPOINTS.
func (m *crashAgent) start(failpoints string, flags ...string) *process {
	m.t.Helper()
	path, err := failpointBinary()
	if err != nil {
		m.t.Fatal(err)
	}
	return m.startAs(path, failpoints, flags...)
}

func (m *crashAgent) startAs(path, failpoints string, flags ...string) *process {
	m.t.Helper()
	l := &process{done: make(chan struct{})}
	l.cmd = tied(exec.Command(path, append(m.flags(), flags...)...))
	l.cmd.Env, l.cmd.Dir = append(slices.Clone(m.env), "LIMPET_FAILPOINTS="+failpoints), m.dir
	l.cmd.Stdout, l.cmd.Stderr = &m.log, &m.log
	m.logStart, m.startedAt = len(m.log.String()), time.Now()
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

// flags are those of every run.
func (m *crashAgent) flags() []string {
	return append(slices.Clone(m.args), "--daemon", "--log-format", "json", "--log-level", "debug", "--credentials-dir",
		filepath.Join(m.dir, "credentials"),
		"--claim-expiry", shortExpiry.String(), "--lease-renewal-interval", shortRenewal.String(), "--job-interval", "1s", "--drivers", "2",
		"--max-attempts", strconv.Itoa(m.attempts),
		"--history-expiration", "24h")
}

// awaitClaim waits until a process has claimed or resumed a job.
func (m *crashAgent) awaitClaim(l *process) {
	m.t.Helper()
	until(m.t, "a job is claimed", func() bool {
		select {
		case <-l.done:
			return true
		default:
		}
		now := m.log.String()[m.logStart:]
		return strings.Contains(now, stepped("claimed")) || strings.Contains(now, stepped("resumed"))
	})
}

// awaitEnd waits for the end of a process and reports whether it was killed.
func (m *crashAgent) awaitEnd(l *process) (killed bool) {
	m.t.Helper()
	select {
	case <-l.done:
	case <-time.After(callTimeout):
		m.t.Fatalf("still alive, with %d jobs in the queue", len(m.user.list(api.Jobs)))
	}
	m.recordResume()
	status := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() && status.ExitStatus() != 0 {
		m.t.Fatalf("ended with exit code %d", status.ExitStatus())
	}
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// finishJobs runs the agent until the queue is empty, and stops it with SIGTERM.
func (m *crashAgent) finishJobs(flags ...string) {
	m.t.Helper()
	l := m.start("", flags...)
	until(m.t, "all jobs have ended in "+m.namespace, func() bool {
		select {
		case <-l.done:
			m.t.Fatal("the agent ended by itself")
		default:
		}
		// One that is stopped before it listens leaves the socket of a killed one.
		return len(m.user.list(api.Jobs)) == 0 && m.hasSocket()
	})
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	if m.awaitEnd(l) {
		m.t.Fatal("killed, but nobody did")
	}
}

// hasSocket reports whether a running agent listens on the socket.
func (m *crashAgent) hasSocket() bool {
	c, err := net.Dial("unix", filepath.Join(filepath.Dir(m.state()), "limpet.sock"))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// What is asked of an agent that was killed again and again.

// verify checks after the last run that nothing is lost and nothing was done twice.
func (m *crashAgent) verify() {
	m.t.Helper()
	m.verifyOnce()
	m.verifyContent()
	m.verifyResumed()
	m.verifyClaims()
	m.verifyFiles()
	m.sound(m.t)
}

// verifyOnce: each job has one record and one HistoricJob, and the queue is empty.
func (m *crashAgent) verifyOnce() {
	m.t.Helper()
	historic, records := m.user.archived(), map[string]int{}
	for _, r := range m.history(m.t) {
		records[r.UID]++
		if r.State != "success" && !m.jobsMayFail {
			m.t.Errorf("job %s ended as %s: %s", r.Name, r.State, r.Message)
		}
	}
	if !maps.Equal(historic, records) && !m.historyIncomplete {
		m.t.Errorf("%d HistoricJobs, %d records, which differ", len(historic), len(records))
	}
	for uid, n := range historic {
		if n != 1 {
			m.t.Errorf("job %s has %d HistoricJobs", uid, n)
		}
	}
	for uid := range m.jobs {
		if n := historic[uid]; n != 1 || records[uid] > 1 || records[uid] == 0 && !m.historyIncomplete {
			m.t.Errorf("job %s has %d HistoricJobs and %d records", uid, n, records[uid])
		}
	}
}

var dashboards = schema.GroupVersionResource{Group: "dashboard.grafana.app", Version: "v1", Resource: "dashboards"}

// verifyContent: the API has the files of the branch.
func (m *crashAgent) verifyContent() {
	m.t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for line := range strings.Lines(m.repo.Git(m.t, "ls-tree", "-r", "--format=%(objectname) %(path)", testenv.Branch)) {
		hash, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[file] = hash
	}
	for _, o := range m.user.list(dashboards) {
		a := o.GetAnnotations()
		got[a["grafana.app/managerId"]+"/"+a["grafana.app/sourcePath"]] = a["grafana.app/sourceChecksum"]
	}
	if !maps.Equal(got, want) {
		m.t.Errorf("%d dashboards that differ from the %d of the branch", len(got), len(want))
	}
}

// redundantWrites counts the writes of dashboards, and those of a version that was there.
func (m *crashAgent) redundantWrites() (writes, again int) {
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

// verifyResumed checks how long a process has left claims of the last one.
func (m *crashAgent) verifyResumed() {
	if m.slowest > resumeWithin {
		m.t.Errorf("an own claim was taken up again %s after the start", m.slowest)
	}
}

// recordResume notes how long after its start a process took up the claims that it found. Between
// two processes a binary may be built, and one that loses a lease resumes its own claim.
func (m *crashAgent) recordResume() {
	m.t.Helper()
	held := map[string]bool{}
	for line := range strings.Lines(m.log.String()[m.logStart:]) {
		resumed := strings.Contains(line, stepped("resumed"))
		if !resumed && !strings.Contains(line, stepped("claimed")) {
			continue
		}
		var entry struct {
			Time time.Time
			UID  string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		if resumed && !held[entry.UID] {
			m.slowest = max(m.slowest, entry.Time.Sub(m.startedAt))
		}
		held[entry.UID] = true
	}
}

// verifyClaims: each process knows the claims of the last one. One that forgot them would
// requeue them after their expiry like those of another agent.
func (m *crashAgent) verifyClaims() {
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

// verifyFiles: no temporary file is left, and no secret is in any.
func (m *crashAgent) verifyFiles() {
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
			if name := d.Name(); file != m.state() && file != m.state()+".key" && file != m.state()+".reserve" &&
				!strings.Contains(file, "/mirrors/") && !strings.HasPrefix(file, m.state()+".schema-") ||
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
