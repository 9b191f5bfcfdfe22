package cli_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestNetExchangeAway: the token of an agent expires while the exchange that gives
// new ones is down. It is asked at most once in 30 s, after five tries that follow
// each other sooner; the job that is held is finished when the exchange is back, by
// its claim or by a new one.
func TestNetExchangeAway(t *testing.T) {
	t.Parallel()
	away := time.Duration(times(15, 180)) * time.Second
	f := newField(t, testenv.Options{SignTTL: 20 * time.Second}, 1, fieldLease()...)
	a := f.agents[0]
	d := newDoor(t, f.api.SignURL)
	a.args[slices.Index(a.args, "--token-file")+1] = a.file(t, "subject", testenv.SignToken+"\n")
	a.args = append(a.args, "--token-exchange-url", d.URL)
	g := newGate(t, 3)
	f.repository("slow", g.URL)
	f.repository("quick", "")
	f.start()
	uids := []string{string(f.job("held", "slow"))}
	until(t, "the job is claimed", func() bool { return f.owner("held") != "" })

	d.close()
	within(t, time.Minute, "the lease is given up", func() bool { return len(a.lines("lease lost")) > 0 })
	d.knocks()
	mark, began := f.api.Mark(t), time.Now()
	uids = append(uids, string(f.job("meanwhile", "quick")))
	g.open()
	<-time.After(away)
	took, knocks := time.Since(began), d.knocks()
	refused := 0
	for _, r := range f.api.Requests(t, mark) {
		if r.Code == http.StatusUnauthorized {
			refused++
		}
	}
	d.reopen()
	began = time.Now()
	within(t, time.Minute, "all jobs have ended", func() bool { return f.waiting() == 0 })
	if most := int(took/(30*time.Second)) + 1 + 5; knocks > most {
		t.Errorf("the exchange was asked %d times in %s, at most %d are allowed", knocks, took, most)
	}
	if refused > knocks {
		t.Errorf("%d requests with an expired token", refused)
	}
	done := map[string]int{}
	for _, uid := range f.historicJobs() {
		done[uid]++
	}
	for _, uid := range uids {
		if done[uid] != 1 {
			t.Errorf("job %s has %d HistoricJobs", uid, done[uid])
		}
	}
	t.Logf("fault: token exchange down for %.0f s with an expired token: asked %d times, %d requests were refused, all jobs done %.1f s after it came back",
		took.Seconds(), knocks, refused, time.Since(began).Seconds())
}
