package git

import (
	"cmp"
	"context"
	"errors"
	"time"

	"limpet/sync/git/giterr"
)

// unreachable reports whether another server may answer in place of one with this error.
func unreachable(err error) bool {
	k := KindOf(err)
	return k == Unreachable || k == Timeout
}

// failover asks the servers of a Remote, one after the other.
type failover struct {
	m      *Mirrors
	op     string
	remote Remote
	first  int  // the server that is asked before the others
	quiet  bool // it says nothing about whether a Git server is reachable: breakers stay
	do     func(*call) error

	errs  []error       // by server; nil = it was not asked
	spent time.Duration // of Options.Whole
}

// run asks until one server answers, and returns its index. The error is that of the
// first URL, with what became of the fallbacks.
func (f *failover) run(ctx context.Context) (server int, err error) {
	order := f.order()
	for at, i := range order {
		err := f.ask(ctx, i, len(order)-at)
		if err == nil {
			return i, nil
		}
		f.errs[i] = err
		if ctx.Err() != nil {
			return i, err
		}
		if unreachable(err) && !f.quiet {
			f.m.trip(f.remote.serverURL(i), err)
		} else if !unreachable(err) && i == 0 {
			break
		}
	}
	return 0, f.failed()
}

// order lists the servers whose breaker is closed, or all where there is none.
func (f *failover) order() []int {
	f.errs = make([]error, 1+len(f.remote.Fallbacks))
	all, closed := []int{f.first}, []int{}
	for i := range f.errs {
		if i != f.first {
			all = append(all, i)
		}
	}
	for _, i := range all {
		if f.errs[i] = f.m.tripped(f.remote.serverURL(i)); f.errs[i] == nil {
			closed = append(closed, i)
		}
	}
	if len(closed) == 0 {
		return all
	}
	return closed
}

// ask asks one server. It and those after it, left in all, get equal shares of the time.
func (f *failover) ask(ctx context.Context, i, left int) error {
	if i == 0 && f.remote.Down != nil {
		return f.remote.Down
	}
	for again := false; ; again = true {
		c, err := f.m.beginAt(ctx, f.op, f.remote, i)
		if err != nil {
			return err
		}
		c.exchange.TimeLimit -= f.spent
		if end, ok := ctx.Deadline(); ok && left > 1 {
			c.exchange.TimeLimit = min(c.exchange.TimeLimit, time.Until(end))
		}
		c.exchange.TimeLimit /= time.Duration(left)
		err = c.exchange.Fail(f.do(c))
		f.spent += c.exchange.HostTime()
		f.m.heard(f.op, c, err)
		if _, requests, _ := c.exchange.Cost(); err == nil && requests > 0 && !f.quiet {
			f.m.reset(f.remote.serverURL(i))
		}
		c.exchange.End()
		// A token of a fallback may have been revoked, or made by a wrong clock: there may be a new one.
		if i == 0 || again || KindOf(err) != Auth || c.exchange.Target.Creds == nil || c.exchange.Target.Creds.Forget == nil {
			return err
		}
	}
}

func (f *failover) failed() error {
	first, ok := errors.AsType[*Error](f.errs[0])
	if !ok {
		return f.errs[0]
	}
	e := *first
	e.Op = f.op
	what := e.Err.Error()
	for i, err := range f.errs[1:] {
		if err != nil {
			what += "; mirror " + f.remote.serverURL(i+1) + ": " + reason(err)
		}
	}
	e.Err = &giterr.Plain{Text: what, Inner: first.Err}
	return &e
}

// reason is an error without operation and URL. A time that differs with every attempt is left out.
func reason(err error) string {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Kind == Timeout:
		return "no answer in time"
	}
	return e.Err.Error()
}

// via describes the server that has answered; base is what is left to check.
func (f *failover) via(i int, base string) Via {
	if i == 0 {
		return Via{}
	}
	why := reason(cmp.Or(f.errs[0], errors.New("it was not asked")))
	return Via{URL: f.remote.serverURL(i), Home: f.remote.shown(), Why: why, Base: base}
}
