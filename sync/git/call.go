package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"limpet/sync/auth"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// call is one operation of a caller: its remote, its limits, what went over the
// wire, and how its errors are told.
type call struct {
	m        *Mirrors
	op       string
	remote   Remote
	addr     auth.Address // of the server that is asked
	home     auth.Address // of Remote.URL, which names the directory
	fallback bool         // the server is a fallback
	limits   pack.Limits
	pushes   bool            // it is about a push
	command  string          // that the host runs for it over ssh; "" = that of service
	ctx      context.Context // run-scope: ends with the call, with the watchdog, or with the caller's
	caller   context.Context // run-scope: the caller's own
	cancel   context.CancelCauseFunc
	started  time.Time
	redact   *strings.Replacer

	watchdog *time.Timer
	whole    *time.Timer
	most     time.Duration // of whole: what of Options.Whole is this call's
	begun    sync.Once     // of whole
	since    time.Time     // when whole began; zero = it did not
	watching atomic.Bool   // the server is to send something
	trickle  atomic.Int64  // bytes since the watchdog was calmed last
	received atomic.Int64
	requests atomic.Int64
	budget   atomic.Pointer[budget]
	problem  atomic.Pointer[Error] // what the transport already understood
	remarks  remarks
}

// budget is how many bytes may come in one phase of a call. An ssh connection
// is read by a goroutine of its own, so it is replaced whole.
type budget struct {
	what string
	most int64
	left atomic.Int64
}

var (
	errStalled = errors.New("the server is silent")
	errLong    = errors.New("it takes more than")
)

// begin checks the remote and starts the clock. end must follow.
func (m *Mirrors) begin(ctx context.Context, op string, r Remote) (*call, error) {
	c := &call{m: m, op: op, remote: r, limits: r.Limits.Or(m.options.Limits), caller: ctx, started: time.Now(), redact: redactor(r.Creds)}
	c.most = m.options.Whole
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.watchdog = time.AfterFunc(m.options.Stall, func() { c.cancel(errStalled) })
	c.whole = time.AfterFunc(m.options.Whole, func() { c.cancel(errLong) })
	c.whole.Stop()
	c.unwatch()
	c.allow("answer", 0)
	if err := c.checkRemote(); err != nil {
		c.cancel(nil)
		return nil, err
	}
	c.home = c.addr
	return c, nil
}

// whom names the server and the credentials that it is asked with.
func (c *call) whom() string { return c.addr.Key() + " " + c.remote.Creds.Fingerprint() }

func (c *call) end() {
	c.unwatch()
	c.whole.Stop()
	c.cancel(nil)
}

// visiting starts the clock of the whole call at its first turn at a host: nobody
// is blamed for those who were there before.
func (c *call) visiting() {
	c.begun.Do(func() {
		c.since = time.Now()
		c.whole.Reset(c.most)
	})
	c.watch()
}

// asking is for how long the call has been at its host, turns in between included.
func (c *call) asking() time.Duration {
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// leastProgress is what a server has to send within Options.Stall. It is half of the
// signs of life that git sends, 5 bytes every 5 s, while it makes a pack. Unit: bytes.
const leastProgress = 60

// watch starts the watchdog: a server that is silent for too long ends the call.
func (c *call) watch() {
	c.watching.Store(true)
	c.trickle.Store(0)
	c.watchdog.Reset(c.m.options.Stall)
}

func (c *call) unwatch() {
	c.watching.Store(false)
	c.watchdog.Stop()
}

// allow sets how many bytes may come from now on.
func (c *call) allow(what string, n int64) {
	b := &budget{what: what, most: n}
	b.left.Store(n)
	c.budget.Store(b)
}

// count takes n received bytes off the budget and calms the watchdog.
func (c *call) count(n int) error {
	c.received.Add(int64(n))
	c.calm(n)
	b := c.budget.Load()
	if left := b.left.Add(-int64(n)); left < 0 {
		return &TooLargeError{What: b.what, Size: b.most - left, Limit: b.most}
	}
	return nil
}

// calm tells the watchdog of n bytes that have gone over the wire.
func (c *call) calm(n int) {
	if c.watching.Load() && c.trickle.Add(int64(n)) >= leastProgress {
		c.trickle.Store(0)
		c.watchdog.Reset(c.m.options.Stall)
	}
}

// counted is a reader whose bytes are counted.
type counted struct {
	io.ReadCloser
	c *call
}

func (r counted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if lerr := r.c.count(n); lerr != nil {
		return 0, lerr
	}
	return n, err
}

// checkRemote refuses what must not be asked at all.
func (c *call) checkRemote() error {
	refuse := func(err error, hint string) error {
		return &Error{Kind: Refused, Op: c.op, URL: c.url(), Err: err, Hint: hint}
	}
	a, err := auth.ParseAddress(c.remote.URL)
	if err != nil {
		return refuse(err, "write it as https://host/path, ssh://user@host/path or user@host:path")
	}
	c.addr = a
	if a.Password {
		return refuse(errors.New("the url holds a password"), "put it into a secret and leave it out of the url")
	}
	if a.Scheme != "file" {
		if err := c.m.options.Guard.Host(a.Host); err != nil {
			return refuse(err, guardHint)
		}
	}
	creds := c.remote.Creds
	switch a.Scheme {
	case "http":
		if creds != nil && (creds.Password != "" || creds.Bearer != "") && !c.remote.AllowInsecure {
			return refuse(errors.New("credentials would go over plain http"), "use https, or start the agent with --allow-insecure-git")
		}
	case "file":
		if !c.m.localAllowed(a.Path) {
			return refuse(errors.New("local paths are not allowed"), "use https or ssh, or start the agent with --local-git-prefix and a directory above it")
		}
	}
	if creds != nil && creds.Password != "" && creds.Username == "" {
		filled := *creds
		if filled.Username = a.User; filled.Username == "" {
			filled.Username = "git"
		}
		c.remote.Creds = &filled
		c.redact = redactor(&filled)
	}
	return nil
}

// localAllowed tells whether path, with all links resolved, lies below one of
// the directories that Options.AllowLocal names.
func (m *Mirrors) localAllowed(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = filepath.Clean(path)
	}
	for _, dir := range m.options.AllowLocal {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
		rel, err := filepath.Rel(dir, real)
		if err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

func (c *call) url() string {
	if c.addr.Scheme == "" {
		return ""
	}
	return c.addr.String()
}

// stats is what the call has cost so far.
func (c *call) stats(s Stats) Stats {
	s.Bytes, s.Requests, s.Elapsed = c.received.Load(), int(c.requests.Load()), time.Since(c.started)
	return s
}

// plain is an error that shows only what it was given to show. What it stands
// for can be asked about with errors.Is and errors.As, but not printed by
// walking the chain: the texts of foreign errors may echo anything.
type plain struct {
	text  string
	inner error
}

func (p *plain) Error() string        { return p.text }
func (p *plain) Is(target error) bool { return errors.Is(p.inner, target) }
func (p *plain) As(target any) bool   { return errors.As(p.inner, target) }

// fail tells what an error means for the caller. nil stays nil.
func (c *call) fail(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if known, ok := errors.AsType[*Error](err); ok {
		own := *known
		e = &own
	} else {
		e = c.classify(err)
	}
	e.Op, e.URL = c.op, c.url()
	text := c.safe(e.Err.Error(), 500)
	if said := c.safe(c.remarks.text(), 500); said != "" && e.Kind != Timeout && e.Kind != Cancelled && !strings.Contains(text, said) {
		text += ", the server says: " + said
	}
	e.Err = &plain{text, e.Err}
	return e
}

// safe cleans foreign text and takes secrets out of it. It is
// cut last: the first half of a secret is none that could be found.
func (c *call) safe(foreign string, max int) string {
	return text.Line(withoutUserInfo(c.redact.Replace(text.Line(foreign, longText))), max)
}

// longText is as much of a foreign text as is looked at. Unit: bytes.
const longText = 16 << 10

// classify gives kind and hint; the caller fills in the rest.
func (c *call) classify(err error) *Error {
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		return &Error{Kind: TooLarge, Err: large, Hint: "the limits protect this host; make the repository or the file smaller"}
	}
	if errors.Is(context.Cause(c.ctx), errStalled) {
		return &Error{Kind: Timeout, Err: fmt.Errorf("%w for %s", errStalled, c.m.options.Stall)}
	}
	if errors.Is(context.Cause(c.ctx), errLongList) {
		return &Error{Kind: Timeout, Err: fmt.Errorf("%w %v", errLongList, c.m.options.Refs), Hint: "the host is slow, or the repository has very many refs"}
	}
	if errors.Is(context.Cause(c.ctx), errLong) {
		took := c.most
		if took <= 0 { // those before it have had all of it
			took = c.m.options.Whole
		}
		e := &Error{Kind: Timeout, Err: fmt.Errorf("%w %s, with %d KiB received", errLong, took.Round(time.Millisecond), c.received.Load()>>10), Hint: "the link is slow, or the repository is large: --git-timeout"}
		if c.most < c.m.options.Whole {
			e.Hint += fmt.Sprintf(", which is %s for all servers together", c.m.options.Whole)
		}
		return e
	}
	if cerr := c.caller.Err(); cerr != nil {
		cause := context.Cause(c.caller)
		if errors.Is(cerr, context.DeadlineExceeded) {
			return &Error{Kind: Timeout, Err: fmt.Errorf("no answer within %s: %w", time.Since(c.started).Round(time.Millisecond), cause)}
		}
		return &Error{Kind: Cancelled, Err: cause}
	}
	if known := c.problem.Load(); known != nil {
		return known
	}
	if hidden, ok := errors.AsType[*plumbing.UnexpectedError](err); ok { // it does not unwrap
		err = hidden.Err
	}
	for _, class := range classes {
		if e := class(c, err); e != nil {
			return e
		}
	}
	return &Error{Kind: Unknown, Err: err}
}
