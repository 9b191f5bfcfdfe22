package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/apitest"
)

// TestNetServerClock: claims carry the time of the server, whatever the host
// believes. To the agent there is no difference between a server that is ahead
// and a host that is behind.
func TestNetServerClock(t *testing.T) {
	t.Parallel()
	f := newField(t, apitest.Options{}, 1, fieldLease()...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.repository("slow", g.URL)
	const decade = 10 * 365 * 24 * time.Hour
	f.api.ShiftClock(t, decade)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.owner("job") != "" })
	owner := f.owner("job")
	shifts := []time.Duration{decade, time.Hour, -time.Hour, -decade, time.Until(time.Unix(100, 0)), 3 * time.Second, 0}
	for _, ahead := range shifts {
		f.api.ShiftClock(t, ahead)
		mark := f.api.Mark(t)
		renewals := func() (out []apitest.Request) {
			for _, r := range f.requestsOf(a, mark) {
				if r.Method == http.MethodPut && r.Code == http.StatusOK && strings.HasSuffix(r.Path, "/jobs/job") {
					out = append(out, r)
				}
			}
			return out
		}
		// The first may have been on its way with what the server said before.
		within(t, 2*fieldExpiry, "the lease is renewed twice", func() bool { return len(renewals()) >= 2 })
		for _, r := range renewals()[1:] {
			want := time.UnixMilli(r.At).Add(ahead)
			if off := time.UnixMilli(claimOf(r.Body)).Sub(want); off.Abs() > fieldExpiry/6 {
				t.Errorf("the clock of the server is ahead by %s: a claim is off by %s", ahead, off)
			}
		}
		if now := f.owner("job"); now != owner {
			t.Fatalf("ahead by %s: the job is in the hands of %q", ahead, now)
		}
	}
	g.open()
	within(t, time.Minute, "the job has ended", func() bool { return f.waiting() == 0 })
	auditOf(t, f.api.Requests(t, f.began), fieldExpiry).judge(t, uid)
	t.Logf("fault: the clock of the server jumped %d times by up to 56 years: no lease lost, every claim within %s of its time", len(shifts), fieldExpiry/6)
}

// TestNetUnknownClock: a server whose answers have no date gets no claim, since
// nobody could tell when that ends. As soon as its time is known the work begins.
func TestNetUnknownClock(t *testing.T) {
	t.Parallel()
	f := newField(t, apitest.Options{}, 1, append(fieldLease(), "--job-interval", "1s")...)
	a := f.agents[0]
	f.repository("quick", "")
	f.api.HideClock(t)
	f.start()
	uid := string(f.job("job", "quick"))
	within(t, time.Minute, "it says that it does not claim", func() bool { return len(a.lines("no job is claimed")) > 0 })
	for _, r := range f.requestsOf(a, f.began) {
		if r.Method != http.MethodGet {
			t.Errorf("it wrote %s %s", r.Method, r.Path)
		}
	}
	f.api.ShiftClock(t, 0)
	f.done(time.Minute, uid)
}
