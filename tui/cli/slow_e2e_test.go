package cli_test

import (
	"fmt"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestNetSlowServer: every answer comes late. As long as a renewal fits into the
// margin of the lease, no lease is lost; beyond that the work is given up in time
// and taken up again when the way is good. In 'make test' all times are a tenth.
func TestNetSlowServer(t *testing.T) {
	t.Parallel()
	part := time.Duration(times(10, 1)) // of the times below
	f := newField(t, testenv.Options{}, 1, "--claim-expiry", (60 * time.Second / part).String(), "--lease-renewal-interval", (10 * time.Second / part).String())
	a := f.agents[0]
	g := newGate(t, 3)
	f.repository("slow", g.URL)
	f.start()
	uid := string(f.job("job", "slow"))
	until(t, "the job is claimed", func() bool { return f.owner("job") != "" })
	owner := f.owner("job")
	figures := ""
	for _, c := range []struct {
		trip time.Duration // there and back
		keep bool
	}{{5 * time.Second, true}, {10 * time.Second, false}, {30 * time.Second, false}} {
		before := len(a.lines("lease lost"))
		a.way.Set(t, testenv.Latency(c.trip/part/2, 0))
		<-time.After(70 * time.Second / part)
		lost := len(a.lines("lease lost")) - before
		figures += fmt.Sprintf(" %d lost at %s,", lost, c.trip/part)
		if c.keep && (lost > 0 || f.owner("job") != owner) {
			t.Errorf("%d leases lost with answers after %s", lost, c.trip/part)
		}
		if !c.keep {
			a.way.Set(t)
			within(t, time.Minute, "the job is held", func() bool { return f.owner("job") != "" })
		}
	}
	g.open()
	within(t, 2*time.Minute, "the job has ended", func() bool { return f.waiting() == 0 })
	auditOf(t, f.api.Requests(t, f.began), 60*time.Second/part).judge(t, uid)
	t.Logf("fault: slow API, lease of %s:%s done once in the end", 60*time.Second/part, figures)
}
