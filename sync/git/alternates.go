package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
)

// Alternates are other servers of the repository of a Remote, and what is needed to
// ask them in its place. They are asked in order, and only while the server of
// Remote.URL is away: of kind Unreachable or Timeout. What that server answers counts,
// a refusal among it. One that was away is left alone for a while, see rest.
//
// Another server gets no credentials but its own. What it tells is taken only if it
// does not lead back, see onward.go. The directory on disk is that of Remote.URL.
type Alternates struct {
	Servers []Server
	// Down is why the server of Remote.URL cannot be asked now, although nobody has
	// tried: nobody could make its credentials. Nil is the rule.
	Down *Error
	// Last is the commit that was pulled last, "" if none: an alternate leads to
	// nothing before it.
	Last string
}

// Server is one of Alternates.
type Server struct {
	URL string
	// Credentials finds what it is asked with; it is called when it is asked. Nil =
	// nothing. An error that is no *Error is one of kind Auth.
	Credentials func(context.Context) (*auth.Credentials, error)
}

// Via says which of Alternates has told a Ref. It is plain text, free of secrets.
type Via struct {
	URL  string // of the server; "" = the one of Remote.URL has told it
	Name string // the server, for people: URL, with the user where another has the same
	Home string // Remote.URL, for people
	Why  string // what is wrong with that
	Kept string // why nothing newer is taken from the server; "" = it is what the server has
	// After are commits, with a blank between them, that Ref.Hash has to come after:
	// Fetch sees to that.
	After string
}

// String says it for people, "" for the zero Via.
func (v Via) String() string {
	switch {
	case v.URL == "":
		return ""
	case v.Kept != "":
		return fmt.Sprintf("nothing new from mirror %s: it %s; %s is unreachable: %s", v.Name, v.Kept, v.Home, v.Why)
	}
	return fmt.Sprintf("fetched from mirror %s; %s is unreachable: %s", v.Name, v.Home, v.Why)
}

// beginAt is begin for the server i of a Remote: 0 is the one of its URL.
func (m *Mirrors) beginAt(ctx context.Context, op string, r Remote, i int) (*call, error) {
	if i == 0 {
		return m.begin(ctx, op, r)
	}
	home, err := auth.ParseAddress(r.URL)
	if err != nil {
		return nil, &Error{Kind: Refused, Op: op, Err: err}
	}
	at := r.Servers[i-1]
	one := Remote{URL: at.URL, AllowInsecure: r.AllowInsecure, Limits: r.Limits, Spent: r.Spent}
	if at.Credentials != nil {
		if one.Creds, err = at.Credentials(ctx); err != nil {
			e := &Error{Kind: Auth, Err: err}
			if known, ok := errors.AsType[*Error](err); ok {
				*e = *known
			}
			e.Op, e.URL = op, one.shown()
			return nil, e
		}
	}
	c, err := m.begin(ctx, op, one)
	if err == nil {
		c.home, c.mirrored, c.past = home, true, r.Last
	}
	return c, err
}

// server is the place of a Via among those of a Remote, -1 for none.
func (r Remote) server(v Via) int {
	for i, s := range r.Servers {
		if v.URL != "" && (Remote{URL: s.URL}).shown() == v.URL {
			return i + 1
		}
	}
	if v.URL == "" {
		return 0
	}
	return -1
}

// shownAt is the URL of a server without user and password.
func (r Remote) shownAt(i int) string {
	if i == 0 {
		return r.shown()
	}
	return Remote{URL: r.Servers[i-1].URL}.shown()
}

// nameAt is a server for people. Logs and statuses show no user of a URL, so servers
// that differ in it alone are told apart behind it.
func (r Remote) nameAt(i int) string {
	own, err := auth.ParseAddress(r.shownAt(i))
	if own.Scheme != "ssh" || err != nil {
		return r.shownAt(i)
	}
	user := own.User
	for j := range 1 + len(r.Servers) {
		other, err := auth.ParseAddress(r.shownAt(j))
		if other.User = user; j != i && err == nil && other == own {
			return fmt.Sprintf("%s as %s", own, cmp.Or(user, "git"))
		}
	}
	return own.String()
}

// away says that a server has not answered, which another may do in its place.
func away(err error) bool {
	k := KindOf(err)
	return k == Unreachable || k == Timeout
}

// tour asks the servers of a Remote, one after the other.
type tour struct {
	m      *Mirrors
	op     string
	remote Remote
	shares bool // each server has its share of the time until the deadline
	first  int  // who is asked ahead of the others
	aside  bool // it says nothing about whether a server of Git is away
	f      func(*call) error

	spent  time.Duration // of Options.Whole
	served int           // who has answered well
	errs   []error       // of each server; nil = it was not asked
}

// run asks until one answers well. What the server of Remote.URL answers counts; an
// alternate that refuses is the last that is asked, one that is behind is not. The
// error is that of the first server, with what became of the others.
func (t *tour) run(ctx context.Context) error {
	n := 1 + len(t.remote.Servers)
	t.errs = make([]error, n)
	if n == 1 && t.remote.Down == nil {
		return t.ask(ctx, 0, 1)
	}
	order, fresh := t.order()
	for at, i := range order {
		left := n - at
		if at < fresh { // those behind are away by all that is known: they have one share
			left = fresh - at + min(n-fresh, 1)
		}
		if _, ok := t.kept(); ok && at >= fresh {
			break
		}
		err := t.ask(ctx, i, left)
		if err == nil {
			t.served = i
			return nil
		}
		t.errs[i] = err
		if ctx.Err() != nil {
			return err
		}
		if away(err) {
			if !t.aside {
				t.m.rested(t.remote.shownAt(i), err)
			}
			continue
		}
		if KindOf(err) == Stale {
			continue
		}
		// It was refused: nobody else is asked but the first one.
		for _, j := range order[at+1:] {
			if j == 0 {
				if t.errs[0] = t.ask(ctx, 0, 1); t.errs[0] == nil {
					return nil
				}
			}
		}
		break
	}
	return t.failed()
}

// order is in which order the servers are asked. Those that are left alone for now
// come behind the fresh ones, for where none of these leads anywhere.
func (t *tour) order() (order []int, fresh int) {
	var later []int
	if t.first > 0 {
		order = append(order, t.first)
	}
	for i := range t.errs {
		if i == t.first && i > 0 {
			continue
		}
		if err := t.m.resting(t.remote.shownAt(i)); err != nil {
			t.errs[i], later = err, append(later, i)
			continue
		}
		order = append(order, i)
	}
	return append(order, later...), len(order)
}

// ask asks one server; left are those that may still be asked, itself among them: each
// has the same share of what is left of Options.Whole.
func (t *tour) ask(ctx context.Context, i, left int) error {
	if i == 0 && t.remote.Down != nil {
		return t.remote.Down
	}
	if end, ok := ctx.Deadline(); ok && t.shares && left > 1 {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
		ctx = share
	}
	err, again := t.once(ctx, i, left)
	if i > 0 && again {
		// A token from memory that was revoked: there may be a new one.
		err, _ = t.once(ctx, i, left)
	}
	return err
}

// once asks one server. again says that it has refused credentials that others may be
// had for.
func (t *tour) once(ctx context.Context, i, left int) (err error, again bool) {
	c, err := t.m.beginAt(ctx, t.op, t.remote, i)
	if err != nil {
		return err, false
	}
	defer c.end()
	c.most = (c.most - t.spent) / time.Duration(left)
	err = c.fail(t.f(c))
	t.spent += c.asking()
	if err == nil && c.requests.Load() > 0 && !t.aside {
		t.m.back(t.remote.shownAt(i))
	}
	return err, KindOf(err) == Auth && c.remote.Creds != nil && c.remote.Creds.Forget != nil
}

// failed is the error of all servers.
func (t *tour) failed() error {
	first, ok := errors.AsType[*Error](t.errs[0])
	if !ok {
		return t.errs[0]
	}
	e := *first
	e.Op = t.op
	var others []string
	for i, err := range t.errs[1:] {
		if err != nil {
			others = append(others, "mirror "+t.remote.nameAt(i+1)+": "+reason(err))
		}
	}
	if len(others) > 0 {
		e.Err = &plain{e.Err.Error() + "; " + strings.Join(others, "; "), first.Err}
	}
	return &e
}

// reason is an error without what it is about. How long nobody answered is another
// time each time.
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

// via says which server has answered.
func (t *tour) via(i int, v Via) Via {
	if i == 0 {
		return Via{}
	}
	v.URL, v.Name, v.Home, v.Why = t.remote.shownAt(i), t.remote.nameAt(i), t.remote.nameAt(0), "it was not asked"
	if t.errs[0] != nil {
		v.Why = reason(t.errs[0])
	}
	return v
}

// kept is what is here, where an alternate has answered that is behind it.
func (t *tour) kept() (Ref, bool) {
	for i, err := range t.errs {
		if s, ok := errors.AsType[*staleError](err); ok && s.keep.Hash != "" {
			s.keep.Via = t.via(i, Via{Kept: s.why})
			return s.keep, true
		}
	}
	return Ref{}, false
}

// Answer is what one server of a Remote says.
type Answer struct {
	URL  string // of the server, for people, without a password
	Ref  Ref
	Err  error // *Error; of kind Stale where the server is behind what is here
	Took time.Duration
}

// Each is Resolve at every one of r.Servers by itself, for who wants to know how they
// are. It blocks as that many calls of Resolve do, one after the other.
func (m *Mirrors) Each(ctx context.Context, r Remote, sel gitref.Selector) []Answer {
	var out []Answer
	for i := range r.Servers {
		began := time.Now()
		a := Answer{URL: r.nameAt(i + 1)}
		t := &tour{m: m, op: "resolve", remote: r, f: func(c *call) (err error) {
			a.Ref, err = c.asked(sel)
			return err
		}}
		limited, cancel := context.WithTimeout(ctx, eachTime)
		a.Err = t.ask(limited, i+1, 1)
		cancel()
		a.Took = time.Since(began)
		out = append(out, a)
	}
	return out
}

// eachTime is how long Each waits for one server.
const eachTime = 10 * time.Second

// leastRest is the first pause of a server that was away, longestRest the last: each
// is twice as long as the one before. A host that is down costs whoever looks up to
// reach.DialTimeout; one that is back is to be used again within minutes.
const (
	leastRest   = 15 * time.Second
	longestRest = 5 * time.Minute
)
