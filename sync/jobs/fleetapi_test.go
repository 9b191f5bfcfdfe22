package jobs

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// fleetAPI is an API server as its clients feel it: a call waits for a processor,
// a write also for etcd, an event for the processors that encode and send it
// and for the network. Each of the three is a queue that serves one after the
// other at a known rate, so that overload shows as waiting, not as an error. The
// costs are measured (fleetcost_test.go); the size of the server is assumed.
type fleetAPI struct {
	costs
	serverSize

	// When the queues will have done what they have.
	cpu, etcd, line time.Duration
	// What was done.
	cpuCalls, cpuEvents time.Duration
	sent                float64 // bytes of events
	deliveries          float64 // events times watches
	events              int
	requests            map[string]int
}

// serverSize is the assumed size of a server.
type serverSize struct {
	cores  float64       // of the kind that the costs were measured on
	writes float64       // a second, of etcd
	wire   float64       // bytes a second, out
	oneWay time.Duration // from an agent to the server, on top of the measured loopback
}

// large is a control plane as a fleet would have it. Its etcd and network are
// assumed: an etcd on local SSDs takes some thousand writes of 1 kB a second,
// and 10 Gbit/s carry 1.25 GB.
var large = serverSize{cores: 16, writes: 3000, wire: 1.25e9, oneWay: 5 * time.Millisecond}

// readCosts returns what was measured last.
func readCosts(t *testing.T) costs {
	t.Helper()
	var c costs
	data, err := os.ReadFile("testdata/fleet.json")
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newFleetAPI(c costs, m serverSize) *fleetAPI {
	return &fleetAPI{costs: c, serverSize: m, requests: map[string]int{}}
}

// take lets a queue work for d and returns when that is done.
func take(queue *time.Duration, now, d time.Duration) time.Duration {
	*queue = max(*queue, now) + d
	return *queue
}

func (a *fleetAPI) work(now, cpu time.Duration) time.Duration {
	return take(&a.cpu, now, time.Duration(float64(cpu)/a.cores))
}

// read and write return when the server acts on a call that is sent now, and
// when its client has the answer. The measured time of a call is split in two
// around the moment of the act.
func (a *fleetAPI) read(now time.Duration, kind string) (acts, answered time.Duration) {
	a.requests[kind]++
	a.cpuCalls += a.GetCPU
	acts = a.work(now+a.oneWay, a.GetCPU) + a.Get/2
	return acts, acts + a.Get/2 + a.oneWay
}

func (a *fleetAPI) write(now time.Duration, kind string, took time.Duration) (acts, answered time.Duration) {
	a.requests[kind]++
	a.cpuCalls += a.WriteCPU
	ready := a.work(now+a.oneWay, a.WriteCPU)
	acts = take(&a.etcd, ready, time.Duration(float64(time.Second)/a.writes)) + took/2
	return acts, acts + took/2 + a.oneWay
}

// publish sends an event of so many bytes to the watches that match it. Watches
// that another selector keeps from it cost a look, those of other namespaces next
// to nothing. It returns when the first and when the last agent has it.
func (a *fleetAPI) publish(now time.Duration, matching, filtered, foreign int, size float64) (first, last time.Duration) {
	cost := time.Duration(matching)*a.EventCPU + time.Duration(filtered)*a.FilteredCPU + time.Duration(foreign)*a.ForeignCPU
	a.events++
	a.cpuEvents += cost
	a.deliveries += float64(matching)
	bytes := size * float64(matching)
	a.sent += bytes
	last = max(a.work(now, cost), take(&a.line, now, time.Duration(bytes/a.wire*float64(time.Second))))
	return now + a.oneWay, last + a.oneWay
}
