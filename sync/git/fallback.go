package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// Fallback URLs are other servers of the repository of a Remote. They are asked in order, and only while the
// server of Remote.URL does not answer; a refusal of that server counts.
//
// A fallback gets no credentials but its own. It may serve the commit that the first URL announced last, or one
// whose history contains the commit that was synced last: a copy that lags must not undo what was synced, and
// one with another history must not replace it. Where too little history is in the mirror, the fetch brings more.

// Fallback is another server of the repository of a Remote.
type Fallback struct {
	URL string
	// Credentials returns the credentials for URL; it is called when the server is asked.
	// Nil means none. An error that is no *Error is one of kind Auth.
	Credentials func(context.Context) (*auth.Credentials, error)
}

// Via names the fallback that announced a Ref. It is plain text, free of secrets.
type Via struct {
	URL  string // of the server; "" = the one of Remote.URL
	Home string // Remote.URL, for people
	Why  string // what is wrong with that
	Base string // the commit that Fetch has to find in the history of Ref.Hash; "" = it was found
	// Upstream is what another limpet, which has served the ref, says of it; "" = it was served by a Git host.
	Upstream string
}

// String is a sentence for people, "" for the zero Via.
func (v Via) String() string {
	if v.URL == "" {
		return v.Upstream
	}
	return fmt.Sprintf("fetched from mirror %s; %s is unreachable: %s", v.URL, v.Home, v.Why)
}

// serverURL is the URL of server i without user and password; 0 is the one of Remote.URL.
func (r Remote) serverURL(i int) string {
	if i > 0 {
		r.URL = r.Fallbacks[i-1].URL
	}
	return r.shown()
}

// server is the index of the server of a Via, -1 when it is no server of r any more.
func (r Remote) server(v Via) int {
	if v.URL == "" {
		return 0
	}
	for i := len(r.Fallbacks); i > 0; i-- {
		if r.serverURL(i) == v.URL {
			return i
		}
	}
	return -1
}

// beginAt is begin for server i of a Remote.
func (m *Mirrors) beginAt(ctx context.Context, op string, r Remote, i int) (*call, error) {
	if i == 0 {
		return m.begin(ctx, op, r)
	}
	home, err := auth.ParseAddress(r.URL)
	if err != nil {
		return nil, &Error{Kind: Refused, Op: op, Err: err}
	}
	at := r.Fallbacks[i-1]
	r.URL, r.Creds, r.Fallbacks = at.URL, nil, nil
	if at.Credentials != nil {
		if r.Creds, err = at.Credentials(ctx); err != nil {
			e := Error{Kind: Auth, Err: err}
			if known, ok := errors.AsType[*Error](err); ok {
				e = *known
			}
			e.Op, e.URL = op, r.shown()
			return nil, &e
		}
	}
	c, err := m.begin(ctx, op, r)
	if err == nil {
		c.home, c.fallback = home, true
	}
	return c, err
}

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
		c.TimeLimit -= f.spent
		if end, ok := ctx.Deadline(); ok && left > 1 {
			c.TimeLimit = min(c.TimeLimit, time.Until(end))
		}
		c.TimeLimit /= time.Duration(left)
		err = c.Fail(f.do(c))
		f.spent += c.HostTime()
		f.m.heard(f.op, c, err)
		if _, requests, _ := c.Cost(); err == nil && requests > 0 && !f.quiet {
			f.m.reset(f.remote.serverURL(i))
		}
		c.End()
		// A token of a fallback may have been revoked, or made by a wrong clock: there may be a new one.
		if i == 0 || again || KindOf(err) != Auth || c.Target.Creds == nil || c.Target.Creds.Forget == nil {
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

// base returns the commit that the history of a tip of a fallback still has to be seen
// to contain, "" for none. The error says that the tip may not be served.
func (c *call) base(ref Ref) (string, error) {
	mi := c.m.mirror(c.home)
	announced := mi.announcedCommit(ref.Name)
	last := cmp.Or(c.remote.LastSynced, announced)
	id, ok := pack.ParseID(last)
	if !ok || ref.Pinned || ref.Hash == last || ref.Hash == announced {
		return "", nil
	}
	tip, _ := pack.ParseID(ref.Hash)
	f := fetch{call: c, mirror: mi, id: tip}
	ahead, err := f.searchHistory(tip, id)
	if err != nil || ahead.found {
		return "", err
	}
	behind, err := f.searchHistory(id, tip)
	if err == nil && (behind.found || ahead.whole || mi.lastSeen(c.URL()) == ref.Hash) {
		err = notServed(ref, last)
	}
	return last, err
}

func notServed(ref Ref, last string) error {
	err := fmt.Errorf("its %s at %.7s does not contain commit %.7s, which was synced last", text.Line(ref.Short(), 80), ref.Hash, last)
	return &Error{Kind: Refused, Err: err, Hint: "nothing is taken from it until it has that commit"}
}

// fromFallback fetches a tip whose history has to contain base. Objects go into the mirror as they come, since
// their names are their content; a ref leads to the tip only after base was found.
func (f *fetch) fromFallback(ref Ref) error {
	base, ok := pack.ParseID(ref.Via.Base)
	if !ok {
		return f.run()
	}
	seen, err := f.deepen(f.id, "", base)
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		f.m.log.Warn("history of fallback exceeds the limits", "url", f.URL(), "err", large)
	} else if err != nil {
		return err
	}
	if !seen.found {
		f.mirror.see(f.URL(), ref.Hash)
		return notServed(ref, ref.Via.Base)
	}
	return f.run() // all is there, but maybe a tag
}

// FallbackResult is what one fallback of a Remote answers.
type FallbackResult struct {
	URL  string // of the server, for people, without a password
	Ref  Ref
	Err  error // *Error
	Took time.Duration
}

// CheckFallbacks is Resolve at each fallback of r by itself. It blocks as that many calls
// of Resolve do, one after the other.
func (m *Mirrors) CheckFallbacks(ctx context.Context, r Remote, sel gitref.Selector) (out []FallbackResult) {
	const most = 10 * time.Second // for one server
	for i := range r.Fallbacks {
		began := time.Now()
		result := FallbackResult{URL: r.serverURL(i + 1)}
		f := &failover{m: m, op: "resolve", remote: r, quiet: true, do: func(c *call) (err error) {
			result.Ref, err = c.askRef(sel)
			return err
		}}
		limited, cancel := context.WithTimeout(ctx, most)
		result.Err = f.ask(limited, i+1, 1)
		cancel()
		result.Took = time.Since(began)
		out = append(out, result)
	}
	return out
}

// longestPause is the last pause of a server that did not answer; the first is
// Options.Pause, and each is twice as long as the one before. A host that is down costs a
// caller up to netx.DialTimeout; one that is back is to be used again within minutes.
const longestPause = 5 * time.Minute

// breaker is an open circuit: a URL is not asked until a time. It is in memory only:
// after a restart every server is asked again.
type breaker struct {
	until time.Time
	pause time.Duration
	err   error // why it is open
}

// heard notes whether the host of a call has answered. One that answers a look may be silent at a fetch.
func (m *Mirrors) heard(op string, c *call, err error) {
	_, requests, _ := c.Cost()
	host, now := c.Addr.HostPort(), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.HostTime() == 0: // it was not asked
	case unreachable(err):
		maps.DeleteFunc(m.silent, func(_ [2]string, since time.Time) bool { return now.Sub(since) > 2*longestPause })
		m.silent[[2]string{op, host}] = now
	case requests > 0 && KindOf(err) != Cancelled:
		delete(m.silent, [2]string{op, host})
	}
}

// Silent reports whether a host, by name and port, did not answer when it was asked last.
func (m *Mirrors) Silent(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range []string{"resolve", "fetch"} {
		if since, is := m.silent[[2]string{op, host}]; is && time.Since(since) < 2*longestPause {
			return true
		}
	}
	return false
}

// trip opens the breaker of a URL after a server did not answer.
func (m *Mirrors) trip(url string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	b := m.breakers[url]
	if now.Before(b.until) {
		return // of a request that began before
	}
	b.err, b.pause = err, max(m.client.Options.Pause, min(2*b.pause, longestPause))
	wait := b.pause*3/4 + rand.N(b.pause/2+1)
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, min(e.RetryAfter, longestPause))
	}
	b.until = now.Add(wait)
	maps.DeleteFunc(m.breakers, func(_ string, old breaker) bool { return now.Sub(old.until) > 2*longestPause })
	m.breakers[url] = b
}

// tripped returns why the breaker of a URL is open, nil when it is closed.
func (m *Mirrors) tripped(url string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.breakers[url]; time.Now().Before(b.until) {
		return b.err
	}
	return nil
}

// reset closes the breaker of a URL whose server has answered.
func (m *Mirrors) reset(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.breakers, url)
}
