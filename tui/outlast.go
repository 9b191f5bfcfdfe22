package tui

import (
	"context"
	"time"

	"golang.org/x/term"
)

const (
	// takesWithin is how long a terminal may take for the last bytes: 4 KiB, which is
	// what a kernel holds for a serial line, need 4 s at 9,600 baud, and the rest less.
	takesWithin = 4 * time.Second
	// clearEvery is how often after that what it does not take is thrown away.
	clearEvery = 100 * time.Millisecond
	// leaveWithin is how long all of it may last.
	leaveWithin = takesWithin + 2*time.Second
)

// outlast runs what shows a screen, and after the end of ctx waits for it for
// leaveWithin at most. Who writes to a terminal that takes nothing, as when its link
// is dead and nobody knows it yet, blocks for as long as that lasts; the agent
// beside it and its file have to come to their end. What such a terminal has not
// taken is thrown away, so that it may still be given back. Frozen says that not even
// that helped: then show is at work still, and err is nil.
func outlast(ctx context.Context, o Options, show func(Options) error) (frozen bool, err error) {
	o.spill = &spill{throw: func() { throwAway(o.Out) }}
	was, _ := term.GetState(int(o.In.Fd())) // nil for what is no terminal
	end := make(chan error, 1)
	go func() { end <- show(o) }()
	select {
	case err := <-end:
		return false, err
	case <-ctx.Done():
	}
	begin, late := time.After(takesWithin), time.After(leaveWithin)
	var again <-chan time.Time
	for {
		select {
		case err := <-end:
			return false, err
		case <-begin:
			tick := time.NewTicker(clearEvery)
			defer tick.Stop()
			again = tick.C
		case <-again:
			o.spill.some()
		case <-late:
			if was != nil {
				_ = term.Restore(int(o.In.Fd()), was)
			}
			return true, nil
		}
	}
}
