package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or
// SIGHUP, and a function that gives the signals back their own effect. A second
// signal has it already: who asks twice does not want to wait.
//
// SIGHUP counts because a dashboard whose terminal hangs up has to restore and
// release what it holds; where it is ignored, as under nohup, it stays so.
// SIGPIPE is ignored: a reader that goes away is seen as an error of the write,
// so that whoever writes still cleans up.
func untilSignal(parent context.Context) (context.Context, func()) {
	signal.Ignore(syscall.SIGPIPE)
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(parent)
	got := make(chan os.Signal, 1)
	signal.Notify(got, wanted...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-got:
			signal.Stop(got)
			cancel(signalled{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		cancel(nil)
		<-done
	}
}

// signalled is the cause of a context that a signal has ended.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "signal: " + s.Signal.String() }

func (s signalled) Is(target error) bool { return target == context.Canceled }

// timedOut is the cause of a context that --timeout has ended.
type timedOut struct{ after time.Duration }

func (t timedOut) Error() string { return fmt.Sprintf("gave up after %s (--timeout)", t.after) }

func (t timedOut) Is(target error) bool { return target == context.DeadlineExceeded }
