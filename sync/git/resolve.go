package git

import (
	"context"
	"maps"
	"slices"
	"strings"
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
		if err = sel.Check(); err != nil {
			return &Error{Kind: Refused, Err: err}
		}
		if ref = pinned(sel); sel.Commit != "" && c.stored(ref) {
			ref.Stored = true
			return nil
		}
		ref, err = c.askRef(sel)
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

// askRef asks the server what a Selector stands for.
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
		c.m.mirror(c.home).see(ref.Name, ref.Hash)
	}
	return ref, err
}

const (
	refsKept = 2000 // how long a list of refs may be to be kept for the next fetch
	// listingsKept is how many listings are kept at a time. A fetch comes at once or
	// not at all: of a thousand repositories that are looked at each minute nearly none
	// has anything new.
	listingsKept = 16
)

// keepListing holds a listing for the fetch that follows, if it has no connection.
func (c *call) keepListing(l *transport.Listing) {
	if !strings.HasPrefix(c.Addr.Scheme, "http") || len(l.Refs.References) > refsKept {
		l.Session.Close()
		return
	}
	kept := c.m.listings
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if len(kept) >= listingsKept {
		delete(kept, slices.MinFunc(slices.Collect(maps.Keys(kept)), func(a, b string) int { return kept[a].At.Compare(kept[b].At) }))
	}
	kept[c.Identity()] = l
}

// listRefs returns the listing of a moment ago, once, or a new one. The caller visits
// the host.
func (c *call) listRefs() (*transport.Listing, error) {
	c.m.mu.Lock()
	l := c.m.listings[c.Identity()]
	delete(c.m.listings, c.Identity())
	c.m.mu.Unlock()
	if l != nil && time.Since(l.At) < transport.ListingLife {
		return l, nil
	}
	return c.List()
}
