package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/jobs/lease"
)

// Defaults of Options. Sources: Grafana's drivers where they have the value too.
const (
	DefaultDrivers     = 3
	DefaultTimeout     = 20 * time.Minute
	DefaultInterval    = 30 * time.Second
	DefaultExpiry      = 60 * time.Second
	DefaultRenew       = 10 * time.Second // Grafana: 20 s; 10 s is safe beside its older versions, which expire after 30 s
	DefaultMaxAttempts = 3
	DefaultGrace       = 20 * time.Second // twice a call's timeout; service managers wait 90 s
)

// What to do with expired claims of others (Options.Cleanup).
const (
	CleanupRequeue = "requeue" // make the job eligible again, fail it after MaxAttempts
	CleanupFail    = "fail"    // end the job as error, as Grafana does
	CleanupOff     = "off"     // leave it to the server
)

// Options configure a Controller. Zero values mean the defaults above.
type Options struct {
	// Drivers is how many jobs run at once.
	Drivers int
	// Timeout of one run of a job; below 0 = none.
	Timeout time.Duration
	// Interval of the periodic scan of all known jobs, and the delay of a job that
	// was released.
	Interval time.Duration
	// Expiry is the age at which others may consider a claim dead, Renew how often
	// a held one is renewed. Expiry must be at least three times Renew.
	Expiry, Renew time.Duration
	// MaxAttempts is how many claims of one job may end without a result.
	MaxAttempts int
	// Cleanup is CleanupRequeue, CleanupFail or CleanupOff.
	Cleanup string
	// Selector chooses repositories by their labels; nil = all.
	Selector labels.Selector
	// Actions that this agent takes; nil = all that it has workers for.
	Actions []string
	// HistoryExpiration is the age at which HistoricJobs are deleted from the API;
	// 0 = never. It is also the age for the local history unless LocalHistory is set.
	HistoryExpiration time.Duration
	// LocalHistory is the age at which records of the state file are deleted,
	// LocalRecords how many are kept at most, and LocalBytes how many bytes they may
	// have with their keys and frames; 0 = no limit.
	LocalHistory time.Duration
	LocalRecords int
	LocalBytes   int64
	// OldestRecord, when set, returns when the oldest record of the state file ended;
	// zero = there is none. It is for an API whose objects are in that file too:
	// when the local history has been at its bounds by number or bytes, HistoricJobs
	// that are older are deleted with it.
	OldestRecord func(ctx context.Context) (time.Time, error)
	// Grace is how long running jobs may take to end when Run is told to stop.
	Grace time.Duration
	// Drained makes the agent begin as if Drain(true) had been called.
	Drained bool
	// Agent is the name of this agent in history.
	Agent string
	// self tells this agent from all others, those of the same name too: its claims
	// carry it, and it decides in which order it takes jobs. "" = Agent.
	self string
	// Namespace to work in; "" = all.
	Namespace string
	// Logger; nil = slog.Default().
	Logger *slog.Logger
	// Observe is called for every event, from many goroutines at once. It must be
	// quick and must not call the controller.
	Observe func(Event)

	// hook is called at every failpoint that a job of this controller passes, for
	// tests that stop one of several agents in a process there.
	hook func(point string, job jobRef)
}

func (o Options) withDefaults() Options {
	def(&o.Drivers, DefaultDrivers)
	def(&o.Timeout, DefaultTimeout)
	def(&o.Interval, DefaultInterval)
	def(&o.Expiry, DefaultExpiry)
	def(&o.Renew, DefaultRenew)
	def(&o.MaxAttempts, DefaultMaxAttempts)
	def(&o.Cleanup, CleanupRequeue)
	def(&o.Grace, DefaultGrace)
	def(&o.Agent, "limpet")
	def(&o.self, o.Agent)
	def(&o.LocalHistory, o.HistoryExpiration)
	if o.Selector == nil {
		o.Selector = labels.Everything()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return o
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o Options) terms() lease.Terms { return lease.Terms{Expiry: o.Expiry, Renew: o.Renew} }

// Validate returns every reason why these options, with the defaults for zero
// values, are not safe to run with.
func (o Options) Validate() error {
	o = o.withDefaults()
	errs := []error{o.terms().Validate()}
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Drivers < 1, "drivers must be at least 1, not %d", o.Drivers)
	refuse(o.Interval < time.Second, "job interval %s is below 1s", o.Interval)
	refuse(o.MaxAttempts < 1, "max attempts must be at least 1, not %d", o.MaxAttempts)
	refuse(o.Cleanup != CleanupRequeue && o.Cleanup != CleanupFail && o.Cleanup != CleanupOff,
		"cleanup %q is none of requeue, fail, off", o.Cleanup)
	refuse(o.HistoryExpiration < 0 || o.LocalHistory < 0 || o.LocalRecords < 0 || o.LocalBytes < 0,
		"history expiration and limits must not be negative")
	refuse(o.Grace < 0, "grace period must not be negative")
	return errors.Join(errs...)
}
