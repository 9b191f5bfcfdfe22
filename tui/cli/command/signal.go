package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signals are those that end a command.
type signals struct {
	got    chan os.Signal
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nobody waits for signals any more
}

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or
// SIGHUP, and these signals.
//
// SIGHUP counts because a dashboard whose terminal hangs up has to restore and
// release what it holds; where it is ignored, as under nohup, it stays so.
// SIGPIPE is ignored: a reader that goes away is seen as an error of the write,
// so that whoever writes still cleans up.
func untilSignal(parent context.Context) (context.Context, *signals) {
	signal.Ignore(syscall.SIGPIPE)
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(parent)
	s := &signals{got: make(chan os.Signal, 1), cancel: cancel, done: make(chan struct{})}
	signal.Notify(s.got, wanted...)
	go func() {
		defer close(s.done)
		select {
		case got := <-s.got:
			signal.Stop(s.got)
			cancel(SignalError{got})
		case <-ctx.Done():
		}
	}()
	return ctx, s
}

// Stop restores the default effect of the signals, as the first one does: a second one kills the process at
// once.
func (s *signals) Stop() {
	signal.Stop(s.got)
	s.cancel(nil)
	<-s.done
}

// SignalError is the cause of a context that was ended by a signal.
type SignalError struct{ os.Signal }

func (s SignalError) Error() string { return "signal: " + s.Signal.String() }

func (s SignalError) Is(target error) bool { return target == context.Canceled }

// TimeoutError is the cause of a context that was ended by --timeout.
type TimeoutError struct{ After time.Duration }

func (t TimeoutError) Error() string { return fmt.Sprintf("gave up after %s (--timeout)", t.After) }

func (t TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}

// WaitCode returns the exit code of a wait that ctx has ended.
func WaitCode(ctx context.Context) int {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return ExitTimeout
	}
	return ExitCancelled
}

func Timestamp() string { return time.Now().UTC().Format(time.RFC3339) }

// RetryPause is the time between attempts while the API does not answer.
const RetryPause = time.Second
