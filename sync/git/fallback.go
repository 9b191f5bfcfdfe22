package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// Fallback URLs are other servers of the repository of a Remote. They are asked one after the
// other, and only while the server of Remote.URL does not answer; a refusal of that server counts.
//
// A fallback gets no credentials but its own. It may serve the commit that the first URL announced
// last, or one whose history contains the commit that was synced last: a copy that lags must not
// undo what was synced, and one with another history must not replace it. Where too little history
// is in the mirror, the fetch brings more.

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
	// Upstream is what another limpet, which has served the ref, says of it; "" = it was served by a
	// Git host.
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
	r.URL = at.URL
	r.Creds = nil
	r.Fallbacks = nil
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
	f := c.newFetch(tip)
	ahead, err := f.searchHistory(tip, id)
	if err != nil || ahead.found {
		return "", err
	}
	behind, err := f.searchHistory(id, tip)
	if err == nil && (behind.found || ahead.whole || mi.lastSeen(c.exchange.URL()) == ref.Hash) {
		err = notServed(ref, last)
	}
	return last, err
}

func notServed(ref Ref, last string) error {
	err := fmt.Errorf("its %s at %.7s does not contain commit %.7s, which was synced last", text.Line(ref.Short(), 80), ref.Hash, last)
	return &Error{Kind: Refused, Err: err, Hint: "nothing is taken from it until it has that commit"}
}

// fromFallback fetches a tip whose history has to contain base. Objects go into the mirror as they
// come, since their names are their content; a ref leads to the tip only after base was found.
func (f *fetch) fromFallback(ref Ref) error {
	base, ok := pack.ParseID(ref.Via.Base)
	if !ok {
		return f.run()
	}
	seen, err := f.deepen(f.id, "", base)
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		f.call.m.log.Warn("history of fallback exceeds the limits", "url", f.exchange.URL(), "err", large)
	} else if err != nil {
		return err
	}
	if !seen.found {
		f.mirror.see(f.exchange.URL(), ref.Hash)
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
