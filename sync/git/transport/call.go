// Package transport asks Git servers over https, http and ssh, and repositories on this host in
// process. It counts every byte that comes, ends silent and slow calls, limits the requests per
// host, and classifies errors.
//
// Nothing that a server sends is trusted: texts are cleaned of control characters and secrets,
// redirects leave no origin, and credentials go to no other host. Limits bounds the list of refs
// and the pack, AnswerHead what comes before the pack and what a server says that it can do,
// ErrorBody the text of a refusal, mostIDs what is kept of a directory of bundles, maxShares the
// limits that are kept for repositories, maxLong the servers that are known to have many refs;
// Options.Refs, Stall and Whole bound the time.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// Call is one operation of a caller: its remote, its limits, its transfer, and the wording of its
// errors.
type Call struct {
	client  *Client
	op      string
	Target  Target
	Addr    auth.Address // of the server that is asked
	Limits  pack.Limits
	Pushes  bool            // it is about a push
	Ctx     context.Context // run-scope: ends with the call, with the watchdog, or with the caller's
	caller  context.Context // run-scope: the caller's own
	cancel  context.CancelCauseFunc
	started time.Time
	redact  *strings.Replacer

	watchdog  *time.Timer
	whole     *time.Timer
	TimeLimit time.Duration // of whole: what of Options.Whole is this call's
	since     time.Time     // when whole began; zero = it did not
	watching  atomic.Bool   // the server is to send something
	trickle   atomic.Int64  // bytes since the watchdog was calmed last
	received  atomic.Int64
	requests  atomic.Int64
	peer      string // host:port of the last request over http
	budget    atomic.Pointer[budget]
	found     atomic.Pointer[giterr.Error] // what the transport already understood
	Remarks   remarks
	Upstream  string    // what another limpet says of the ref that it serves, for people
	Bases     []pack.ID // commits that the pack of the last answer builds on, where it is a bundle
	Older     []pack.ID // a commit of each bundle that the directory has beside the newest, the oldest first
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

// Target is a repository and the means to ask for it.
type Target struct {
	URL           string
	Creds         *auth.Credentials // nil = none
	AllowInsecure bool              // credentials may go over plain http
	Limits        pack.Limits       // zero fields take those of the Options
	Meter         *transfer.Meter   // nil = none
	Requests      RequestLimits
}

// Begin checks the target and starts the clock. end must follow.
func (t *Client) Begin(ctx context.Context, op string, at Target) (*Call, error) {
	c := &Call{client: t, op: op, Target: at, Limits: at.Limits.Or(t.Options.Limits), caller: ctx, started: time.Now(),
		redact: redactor(at.Creds), TimeLimit: t.Options.Whole}
	c.Ctx, c.cancel = context.WithCancelCause(ctx)
	c.watchdog = time.AfterFunc(t.Options.Stall, func() { c.cancel(errStalled) })
	c.whole = time.AfterFunc(t.Options.Whole, func() { c.cancel(errLong) })
	c.whole.Stop()
	c.stopWatchdog()
	c.Remarks.meter = at.Meter
	c.SetBudget("answer", 0)
	if err := c.checkTarget(); err != nil {
		c.cancel(nil)
		return nil, err
	}
	return c, nil
}

// Identity names the server and the credentials that it is asked with.
func (c *Call) Identity() string { return c.Addr.Key() + " " + c.Target.Creds.Fingerprint() }

func (c *Call) End() {
	c.stopWatchdog()
	c.whole.Stop()
	c.cancel(nil)
}

// startClock starts the clock of the whole call at its first turn at a host: the time
// before that was spent by other calls.
func (c *Call) startClock() {
	if c.since.IsZero() {
		c.since = time.Now()
		c.whole.Reset(c.TimeLimit)
	}
	c.Target.Meter.Enter(transfer.Connecting)
	c.startWatchdog()
}

// HostTime is for how long the call has been at its host, turns in between included.
func (c *Call) HostTime() time.Duration {
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// leastProgress is what a server has to send within Options.Stall. It is half of the
// signs of life that git sends, 5 bytes every 5 s, while it makes a pack. Unit: bytes.
const leastProgress = 60

// startWatchdog starts the watchdog: a server that is silent for too long ends the call.
func (c *Call) startWatchdog() {
	c.watching.Store(true)
	c.trickle.Store(0)
	c.watchdog.Reset(c.client.Options.Stall)
}

func (c *Call) stopWatchdog() {
	c.watching.Store(false)
	c.watchdog.Stop()
}

// SetBudget sets how many bytes may come from now on.
func (c *Call) SetBudget(what string, n int64) { c.budget.Store(newBudget(what, n)) }

func newBudget(what string, n int64) *budget {
	b := &budget{what: what, most: n}
	b.left.Store(n)
	return b
}

// take takes n bytes off the budget.
func (b *budget) take(n int) error {
	if left := b.left.Add(-int64(n)); left < 0 {
		return &giterr.TooLargeError{What: b.what, Size: b.most - left, Limit: b.most}
	}
	return nil
}

// bounded is a reader with a budget.
type bounded struct {
	io.Reader
	budget *budget
}

func (r bounded) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	return n, cmp.Or(r.budget.take(n), err)
}

// count takes n received bytes off the budget and calms the watchdog.
func (c *Call) count(n int) error {
	c.received.Add(int64(n))
	c.Target.Meter.Bytes(n)
	c.progress(n)
	return c.budget.Load().take(n)
}

// progress reports n bytes on the wire to the watchdog.
func (c *Call) progress(n int) {
	if c.watching.Load() && c.trickle.Add(int64(n)) >= leastProgress {
		c.trickle.Store(0)
		c.watchdog.Reset(c.client.Options.Stall)
	}
}

// counted is a reader whose bytes are counted.
type counted struct {
	io.ReadCloser
	c *Call
}

func (r counted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if lerr := r.c.count(n); lerr != nil {
		return 0, lerr
	}
	return n, err
}

// checkTarget refuses what must not be asked at all.
func (c *Call) checkTarget() error {
	refuse := func(err error, hint string) error { return c.Fail(giterr.Wrap(giterr.Refused, err, hint)) }
	a, err := auth.ParseAddress(c.Target.URL)
	if err != nil {
		return refuse(err, "write it as https://host/path, ssh://user@host/path or user@host:path")
	}
	c.Addr = a
	creds := c.Target.Creds
	switch {
	case a.Password:
		return refuse(errors.New("the url holds a password"), "put it into a secret and leave it out of the url")
	case a.Scheme == "http" && creds != nil && (creds.Password != "" || creds.Bearer != "") && !c.Target.AllowInsecure:
		return refuse(errors.New("credentials would go over plain http"), "use https, or start the agent with --allow-insecure-git")
	case (a.Scheme == "file" || a.Scheme == auth.BundleScheme) && !c.client.localAllowed(a.Path):
		return refuse(errors.New("local paths are not allowed"),
			"use https or ssh, or start the agent with --local-git-prefix and a directory above it")
	case a.Scheme == auth.PlainUpstreamScheme && !netx.Loopback(a.Host):
		return refuse(errors.New(a.Scheme+" is for this host alone"), "use "+auth.UpstreamScheme)
	case !a.Local():
		if err := c.CheckHost(a.Host); err != nil {
			return c.Fail(err)
		}
	}
	if creds != nil && creds.Password != "" && creds.Username == "" {
		filled := *creds
		filled.Username = cmp.Or(a.User, "git")
		c.Target.Creds = &filled
		c.redact = redactor(&filled)
	}
	return nil
}

// localAllowed reports whether path, and the .git of a worktree there, lies below one of the
// directories that Options.AllowLocal names.
func (t *Client) localAllowed(path string) bool {
	return isBelow(t.Options.AllowLocal, path) && isBelow(t.Options.AllowLocal, gitDir(path))
}

// isBelow reports whether path, with all links resolved, lies below one of some directories.
func isBelow(dirs []string, path string) bool {
	resolve := func(p string) string {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return real
		}
		return filepath.Clean(p)
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rel, err := filepath.Rel(resolve(dir), resolve(path))
		return err == nil && filepath.IsLocal(rel)
	})
}

func (c *Call) URL() string {
	if c.Addr.Scheme == "" {
		return ""
	}
	return c.Addr.String()
}

// Cost is what the exchange has received and sent, and how long it has taken.
func (c *Call) Cost() (bytes int64, requests int, took time.Duration) {
	return c.received.Load(), int(c.requests.Load()), time.Since(c.started)
}

// RedactValues keeps the values of a header out of errors, beside the secrets of the credentials.
func (c *Call) RedactValues(header map[string]string) {
	c.redact = redactor(c.Target.Creds, slices.Collect(maps.Values(header))...)
}

// ClearProblem forgets what an answer before meant: the call goes on with another request.
func (c *Call) ClearProblem() { c.found.Store(nil) }

// CheckHost refuses a host that must not be asked.
func (c *Call) CheckHost(host string) error {
	if err := c.client.Options.Guard.Host(host); err != nil {
		return giterr.Wrap(giterr.Refused, err, guardHint)
	}
	return nil
}

// Fail turns an error into an *giterr.Error for the caller. nil stays nil.
func (c *Call) Fail(err error) error {
	if err == nil {
		return nil
	}
	known, ok := errors.AsType[*giterr.Error](err)
	if !ok {
		known = c.Classify(err)
	}
	own := *known
	e := &own
	e.Op, e.URL = c.op, c.URL()
	text := c.clean(e.Err.Error(), 500)
	if said := c.clean(c.Remarks.Text(), 500); said != "" && e.Kind != giterr.Timeout && e.Kind != giterr.Cancelled &&
		!strings.Contains(text, said) {
		text += ", the server says: " + said
	}
	e.Err = &giterr.Plain{Text: text, Inner: e.Err}
	return e
}

// clean cleans foreign text and takes secrets out of it. It is
// cut last: the first half of a secret is none that could be found.
func (c *Call) clean(foreign string, max int) string {
	return text.Line(WithoutUserInfo(c.redact.Replace(text.Line(foreign, longText))), max)
}

// longText is as much of a foreign text as is looked at. Unit: bytes.
const longText = 16 << 10

// Classify sets kind and hint; the caller fills in the rest.
func (c *Call) Classify(err error) *giterr.Error {
	if large, ok := errors.AsType[*giterr.TooLargeError](err); ok {
		return giterr.Wrap(giterr.TooLarge, large, "the limits protect this host; make the repository or the file smaller")
	}
	switch cause := context.Cause(c.Ctx); {
	case errors.Is(cause, errStalled):
		return giterr.Wrap(giterr.Timeout, fmt.Errorf("%w for %s", errStalled, c.client.Options.Stall), "")
	case errors.Is(cause, errLongList):
		return giterr.Wrap(giterr.Timeout, fmt.Errorf("%w %v", errLongList, c.client.Options.Refs),
			"the host is slow, or the repository has very many refs")
	case errors.Is(cause, errLong):
		return giterr.Wrap(giterr.Timeout, fmt.Errorf("%w %s, with %d KiB received", errLong, max(c.TimeLimit, 0).Round(time.Millisecond),
			c.received.Load()>>10), fmt.Sprintf(
			"the link is slow, or the repository is large: --git-timeout, which is %s for all servers together", c.client.Options.Whole))
	}
	switch cause := context.Cause(c.caller); {
	case errors.Is(c.caller.Err(), context.DeadlineExceeded):
		return giterr.Wrap(giterr.Timeout, fmt.Errorf("no answer within %s: %w", time.Since(c.started).Round(time.Millisecond), cause), "")
	case cause != nil:
		return giterr.Wrap(giterr.Cancelled, cause, "")
	case c.found.Load() != nil:
		return c.found.Load()
	}
	if hidden, ok := errors.AsType[*plumbing.UnexpectedError](err); ok { // it does not unwrap
		err = hidden.Err
	}
	for _, class := range classifiers {
		if e := class(c, err); e != nil {
			return e
		}
	}
	return giterr.Wrap(giterr.Unknown, err, "")
}
