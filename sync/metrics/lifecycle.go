package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/jobs"
)

// lifecycle counts the turns in the life of jobs that Grafana has no name for.
type lifecycle struct {
	lost, requeued, postponed, released, resumed, cancelled prometheus.Counter

	dead   *prometheus.CounterVec
	pruned *prometheus.CounterVec
	leases *leases
}

// deadReasons are the reasons of a dead letter; see jobs.EventDead.
var deadReasons = []string{"crashed", "transient", "timeout"}

func newLifecycle(r prometheus.Registerer) lifecycle {
	plain := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	l := lifecycle{
		lost:      plain("limpet_leases_lost_total", "Claims whose lease this agent has lost, each once."),
		requeued:  plain("limpet_jobs_requeued_total", "Expired claims of others that this agent has removed, so that their jobs are eligible again."),
		postponed: plain("limpet_jobs_postponed_total", "Jobs that were given back for another attempt, because something is in the way that passes."),
		released:  plain("limpet_jobs_released_total", "Jobs that were given back and not counted as an attempt."),
		resumed:   plain("limpet_jobs_resumed_total", "Own claims of before that were taken up again."),
		cancelled: plain("limpet_jobs_cancelled_total", "Jobs that a person has cancelled or deleted while they ran."),
		dead:      counter(r, "limpet_jobs_dead_letters_total", "Jobs whose attempts are used up.", "reason"),
		pruned:    counter(r, "limpet_history_pruned_total", "History that was deleted, in the state file (local) and as HistoricJobs (api).", "where"),
		leases:    &leases{seen: map[string]bool{}},
	}
	for _, reason := range deadReasons {
		l.dead.WithLabelValues(reason)
	}
	for _, where := range []string{"local", "api"} {
		l.pruned.WithLabelValues(where)
	}
	return l
}

func (l *lifecycle) observe(e jobs.Event) {
	switch e.Type {
	case jobs.EventLost:
		if l.leases.first(e.UID + " " + strconv.Itoa(e.Attempt)) {
			l.lost.Inc()
		}
	case jobs.EventRequeued:
		l.requeued.Inc()
	case jobs.EventRetry:
		l.postponed.Inc()
	case jobs.EventReleased:
		l.released.Inc()
	case jobs.EventResumed:
		l.resumed.Inc()
	case jobs.EventDead:
		reason := other
		for _, known := range deadReasons {
			if e.State == known {
				reason = known
			}
		}
		l.dead.WithLabelValues(reason).Inc()
	case jobs.EventCompleted:
		if e.State == "cancelled" {
			l.cancelled.Inc()
		}
	}
}

// leases remembers which losses were counted: an uncertain loss is reported again
// when another agent holds the job.
type leases struct {
	mu    sync.Mutex // guards the fields below
	seen  map[string]bool
	order []string // the oldest first
}

// maxLost bounds the memory. A loss is reported again within minutes.
const maxLost = 1024

func (l *leases) first(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		return false
	}
	l.seen[id] = true
	l.order = append(l.order, id)
	if len(l.order) > maxLost {
		delete(l.seen, l.order[0])
		l.order = l.order[1:]
	}
	return true
}
