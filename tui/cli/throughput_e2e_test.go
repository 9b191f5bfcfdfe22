package cli_test

import (
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestThroughputEmbedded: one agent, its embedded API and its history in one
// durable file, jobs posted over the socket while it works.
func TestThroughputEmbedded(t *testing.T) {
	const (
		goal       = 150  // jobs/s
		leastRatio = 0.35 // of bare lives; a job is 8 durable writes, 7 of them one after the other, a bare life 5
	)
	for name, flags := range map[string][]string{"3 drivers (default)": nil, "16 drivers": {"--drivers", "16"}} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			d := h.daemon(t, append([]string{"--log-level", "warn"}, flags...)...)
			y := embeddedYard(t, h)
			y.repositories(32)
			s := y.look()
			n := size(60, 500)
			var rates, bare, ratios []float64
			for range size(1, 5) {
				b := perSecond(n, y.bare(n, 8))
				y.await("bare jobs deleted", s.gone, n)
				l := perSecond(n, y.drain(s, n, 8))
				rates, bare, ratios = append(rates, l), append(bare, b), append(ratios, l/b)
			}
			t.Logf("embedded API, one agent, %s: median %.0f jobs/s of %.0f; bare create+3 updates+delete %.0f/s, median ratio %.2f (n=%d each)",
				name, median(rates), rates, median(bare), median(ratios), n)
			if got := len(h.history(t)); got == 0 {
				t.Error("no history")
			}
			// A machine that is busy with other things shows it in the bare calls too.
			if *figures && median(rates) < goal && median(ratios) < leastRatio {
				t.Errorf("median %.0f jobs/s, goal %d; ratio %.2f, goal %.2f", median(rates), goal, median(ratios), leastRatio)
			}
			if code := d.stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestThroughputReal compares one agent with the bare calls that the life of a
// job costs at least, in turn, at the same concurrency, on the API machinery.
func TestThroughputReal(t *testing.T) {
	const goal, at = 0.70, 16
	y, flags := realYard(t, testenv.Start(t, testenv.Options{}))
	y.repositories(32)
	h := newHome(t, flags...)
	h.daemon(t, "--log-level", "warn", "--drivers", "16")
	s := y.look()
	n := size(60, 500)
	y.drain(s, n/4, at) // warm
	y.warm(s, n/4, at)
	var bare, limpet, ratios []float64
	for range size(1, 7) {
		b := perSecond(n, y.bare(n, at))
		y.await("bare jobs deleted", s.gone, n)
		l := perSecond(n, y.drain(s, n, at))
		bare, limpet, ratios = append(bare, b), append(limpet, l), append(ratios, l/b)
	}
	t.Logf("API machinery, %d at once: bare create+3 updates+delete %.0f/s, limpet %.0f jobs/s (POST to removal), median ratio %.2f of %.2f (n=%d each)",
		at, median(bare), median(limpet), median(ratios), ratios, n)
	if *figures && median(ratios) < goal {
		t.Errorf("median ratio %.2f, goal %.2f", median(ratios), goal)
	}
}

// warm runs bare lives until the connections and caches are there.
func (y *yard) warm(s sight, n, at int) time.Duration {
	d := y.bare(n, at)
	y.await("bare jobs deleted", s.gone, n)
	return d
}
