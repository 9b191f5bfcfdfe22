// Package transfer counts what comes from Git servers while it comes, for those who show it.
package transfer

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"limpet/sync/text"
)

// Phase is what a transfer does now.
type Phase int32

// The phases in the order in which a fetch has them; LFS is a transfer by itself.
const (
	Idle Phase = iota
	Queued
	Connecting
	Waiting
	Counting
	Compressing
	Receiving
	Resolving
	LFS
)

// phases has the name of each phase, and its text for people.
var phases = [...]struct{ name, text string }{
	Queued:      {"queued", "waiting for other requests to the host"},
	Connecting:  {"connecting", "connecting"},
	Waiting:     {"waiting", "waiting for the server"},
	Counting:    {"counting", "counting objects"},
	Compressing: {"compressing", "compressing objects"},
	Receiving:   {"receiving", "receiving objects"},
	Resolving:   {"resolving", "resolving deltas"},
	LFS:         {"lfs", "downloading LFS files"},
}

// State is a transfer at a moment. The zero State is none.
type State struct {
	Phase   string    `json:"phase"`   // queued connecting waiting counting compressing receiving resolving lfs
	Since   time.Time `json:"since"`   // of the phase
	Percent int64     `json:"percent"` // of the phase; below 0 = unknown
	Bytes   int64     `json:"bytes"`   // received
	Rate    int64     `json:"bytesPerSecond"`
	Objects int64     `json:"objects,omitempty"` // received of Total; of LFS files
	Total   int64     `json:"total,omitempty"`   // 0 = unknown
}

// Meter counts what one run receives. A nil Meter counts nothing. Its methods allocate nothing and
// are safe for concurrent use, but Tick is for one goroutine.
type Meter struct {
	began                                                  chan struct{} // capacity 1: a transfer began
	phase, open, outer                                     atomic.Int32  // open transfers, and the phase of the outer one
	since, percent, received, objects, total, rate, lately atomic.Int64
	last                                                   State // of the last Tick
	ticked                                                 time.Time
}

// New makes a Meter.
func New() *Meter { return &Meter{began: make(chan struct{}, 1)} }

// Began has a value after a transfer began.
func (m *Meter) Began() <-chan struct{} { return m.began }

// Start begins a transfer in a phase, of so many objects if that is known. End follows. Within
// another one it hides that until its end.
func (m *Meter) Start(p Phase, total int) {
	if m == nil {
		return
	}
	if m.open.Add(1) > 1 {
		m.outer.Store(m.phase.Load())
	}
	for _, n := range []*atomic.Int64{&m.received, &m.objects, &m.total, &m.rate, &m.lately} {
		n.Store(0)
	}
	m.total.Store(int64(total))
	m.set(p)
	select {
	case m.began <- struct{}{}:
	default:
	}
}

// End ends the transfer.
func (m *Meter) End() {
	switch {
	case m == nil:
	case m.open.Add(-1) > 0:
		m.objects.Store(0)
		m.total.Store(0)
		m.set(Phase(m.outer.Load()))
	default:
		m.phase.Store(int32(Idle))
	}
}

func (m *Meter) set(p Phase) {
	if m.phase.Swap(int32(p)) != int32(p) {
		m.since.Store(time.Now().UnixMilli())
		m.percent.Store(-1)
	}
}

// Enter says what a transfer does now. A call outside of one changes nothing, and the requests of
// LFS are one phase.
func (m *Meter) Enter(p Phase) {
	if m != nil && m.phase.Load() != int32(Idle) && m.phase.Load() != int32(LFS) {
		m.set(p)
	}
}

// Expect begins the objects of a pack.
func (m *Meter) Expect(objects int64) {
	if m != nil {
		m.Enter(Receiving)
		m.objects.Store(0)
		m.total.Store(objects)
	}
}

// Object counts one object or file that has come.
func (m *Meter) Object() {
	if m != nil {
		m.objects.Add(1)
	}
}

// Bytes counts bytes that have come.
func (m *Meter) Bytes(n int) {
	if m != nil {
		m.received.Add(int64(n))
	}
}

// Remark reads a text of the server's, "Counting objects:  45% (9/20)".
func (m *Meter) Remark(said []byte) {
	end := bytes.LastIndexByte(said, '%')
	if m == nil || end < 0 {
		return
	}
	line := said[1+bytes.LastIndexAny(said[:end], "\r\n") : end]
	_, figure, _ := bytes.Cut(line, []byte(": "))
	percent, err := strconv.Atoi(string(bytes.TrimSpace(figure)))
	if err != nil {
		return
	}
	switch {
	case bytes.HasPrefix(line, []byte("Counting ")):
		m.Enter(Counting)
	case bytes.HasPrefix(line, []byte("Compressing ")):
		m.Enter(Compressing)
	default:
		return
	}
	m.percent.Store(int64(min(max(percent, 0), 100)))
}

// State returns the transfer as it is now.
func (m *Meter) State() State {
	p := Phase(m.phase.Load())
	if p == Idle {
		return State{}
	}
	s := State{Phase: phases[p].name, Since: time.UnixMilli(m.since.Load()), Percent: m.percent.Load(), Bytes: m.received.Load(),
		Rate: m.rate.Load()}
	if p == Receiving || p == LFS {
		s.Objects, s.Total = m.objects.Load(), m.total.Load()
	}
	if s.Total > 0 {
		s.Percent = min(s.Objects*100/s.Total, 100)
	}
	return s
}

// Tick measures the rate since the last Tick, smoothed, and returns the State and whether it has
// changed.
func (m *Meter) Tick(at time.Time) (now State, moved bool) {
	n := m.received.Load()
	rate := int64(float64(n-m.lately.Swap(n)) / max(at.Sub(m.ticked), time.Millisecond).Seconds())
	if before := m.rate.Load(); before > 0 {
		rate = (before + rate) / 2
	}
	m.ticked = at
	m.rate.Store(max(rate, 0))
	before := m.last
	m.last = m.State()
	return m.last, m.last != before
}

// Text describes a transfer for people: "receiving objects 45% (123/456), 1.2 MiB, 15 KiB/s".
func (s State) Text(now time.Time) string {
	out := s.Phase // of a newer agent
	for _, p := range phases {
		if p.name == s.Phase {
			out = p.text
		}
	}
	if s.Percent >= 0 {
		out += fmt.Sprintf(" %d%%", s.Percent)
	}
	if s.Total > 0 {
		out += fmt.Sprintf(" (%d/%d)", s.Objects, s.Total)
	}
	if wait := now.Sub(s.Since); s.Percent < 0 && wait >= time.Second {
		out += ", " + text.Age(wait)
	}
	if s.Bytes > 0 {
		out += ", " + text.Size(s.Bytes) + ", " + text.Size(s.Rate) + "/s"
	}
	return out
}
