package transfer

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRemark: what servers say while they make a pack, in pieces that end anywhere.
func TestRemark(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]State{
		"Counting objects:  45% (9/20)\r":                                         {Phase: "counting", Percent: 45},
		"Enumerating objects: 20, done.\nCounting objects:   5% (1/20)\rCounting": {Phase: "counting", Percent: 5},
		"Counting objects: 100% (20/20), done.\nCompressing objects:  10% (1/":    {Phase: "compressing", Percent: 10},
		"Compressing objects: 999% (1/1)":                                         {Phase: "compressing", Percent: 100},
		"nting objects:  45% (9/20)\r":                                            {Phase: "waiting", Percent: -1},
		"the disk is 99% full\n":                                                  {Phase: "waiting", Percent: -1},
		"%":                                                                       {Phase: "waiting", Percent: -1},
	} {
		m := New()
		m.Start(Queued, 0)
		m.Enter(Waiting)
		m.Remark([]byte(said))
		if got := m.State(); got.Phase != want.Phase || got.Percent != want.Percent {
			t.Errorf("%q: %+v", said, got)
		}
	}
}

// TestMeter: counts, rate and percent of a transfer, and nothing of it before and after.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		m.Enter(Receiving)
		if got := m.State(); got != (State{}) {
			t.Errorf("before the start: %+v", got)
		}
		m.Start(Queued, 0)
		<-m.Began()
		start := time.Now()
		m.Tick(start)
		m.Start(LFS, 7)
		m.End() // the outer one goes on
		if got := m.State(); got.Phase != "queued" || got.Total != 0 {
			t.Errorf("after the end of an inner one: %+v", got)
		}
		m.Bytes(1 << 10)
		m.Expect(200)
		m.Object()
		now, moved := m.Tick(start.Add(time.Second))
		if want := (State{"receiving", now.Since, 0, 1 << 10, 1 << 10, 1, 200}); now != want || !moved {
			t.Errorf("%+v, want %+v", now, want)
		}
		for range 99 {
			m.Object()
		}
		m.Bytes(3 << 10)
		if now, _ = m.Tick(start.Add(2 * time.Second)); now.Percent != 50 || now.Rate != 2<<10 {
			t.Errorf("later: %+v", now)
		}
		if now, moved = m.Tick(start.Add(3 * time.Second)); now.Rate != 1<<10 || !moved {
			t.Errorf("a link that carries nothing: %+v", now)
		}
		for i := range 20 {
			now, moved = m.Tick(start.Add(time.Duration(4+i) * time.Second))
		}
		if now.Rate != 0 || moved {
			t.Error("moved without a change")
		}
		if n := testing.AllocsPerRun(100, func() {
			m.Remark([]byte("Counting objects:  45% (9/20)\r"))
			m.Bytes(9)
			m.Object()
			m.Enter(Receiving)
		}); n > 0 {
			t.Errorf("%v allocations a packet", n)
		}
		m.End()
		if got := m.State(); got != (State{}) {
			t.Errorf("after the end: %+v", got)
		}
		var none *Meter
		none.Start(LFS, 1)
		none.Expect(1)
		none.Remark([]byte("Counting objects: 1% (1/100)"))
	})
}
