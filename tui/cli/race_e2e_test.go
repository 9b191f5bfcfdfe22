package cli_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
)

var races = flag.Int("races", 3, "how many runs TestRace has with -fault")

// TestRace: agents on different hosts find a full queue at the same moment, while
// somebody edits its jobs all the time. Every job is done once: one HistoricJob, one
// DELETE, one record in one history, and no write by an agent that did not hold
// the job. In every second run one agent is killed halfway and does not come
// back before the end: others take over what it held.
func TestRace(t *testing.T) {
	rng := rand.New(rand.NewPCG(seeded(t), 8))
	jobs := times(120, 1000)
	for run := range times(1, *races) {
		t.Run(fmt.Sprint(run+1), func(t *testing.T) { race(t, rng, jobs, 20, run%2 == 1) })
	}
}

func race(t *testing.T, rng *rand.Rand, jobs, repositories int, kill bool) {
	f := newField(t, testenv.Options{}, 4, fieldLease()...)
	for i := range repositories {
		f.repository(fmt.Sprintf("repo-%02d", i), "")
	}
	f.start()
	for _, a := range f.agents {
		a.suspend(t)
	}
	uids := map[string]bool{}
	for i := range jobs {
		uids[string(f.job(fmt.Sprintf("job-%04d", i), fmt.Sprintf("repo-%02d", rng.IntN(repositories))))] = true
	}
	noise := f.noise(50 * time.Millisecond)
	began := time.Now()
	for _, a := range f.agents {
		a.resume(t)
	}
	if kill {
		within(t, 5*time.Minute, "half of the jobs are done", func() bool { return f.waiting() <= jobs/2 })
		f.agents[rng.IntN(len(f.agents))].kill()
	}
	within(t, 5*time.Minute, "the queue is empty", func() bool { return f.waiting() == 0 })
	took := time.Since(began)
	edits := noise()

	a := auditOf(t, f.api.Requests(t, f.began), fieldExpiry)
	list := make([]string, 0, len(uids))
	for uid := range uids {
		list = append(list, uid)
	}
	historic := map[string]int{}
	for _, uid := range f.historicJobs() {
		historic[uid]++
		if kill { // the answer to who made it may have come to nobody
			a.jobs[uid].perhapsArchived++
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
	t.Logf("fault: race: %d jobs, 4 agents, %d edits between, killed %v, %.1f s: %d claims, %d lost claims (%.3f conflicts per claim), %d conflicts in all, %.2f reads per job, shares %s",
		jobs, edits, kill, took.Seconds(), a.claims, a.lostClaims, float64(a.lostClaims)/float64(a.claims), a.conflicts, float64(a.reads)/float64(jobs), strings.Join(share, " "))
}
