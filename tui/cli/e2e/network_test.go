package e2e

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
	"limpet/sync/testenv/suite"
)

// What goes wrong between an agent and its API. Every agent is a process of the built binary.

// useRelay puts a relay between an agent and the API.
func (f *fleet) useRelay(a *agent) *relay {
	f.t.Helper()
	d := newRelay(f.t, f.api.URL)
	a.args[slices.Index(a.args, "--provisioning-server-url")+1] = d.URL
	return d
}

// lines returns the log lines of an agent with a text.
func (a *agent) lines(part string) []string {
	var out []string
	for line := range strings.Lines(a.log.String()) {
		if strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	return out
}

// verifyDone waits until the queue is empty and checks that every job has ended once.
func (f *fleet) verifyDone(patience time.Duration, uids ...string) *audit {
	f.t.Helper()
	within(f.t, patience, "all jobs have ended", func() bool { return f.pendingJobs() == 0 })
	a := auditOf(f.t, f.api.Requests(f.t, f.began), f.expiry)
	a.judge(f.t, uids...)
	return a
}

// TestNetServerAway: the API goes down in the middle of a backlog. The agent is quiet meanwhile,
// and the work that it holds is safe; when the API is back, all of it and what came meanwhile is
// done soon.
func TestNetServerAway(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	backlog := suite.Count(60, 200)
	away := time.Duration(suite.Count(12, 300)) * time.Second
	f := newFleet(t, testenv.Options{}, 1, fleetLease()...)
	a := f.agents[0]
	d := f.useRelay(a)
	g := newGate(t, 3)
	f.repository("slow", g.URL, nil)
	f.repository("quick", "", nil)
	f.start()
	uids := []string{string(f.job("slow-job", "slow"))}
	until(t, "the job is claimed", func() bool { return f.claimOwner("slow-job") != "" })
	a.suspend(t)
	for i := range backlog {
		uids = append(uids, string(f.job(fmt.Sprintf("backlog-%03d", i), "quick")))
	}
	a.resume(t)
	until(t, "some are done", func() bool { return f.pendingJobs() < backlog-5 })
	d.close()
	within(t, 3*fleetExpiry, "the lease is given up", func() bool { return len(a.lines(stepped("lost"))) > 0 })
	d.attempts()
	cpu, began := readUsage(t, a.cmd.Process.Pid).cpu, time.Now()
	for i := range 20 {
		uids = append(uids, string(f.job(fmt.Sprintf("meanwhile-%02d", i), "quick")))
	}
	g.open()
	<-time.After(away)
	took := time.Since(began)
	used, knocks := readUsage(t, a.cmd.Process.Pid).cpu-cpu, d.attempts()
	d.reopen()
	f.verifyDone(3*time.Minute, uids...)                      // the tests may not be alone on the machine
	if most := 4*took.Minutes() + 3; float64(knocks) > most { // the first few are on their way already
		t.Errorf("%d connections tried in %s, at most %.0f are allowed", knocks, took, most)
	}
	if used > took/100 {
		t.Errorf("%s of CPU in %s", used, took)
	}
}

// TestNetRenewalsStall: the calls that renew hang while all others are answered. The work stops at
// two thirds of the expiry after the last renewal, in time before others may take the job.
func TestNetRenewalsStall(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const each = 10
	f := newFleet(t, testenv.Options{}, 1, append(fleetLease(), "--drivers", fmt.Sprint(each))...)
	a := f.agents[0]
	g := newGate(t, 3)
	for i := range each {
		f.repository(fmt.Sprintf("slow-%d", i), g.URL, nil)
	}
	f.start()
	var uids []string
	for i := range each {
		uids = append(uids, string(f.job(fmt.Sprintf("job-%d", i), fmt.Sprintf("slow-%d", i))))
	}
	lost := 0
	for range suite.Count(1, 10) {
		before := len(a.lines(stepped("lost")))
		within(t, time.Minute, "all jobs are held", func() bool {
			return f.claimedJobs() == each && len(a.lines(stepped("resumed"))) >= lost
		})
		f.api.Break(t, testenv.Fault{User: a.name, Agent: "(lease)", Hang: true})
		within(t, 2*fleetExpiry, "all leases are given up", func() bool { return len(a.lines(stepped("lost")))-before >= each })
		f.api.Break(t)
		lost += len(a.lines(stepped("lost"))) - before
	}
	g.open()
	f.verifyDone(time.Minute, uids...)
	waits := f.lostAfter(a)
	if worst := slices.Max(waits); worst >= fleetExpiry {
		t.Errorf("the work went on for %s after the last renewal", worst)
	}
	// On a busy machine the answer to one of the renewals may have come too late
	// for the agent, or the agent may be late.
	if usual := median(waits); (usual - fleetGivesUp).Abs() > time.Second {
		t.Errorf("leases were given up %s after the last renewal, want %s", usual, fleetGivesUp)
	}
}

// lostAfter returns for each lost lease how long after the last accepted renewal the work ended.
func (f *fleet) lostAfter(a *agent) []time.Duration {
	f.t.Helper()
	var waits []time.Duration
	all := f.requestsOf(a, f.began)
	for _, line := range a.lines(stepped("lost")) {
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

// claimOf returns the claim label in the body of a write, 0 without one.
func claimOf(body []byte) int64 {
	var u struct {
		Metadata struct{ Labels map[string]string }
	}
	_ = json.Unmarshal(body, &u) // no labels in what is no object
	n, _ := strconv.ParseInt(u.Metadata.Labels[api.LabelClaim], 10, 64)
	return n
}

// claimedJobs returns how many jobs of the queue are claimed.
func (f *fleet) claimedJobs() int {
	f.t.Helper()
	n := 0
	for _, u := range f.listJobs() {
		if u.GetLabels()[api.LabelClaimOwner] != "" {
			n++
		}
	}
	return n
}

// TestNetConflictStorm: another client writes the job every 50 ms. Every renewal succeeds, and
// so does the progress of the worker.
func TestNetConflictStorm(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const renew = 2 * fleetRenewal // a call may take as long, on a busy machine too
	storm := time.Duration(suite.Count(15, 120)) * time.Second
	f := newFleet(t, testenv.Options{}, 1, "--claim-expiry", (2 * fleetExpiry).String(), "--lease-renewal-interval", renew.String())
	f.expiry = 2 * fleetExpiry
	a := f.agents[0]
	g := newGate(t, 30)
	f.repository("slow", g.URL, nil)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.claimOwner("job") != "" })
	owner := f.claimOwner("job")
	noise := f.editJobs(50 * time.Millisecond)
	for end := time.After(storm); ; {
		select {
		case <-time.After(500 * time.Millisecond):
			if now := f.claimOwner("job"); now != owner {
				t.Fatalf("the job is in the hands of %q, and was in those of %q", now, owner)
			}
			continue
		case <-end:
		}
		break
	}
	g.open()
	f.verifyDone(time.Minute, uid)
	noise()
	if failed := a.lines(stepped("renewal")); len(failed) > 0 {
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
}

// TestNetServerClock: claims carry the time of the server, whatever the host believes. To the agent
// there is no difference between a server that is ahead and a host that is behind. When the clock
// of the server jumps by more than the expiry, the claim as it stands counts as dead for everybody,
// so the lease is given up and the job taken up again, each time as soon as the first time.
func TestNetServerClock(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	f := newFleet(t, testenv.Options{}, 1, fleetLease()...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.repository("slow", g.URL, nil)
	const decade = 10 * 365 * 24 * time.Hour
	f.api.ShiftClock(t, decade)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.claimOwner("job") != "" })
	owner := f.claimOwner("job")
	began := f.api.Mark(t)
	shifts := []time.Duration{time.Hour, -time.Hour, -decade, time.Until(time.Unix(100, 0)), decade, 0, 3 * time.Second, 0}
	for _, ahead := range shifts {
		f.api.ShiftClock(t, ahead)
		mark := f.api.Mark(t)
		// The first may have been on its way with what the server said before.
		within(t, fleetExpiry, "the lease is renewed twice", func() bool { return len(f.renewals(a, mark)) >= 2 })
		for _, r := range f.renewals(a, mark)[1:] {
			want := time.UnixMilli(r.At).Add(ahead)
			if off := time.UnixMilli(claimOf(r.Body)).Sub(want); off.Abs() > fleetExpiry/6 {
				t.Errorf("the clock of the server is ahead by %s: a claim is off by %s", ahead, off)
			}
		}
		if now := f.claimOwner("job"); now != owner {
			t.Fatalf("ahead by %s: the job is in the hands of %q", ahead, now)
		}
	}
	// Who goes by the time that has passed takes a claim for dead when it has not changed for the
	// expiry.
	var longest time.Duration
	all := f.renewals(a, began)
	for i, r := range all[1:] {
		longest = max(longest, time.UnixMilli(r.At).Sub(time.UnixMilli(all[i].At)))
	}
	if longest >= fleetExpiry {
		t.Errorf("the claim was not renewed for %s", longest)
	}
	g.open()
	within(t, time.Minute, "the job has ended", func() bool { return f.pendingJobs() == 0 })
	auditOf(t, f.api.Requests(t, f.began), fleetExpiry).judge(t, uid)
}

// renewals returns the accepted writes of an agent that put a new claim into the job "job".
func (f *fleet) renewals(a *agent, since testenv.Mark) (out []testenv.Request) {
	f.t.Helper()
	last := int64(0)
	for _, r := range f.requestsOf(a, since) {
		if claim := claimOf(r.Body); r.Method == http.MethodPut && r.Code == http.StatusOK && strings.HasSuffix(r.Path, "/jobs/job") &&
			claim != last {
			out = append(out, r)
			last = claim
		}
	}
	return out
}

// TestNetExchangeAway: the token of an agent expires while the exchange that gives new ones is
// down. It is asked at most once in 30 s, after five tries that follow each other sooner; the job
// that is held is finished when the exchange is back, by its claim or by a new one.
func TestNetExchangeAway(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	away := time.Duration(suite.Count(15, 180)) * time.Second
	f := newFleet(t, testenv.Options{SignTTL: 20 * time.Second}, 1, fleetLease()...)
	a := f.agents[0]
	d := newRelay(t, f.api.SignURL)
	a.args[slices.Index(a.args, "--token-file")+1] = a.file(t, "subject", testenv.SignToken+"\n")
	a.args = append(a.args, "--token-exchange-url", d.URL)
	g := newGate(t, 3)
	f.repository("slow", g.URL, nil)
	f.repository("quick", "", nil)
	f.start()
	uids := []string{string(f.job("held", "slow"))}
	until(t, "the job is claimed", func() bool { return f.claimOwner("held") != "" })

	d.close()
	within(t, time.Minute, "the lease is given up", func() bool { return len(a.lines(stepped("lost"))) > 0 })
	d.attempts()
	mark, began := f.api.Mark(t), time.Now()
	uids = append(uids, string(f.job("meanwhile", "quick")))
	g.open()
	<-time.After(away)
	took, knocks := time.Since(began), d.attempts()
	refused := 0
	for _, r := range f.api.Requests(t, mark) {
		if r.Code == http.StatusUnauthorized {
			refused++
		}
	}
	d.reopen()
	within(t, time.Minute, "all jobs have ended", func() bool { return f.pendingJobs() == 0 })
	if most := int(took/(30*time.Second)) + 1 + 5; knocks > most {
		t.Errorf("the exchange was asked %d times in %s, at most %d are allowed", knocks, took, most)
	}
	if refused > knocks {
		t.Errorf("%d requests with an expired token", refused)
	}
	done := f.user.archived()
	for _, uid := range uids {
		if done[uid] != 1 {
			t.Errorf("job %s has %d HistoricJobs", uid, done[uid])
		}
	}
}

// TestNetUnknownClock: without a Date header the agent claims nothing, since the claim could
// not be dated. It starts when the server time is known.
func TestNetUnknownClock(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	f := newFleet(t, testenv.Options{}, 1, append(fleetLease(), "--job-interval", "1s")...)
	a := f.agents[0]
	f.repository("quick", "", nil)
	f.api.HideClock(t)
	f.start()
	uid := string(f.job("job", "quick"))
	within(t, time.Minute, "it has looked at the queue several times", func() bool { return len(f.requestsOf(a, f.began)) >= 5 })
	for _, r := range f.requestsOf(a, f.began) {
		if r.Method != http.MethodGet {
			t.Errorf("it wrote %s %s", r.Method, r.Path)
		}
	}
	f.api.ShiftClock(t, 0)
	f.verifyDone(time.Minute, uid)
}
