package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// What goes wrong between an agent and its API. Every agent is a process of the
// built binary.

// through makes an agent reach the API by a door.
func (f *field) through(a *agent) *door {
	f.t.Helper()
	d := newDoor(f.t, f.api.URL)
	a.args[slices.Index(a.args, "--provisioning-server-url")+1] = d.URL
	return d
}

// lines returns what an agent has logged with that message or event.
func (a *agent) lines(part string) []string {
	var out []string
	for line := range strings.Lines(a.log.String()) {
		if strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	return out
}

// done waits until the queue is empty and every job has ended exactly once.
func (f *field) done(patience time.Duration, uids ...string) *audit {
	f.t.Helper()
	within(f.t, patience, "all jobs have ended", func() bool { return f.waiting() == 0 })
	a := auditOf(f.t, f.api.Requests(f.t, f.began), f.expiry)
	a.judge(f.t, uids...)
	return a
}

// TestNetServerAway: the API goes down in the middle of a backlog. The agent is
// quiet meanwhile, and the work that it holds is safe; when the API is back, all
// of it and what came meanwhile is done soon.
func TestNetServerAway(t *testing.T) {
	t.Parallel()
	backlog := times(60, 200)
	away := time.Duration(times(12, 300)) * time.Second
	f := newField(t, testenv.Options{}, 1, fieldLease()...)
	a := f.agents[0]
	d := f.through(a)
	g := newGate(t, 3)
	f.repository("slow", g.URL)
	f.repository("quick", "")
	f.start()
	uids := []string{string(f.job("slow-job", "slow"))}
	until(t, "the job is claimed", func() bool { return f.owner("slow-job") != "" })
	a.suspend(t)
	for i := range backlog {
		uids = append(uids, string(f.job(fmt.Sprintf("backlog-%03d", i), "quick")))
	}
	a.resume(t)
	until(t, "some are done", func() bool { return f.waiting() < backlog-5 })
	d.close()
	within(t, 3*fieldExpiry, "the lease is given up", func() bool { return len(a.lines("lease lost")) > 0 })
	d.knocks()
	cpu, began := a.cpu(t), time.Now()
	for i := range 20 {
		uids = append(uids, string(f.job(fmt.Sprintf("meanwhile-%02d", i), "quick")))
	}
	g.open()
	left := f.waiting()
	<-time.After(away)
	took := time.Since(began)
	used, knocks := a.cpu(t)-cpu, d.knocks()
	d.reopen()
	began = time.Now()
	f.done(time.Duration(times(3, 1))*time.Minute, uids...) // 'make test' may not be alone on the machine
	t.Logf("fault: API away for %.0f s with %d jobs waiting: %d connections tried, %.2f %% CPU, all caught up after %.1f s", took.Seconds(), left, knocks,
		100*used.Seconds()/took.Seconds(), time.Since(began).Seconds())
	if most := 4*took.Minutes() + 3; float64(knocks) > most { // the first few are on their way already
		t.Errorf("%d connections tried in %s, at most %.0f are allowed", knocks, took, most)
	}
	if used > took/100 {
		t.Errorf("%s of CPU in %s", used, took)
	}
}

// TestNetRenewalsStall: the calls that renew hang while all others are answered.
// The work stops at two thirds of the expiry after the last renewal, in time
// before others may take the job.
func TestNetRenewalsStall(t *testing.T) {
	t.Parallel()
	const each = 10
	f := newField(t, testenv.Options{}, 1, append(fieldLease(), "--drivers", fmt.Sprint(each))...)
	a := f.agents[0]
	g := newGate(t, 3)
	for i := range each {
		f.repository(fmt.Sprintf("slow-%d", i), g.URL)
	}
	f.start()
	var uids []string
	for i := range each {
		uids = append(uids, string(f.job(fmt.Sprintf("job-%d", i), fmt.Sprintf("slow-%d", i))))
	}
	lost := 0
	for range times(1, 10) {
		before := len(a.lines("lease lost"))
		within(t, time.Minute, "all jobs are held", func() bool {
			return f.held() == each && len(a.lines("own claim found again")) >= lost
		})
		f.api.Break(t, testenv.Fault{User: a.name, Agent: "(lease)", Hang: true})
		within(t, 2*fieldExpiry, "all leases are given up", func() bool { return len(a.lines("lease lost"))-before >= each })
		f.api.Break(t)
		lost += len(a.lines("lease lost")) - before
	}
	g.open()
	f.done(time.Minute, uids...)
	waits := f.outlived(a)
	if worst := slices.Max(waits); worst >= fieldExpiry {
		t.Errorf("the work went on for %s after the last renewal", worst)
	}
	// On a busy machine the answer to one of the renewals may have come too late
	// for the agent, or the agent may be late.
	if usual := median(waits); (usual - fieldGivesUp).Abs() > time.Second {
		t.Errorf("leases were given up %s after the last renewal, want %s", usual, fieldGivesUp)
	}
	t.Logf("fault: renewals alone stalled: %d leases given up %.1f to %.1f s after the last renewal, expiry %s", lost,
		slices.Min(waits).Seconds(), slices.Max(waits).Seconds(), fieldExpiry)
}

// outlived returns for each lease that an agent has lost how long after the last
// renewal that the API took the work ended.
func (f *field) outlived(a *agent) []time.Duration {
	f.t.Helper()
	var waits []time.Duration
	all := f.requestsOf(a, f.began)
	for _, line := range a.lines("lease lost") {
		var l struct {
			Time time.Time
			UID  string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			f.t.Fatal(err)
		}
		// Other writes carry the claim of the last renewal too.
		newest, sent := int64(0), int64(0)
		for _, r := range all {
			if r.UID != l.UID || r.Method != http.MethodPut || r.Code != http.StatusOK || r.Began > l.Time.UnixMilli() {
				continue
			}
			if claim := claimOf(r.Body); claim > newest {
				newest, sent = claim, r.Began
			}
		}
		waits = append(waits, l.Time.Sub(time.UnixMilli(sent)))
	}
	return waits
}

// claimOf is the claim in the body of a write, 0 without one.
func claimOf(body []byte) int64 {
	var u struct {
		Metadata struct{ Labels map[string]string }
	}
	_ = json.Unmarshal(body, &u) // no labels in what is no object
	n, _ := strconv.ParseInt(u.Metadata.Labels[api.LabelClaim], 10, 64)
	return n
}

// held is how many jobs of the queue are claimed.
func (f *field) held() int {
	f.t.Helper()
	n := 0
	for _, u := range f.queue() {
		if u.GetLabels()[api.LabelClaimOwner] != "" {
			n++
		}
	}
	return n
}

// TestNetConflictStorm: somebody else writes the job every 50 ms. Every renewal
// succeeds, and so does what the worker reports.
func TestNetConflictStorm(t *testing.T) {
	t.Parallel()
	const renew = 2 * fieldRenew // a call may take as long, on a busy machine too
	storm := time.Duration(times(15, 120)) * time.Second
	f := newField(t, testenv.Options{}, 1, "--claim-expiry", (2 * fieldExpiry).String(), "--lease-renewal-interval", renew.String())
	f.expiry = 2 * fieldExpiry
	a := f.agents[0]
	g := newGate(t, 30)
	f.repository("slow", g.URL)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.owner("job") != "" })
	owner := f.owner("job")
	noise := f.noise(50 * time.Millisecond)
	began := time.Now()
	for end := time.After(storm); ; {
		select {
		case <-time.After(500 * time.Millisecond):
			if now := f.owner("job"); now != owner {
				t.Fatalf("the job is in the hands of %q, and was in those of %q", now, owner)
			}
			continue
		case <-end:
		}
		break
	}
	g.open()
	audit := f.done(time.Minute, uid)
	edits := noise()
	if failed := a.lines("lease not renewed"); len(failed) > 0 {
		t.Errorf("%d renewals failed: %s", len(failed), failed[0])
	}
	renewals := 0
	for _, r := range f.requestsOf(a, f.began) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.Agent, "(lease)") && r.Code == http.StatusOK {
			renewals++
		}
	}
	if least := int(storm/renew) * 3 / 4; renewals < least {
		t.Errorf("%d renewals in %s, want %d at least", renewals, storm, least)
	}
	var historic struct {
		Items []struct{ Status api.JobStatus }
	}
	r := a.must(t, 0, "get", "historicjobs", "-n", "default", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &historic); err != nil || len(historic.Items) != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	created := int64(0)
	for _, s := range historic.Items[0].Status.Summary {
		created += s.Create
	}
	if want := int64(len(g.Repo.Dashboards()) + len(g.Repo.Folders()) + 1); created != want {
		t.Errorf("the HistoricJob tells of %d created resources, want %d", created, want)
	}
	t.Logf("fault: conflict storm of %.0f s: %d edits, %d conflicts, %d renewals, 0 failed", time.Since(began).Seconds(), edits, audit.conflicts, renewals)
}
