package git

import (
	"context"
	"slices"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/git/transport"
)

// Resolve asks the remote what a Selector stands for now: one ls-remote, no more.
// The zero Selector is what the remote's HEAD points to, or where that does not
// exist main, master, or the first branch by name.
// A commit that is in the mirror needs none: what it holds does not change. Where a
// branch was given with it, that it is on that branch was seen when it was fetched.
// Where the server of r.URL does not answer, its fallbacks are asked; see fallback.go.
// It blocks until the answer, the end of ctx, or Options.Stall of silence. Every
// error is an *Error.
func (m *Mirrors) Resolve(ctx context.Context, r Remote, sel gitref.Selector) (Ref, error) {
	var ref Ref
	f := &failover{m: m, op: "resolve", remote: r, do: func(c *call) (err error) {
		ref, err = c.resolve(sel)
		return err
	}}
	server, err := f.run(ctx)
	if err != nil {
		return Ref{}, err
	}
	if !ref.Stored {
		ref.Via = f.via(server, ref.Via.Base)
	}
	return ref, nil
}

func (c *call) resolve(sel gitref.Selector) (Ref, error) {
	if err := sel.Check(); err != nil {
		return Ref{}, &Error{Kind: Refused, Err: err}
	}
	if sel.Commit != "" {
		if ref := pinned(sel); c.stored(ref) {
			ref.Stored = true
			return ref, nil
		}
	}
	return c.askRef(sel)
}

// askRef is resolve for what the server has to be asked about.
func (c *call) askRef(sel gitref.Selector) (Ref, error) {
	leave, err := c.Visit()
	if err != nil {
		return Ref{}, err
	}
	defer leave()
	l, err := c.List()
	if err != nil {
		return Ref{}, err
	}
	c.keepListing(l)
	ref, err := choose(c.Ctx, l.Refs, sel)
	switch {
	case err != nil:
	case c.fallback:
		ref.Via.Base, err = c.base(ref)
	case len(c.remote.Fallbacks) > 0:
		c.m.mirror(c.home).announce(ref)
	}
	return ref, err
}

// refsKept is how long a list of refs may be to be kept for the next fetch.
const refsKept = 2000

// keepListing holds a listing for the fetch that follows, if it has no connection.
func (c *call) keepListing(l *transport.Listing) {
	if http := c.Addr.Scheme == "https" || c.Addr.Scheme == "http"; !http || len(l.Refs.References) > refsKept {
		l.Session.Close()
		l = nil
	}
	m := c.m.mirror(c.home)
	m.mu.Lock()
	m.listed = l
	m.mu.Unlock()
	if l != nil {
		c.m.evictListings(m)
	}
}

// listingsKept is how many listings are kept at a time. A fetch comes at once or
// not at all: of a thousand repositories that are looked at each minute nearly none
// has anything new.
const listingsKept = 16

// evictListings notes that a mirror keeps a listing, and drops the oldest one of too many.
func (m *Mirrors) evictListings(mi *mirror) {
	m.mu.Lock()
	m.holders = append(slices.DeleteFunc(m.holders, func(other *mirror) bool { return other == mi }), mi)
	var oldest *mirror
	if len(m.holders) > listingsKept {
		oldest, m.holders = m.holders[0], slices.Delete(m.holders, 0, 1)
	}
	m.mu.Unlock()
	if oldest != nil {
		oldest.mu.Lock()
		defer oldest.mu.Unlock()
		oldest.listed = nil
	}
}

// takeListing returns the listing of a moment ago, once.
func (m *mirror) takeListing(whom string) *transport.Listing {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.listed
	m.listed = nil
	if l == nil || l.Identity != whom || time.Since(l.At) > transport.ListingLife {
		return nil
	}
	return l
}
