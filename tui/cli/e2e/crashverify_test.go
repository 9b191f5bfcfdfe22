package e2e

import (
	"encoding/json"
	"io/fs"
	"limpet/sync/testenv"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is asked of an agent that was killed again and again.

// verify checks after the last run that nothing is lost and nothing was done twice.
func (m *crashAgent) verify() {
	m.t.Helper()
	m.verifyOnce()
	m.verifyContent()
	m.verifyResumed()
	m.verifyClaims()
	m.verifyFiles()
	if check := m.must(m.t, 0, "store", "check"); !strings.Contains(check.out, " 0 problems") {
		m.t.Errorf("store check: %s", check.out)
	}
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

// verifyResumed checks how long an own claim waited after a kill.
func (m *crashAgent) verifyResumed() {
	if m.slowest > resumeWithin {
		m.t.Errorf("an own claim was taken up again %s after the kill", m.slowest)
	}
}

// recordResume notes how long after the end of one process the next resumed a claim.
func (m *crashAgent) recordResume() {
	m.t.Helper()
	if m.endedAt.IsZero() {
		return
	}
	for line := range strings.Lines(m.log.String()[m.logStart:]) {
		if !strings.Contains(line, stepped("resumed")) {
			continue
		}
		var entry struct{ Time time.Time }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		m.slowest = max(m.slowest, entry.Time.Sub(m.endedAt))
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
