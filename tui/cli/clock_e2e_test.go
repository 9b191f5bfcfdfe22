package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestNetServerClock: claims carry the time of the server, whatever the host
// believes. To the agent there is no difference between a server that is ahead
// and a host that is behind. When the clock of the server jumps by more than the
// expiry, the claim as it stands counts as dead for everybody, so the lease is
// given up and the job taken up again, each time as soon as the first time.
func TestNetServerClock(t *testing.T) {
	t.Parallel()
	f := newField(t, testenv.Options{}, 1, fieldLease()...)
	a := f.agents[0]
	g := newGate(t, 1)
	f.repository("slow", g.URL)
	const decade = 10 * 365 * 24 * time.Hour
	f.api.ShiftClock(t, decade)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.owner("job") != "" })
	owner := f.owner("job")
	began := f.api.Mark(t)
	shifts := []time.Duration{time.Hour, -time.Hour, -decade, time.Until(time.Unix(100, 0)), decade, 0, 3 * time.Second, 0}
	for _, ahead := range shifts {
		f.api.ShiftClock(t, ahead)
		mark := f.api.Mark(t)
		// The first may have been on its way with what the server said before.
		within(t, fieldExpiry, "the lease is renewed twice", func() bool { return len(f.renewals(a, mark)) >= 2 })
		for _, r := range f.renewals(a, mark)[1:] {
			want := time.UnixMilli(r.At).Add(ahead)
			if off := time.UnixMilli(claimOf(r.Body)).Sub(want); off.Abs() > fieldExpiry/6 {
				t.Errorf("the clock of the server is ahead by %s: a claim is off by %s", ahead, off)
			}
		}
		if now := f.owner("job"); now != owner {
			t.Fatalf("ahead by %s: the job is in the hands of %q", ahead, now)
		}
	}
	// Who goes by the time that has passed takes a claim for dead when it has not
	// changed for the expiry.
	var longest time.Duration
	all := f.renewals(a, began)
	for i, r := range all[1:] {
		longest = max(longest, time.UnixMilli(r.At).Sub(time.UnixMilli(all[i].At)))
	}
	if longest >= fieldExpiry {
		t.Errorf("the claim was not renewed for %s", longest)
	}
	g.open()
	within(t, time.Minute, "the job has ended", func() bool { return f.waiting() == 0 })
	auditOf(t, f.api.Requests(t, f.began), fieldExpiry).judge(t, uid)
	t.Logf("fault: the clock of the server jumped %d times by up to 66 years: %d leases given up, at most %.1f s between two renewals, every claim within %s of its time",
		len(shifts), len(a.lines("lease lost")), longest.Seconds(), fieldExpiry/6)
}

// renewals returns the writes of an agent that put a new claim into the job
// "job" and were taken.
func (f *field) renewals(a *agent, since testenv.Mark) (out []testenv.Request) {
	f.t.Helper()
	last := int64(0)
	for _, r := range f.requestsOf(a, since) {
		if claim := claimOf(r.Body); r.Method == http.MethodPut && r.Code == http.StatusOK && strings.HasSuffix(r.Path, "/jobs/job") && claim != last {
			out = append(out, r)
			last = claim
		}
	}
	return out
}

// TestNetUnknownClock: a server whose answers have no date gets no claim, since
// nobody could tell when that ends. As soon as its time is known the work begins.
func TestNetUnknownClock(t *testing.T) {
	t.Parallel()
	f := newField(t, testenv.Options{}, 1, append(fieldLease(), "--job-interval", "1s")...)
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
