package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Resolve asks the remote what a branch stands for now: one ls-remote, no more.
// branch is a branch, a full name such as refs/pull/1/head, a tag, or the 40
// digits of a commit; "" is what the remote's HEAD points to, or where that does
// not exist main, master, or the first branch by name. It blocks until the answer,
// the end of ctx, or Options.Stall of silence. Every error is an *Error.
func (m *Mirrors) Resolve(ctx context.Context, r Remote, branch string) (Ref, error) {
	c, err := m.begin(ctx, "resolve", r)
	if err != nil {
		return Ref{}, err
	}
	defer c.end()
	ref, err := c.resolve(branch)
	if err != nil {
		return Ref{}, c.fail(err)
	}
	return ref, nil
}

func (c *call) resolve(branch string) (Ref, error) {
	if branch != "" {
		if err := checkRefName(branch); err != nil {
			return Ref{}, &Error{Kind: Refused, Err: err}
		}
	}
	leave, err := c.visit()
	if err != nil {
		return Ref{}, err
	}
	defer leave()
	l, err := c.list()
	if err != nil {
		return Ref{}, err
	}
	c.keep(l)
	ref, ok := lookUp(l.refs, branch)
	if ok {
		return ref, nil
	}
	if branch == "" {
		return Ref{}, &Error{Kind: Empty, Err: errors.New("the repository has no branches"), Hint: "push a first commit to one"}
	}
	e := &Error{Kind: BranchNotFound, Err: fmt.Errorf("there is no branch %q", clean(branch, 100))}
	switch near, names := similarBranches(l.refs, branch); {
	case near:
		e.Hint = "did you mean " + strings.Join(names, " or ") + "?"
	case len(names) > 0:
		e.Hint = "there is " + strings.Join(names, ", ")
	}
	return Ref{}, e
}

// refsKept is how long a list of refs may be to be kept for the next fetch.
const refsKept = 2000

// keep holds a listing for the fetch that follows, if it has no connection.
func (c *call) keep(l *listing) {
	if http := c.addr.Scheme == "https" || c.addr.Scheme == "http"; !http || len(l.refs.References) > refsKept {
		l.session.Close()
		l = nil
	}
	m := c.m.mirror(c.addr)
	m.mu.Lock()
	m.listed = l
	m.mu.Unlock()
	if l != nil {
		c.m.hold(m)
	}
}

// listingsKept is how many listings are kept at a time. A fetch comes at once or
// not at all: of a thousand repositories that are looked at each minute nearly none
// has anything new.
const listingsKept = 16

// hold notes that a mirror keeps a listing, and drops the oldest one of too many.
func (m *Mirrors) hold(mi *mirror) {
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

// kept gives the listing of a moment ago, once.
func (m *mirror) kept(creds string) *listing {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.listed
	m.listed = nil
	if l == nil || l.creds != creds || time.Since(l.at) > listingLife {
		return nil
	}
	return l
}
