package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// Resolve asks the remote what a Selector stands for now: one ls-remote, and none for a commit that
// is in the mirror. What the list of refs does not tell is fetched once: which of equal versions
// has the newest commit, which is chosen as Flux does, and the commit of a tag where no tag is
// peeled. The zero Selector is what the remote's HEAD points to, or where that does not exist main,
// master, or the first branch by name. Where the server of r.URL does not answer, its fallbacks are
// asked; see fallback.go. It blocks until the answer, the end of ctx, or Options.Stall of silence.
// Every error is an *Error.
func (m *Mirrors) Resolve(ctx context.Context, r Remote, sel gitref.Selector) (Ref, error) {
	r.Meter.Start(transfer.Queued, 0)
	defer r.Meter.End()
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
		upstream := ref.Via.Upstream
		ref.Via = f.via(server, ref.Via.Base)
		ref.Via.Upstream = upstream
	}
	return ref, nil
}

func (c *call) askRef(sel gitref.Selector) (Ref, error) {
	l, err := c.peekRefs(func() (*transport.Listing, error) {
		return c.exchange.Look(prefixes(sel)...)
	})
	if err != nil {
		return Ref{}, err
	}
	found, err := choose(c.exchange.Ctx, l.Refs, sel)
	if err != nil && l.Prefixes != nil { // all names are there to choose another by, and to hint at
		l, err = c.peekRefs(c.exchange.List)
		if err != nil {
			return Ref{}, err
		}
		found, err = choose(c.exchange.Ctx, l.Refs, sel)
	}
	var ref Ref
	if err == nil {
		ref, err = c.newestOf(found, l.Prefixes != nil || len(l.Refs.Peeled) > 0)
	}
	ref.Via.Upstream = c.exchange.Upstream
	switch {
	case err != nil:
	case c.fallback:
		ref.Via.Base, err = c.base(ref)
	case len(c.remote.Fallbacks) > 0:
		c.m.mirror(c.home).see(ref.Name, ref.Hash)
	}
	return ref, err
}

// peekRefs returns what the server has, without a session.
func (c *call) peekRefs(list func() (*transport.Listing, error)) (*transport.Listing, error) {
	leave, err := c.exchange.Visit()
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := list()
	if err == nil {
		c.keepListing(l)
	}
	return l, err
}

const (
	refsKept = 2000 // how long a list of refs may be to be kept for the next fetch
	// listingsKept is how many listings are kept at a time. A fetch comes at once or not at all: of a
	// thousand repositories that are looked at each minute nearly none has anything new.
	listingsKept = 16
)

// keepListing holds a listing for the fetch that follows, if it has no connection.
func (c *call) keepListing(l *transport.Listing) {
	if !strings.HasPrefix(c.exchange.Addr.Scheme, "http") && !c.exchange.Addr.Upstream() || len(l.Refs.References) > refsKept {
		l.Session.Close()
		return
	}
	kept := c.m.listings
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if len(kept) >= listingsKept {
		delete(kept, slices.MinFunc(slices.Collect(maps.Keys(kept)), func(a, b string) int { return kept[a].At.Compare(kept[b].At) }))
	}
	kept[c.exchange.Identity()] = l
}

// listRefs returns the listing of a moment ago, once, or a new one, of the refs that are named
// in full; no name stands for all. The caller visits the host.
func (c *call) listRefs(names ...string) (*transport.Listing, error) {
	c.m.mu.Lock()
	l := c.m.listings[c.exchange.Identity()]
	delete(c.m.listings, c.exchange.Identity())
	c.m.mu.Unlock()
	if l != nil && time.Since(l.At) < transport.ListingLife && l.Covers(names) {
		return l, nil
	}
	return c.exchange.Look(names...)
}

// newestOf returns the ref with the newest commit of several, of which the last wins a tie. peels
// reports whether the server names the commits of annotated tags.
func (c *call) newestOf(refs []Ref, peels bool) (newest Ref, err error) {
	var last time.Time
	for _, ref := range refs[max(0, len(refs)-maxEqual):] {
		var when time.Time
		if len(refs) > 1 || !peels && strings.HasPrefix(ref.Name, tagPrefix) {
			if when, err = c.look(&ref); err != nil {
				return newest, err
			}
		}
		if !when.Before(last) {
			last, newest = when, ref
		}
	}
	return newest, nil
}

// maxEqual is how many tags of equal versions are compared at most: those with the last names.
const maxEqual = 32

// look peels a ref and returns the time of its commit, which is fetched into the mirror if it is
// not there.
func (c *call) look(ref *Ref) (when time.Time, err error) {
	read := func() error {
		return c.readMirror(c.m.mirror(c.home), func(v *reading) error {
			named, err := parseHash("commit", ref.Hash)
			if err != nil {
				return err
			}
			id, err := v.store.Peel(named)
			if err != nil {
				return err
			}
			if id != named {
				ref.Hash, ref.Tag = id.String(), ref.Hash
			}
			data, err := v.object(id, pack.CommitKind)
			when = pack.CommitTime(data)
			return err
		})
	}
	if err = read(); err == nil || c.exchange.Ctx.Err() != nil {
		return when, err
	}
	want := *ref
	want.Tag = cmp.Or(ref.Tag, ref.Hash) // it may be a tag
	if _, err = c.m.fetch(c, want); err == nil {
		err = read()
	}
	return when, err
}

// choose finds what a Selector stands for among the refs of a remote: one, or those of equal
// versions. A commit is taken as it is: whether the remote has it is seen when it is fetched. The
// error is an *Error of kind BranchNotFound, or Empty where nothing was chosen and there is no
// branch, or the cause of ctx's end.
func choose(ctx context.Context, adv *packp.AdvRefs, sel gitref.Selector) ([]Ref, error) {
	switch {
	case sel.Commit != "":
		return []Ref{pinned(sel)}, nil
	case sel.SemVer != "":
		return newest(ctx, adv, sel)
	}
	for _, want := range []struct{ kind, prefix, name string }{{"ref", "", sel.Name}, {"tag", tagPrefix, sel.Tag},
		{"branch", headPrefix, sel.Branch}} {
		if want.name == "" {
			continue
		}
		ref, ok := advertised(adv, want.prefix+want.name)
		if ok {
			return []Ref{ref}, nil
		}
		e := noRef("there is no "+want.kind+" %q", want.name)
		_, asTag := adv.References[tagPrefix+want.name]
		_, asRef := adv.References[want.name]
		switch {
		case strings.HasPrefix(sel.Name, "refs/pull/"), strings.HasPrefix(sel.Name, "refs/merge-requests/"):
			e.Hint = "it goes when the request is closed or cannot be merged"
		case sel.Branch != "" && asTag:
			e.Hint = "there is a tag of that name"
		case sel.Branch != "" && asRef:
			e.Hint = "it is the full name of a ref that is no branch"
		case sel.Name == "":
			e.Hint = similar(adv, want.prefix, want.name)
		}
		return nil, e
	}
	if ref, ok := advertised(adv, defaultBranch(adv)); ok {
		return []Ref{ref}, nil
	}
	return nil, &Error{Kind: Empty, Err: errors.New("the repository has no branches"), Hint: "push a first commit to one"}
}

// prefixes are those of the refs that choose finds one among; none = any ref may be of use.
func prefixes(sel gitref.Selector) []string {
	switch {
	case sel.Commit != "":
		return nil
	case sel.SemVer != "":
		return []string{tagPrefix + sel.TagPrefix}
	case sel.Name != "":
		return []string{sel.Name}
	case sel.Tag != "":
		return []string{tagPrefix + sel.Tag}
	case sel.Branch != "":
		return []string{headPrefix + sel.Branch}
	}
	return []string{"HEAD", headPrefix + "main", headPrefix + "master"}
}

const (
	headPrefix = "refs/heads/"
	tagPrefix  = "refs/tags/"
)

func noRef(format, name string) *Error {
	return &Error{Kind: BranchNotFound, Err: fmt.Errorf(format, text.Line(name, 100))}
}

// pinned is the Ref of a commit that is asked for by its hash.
func pinned(sel gitref.Selector) Ref {
	ref := Ref{Name: sel.Commit, Hash: sel.Commit, Pinned: true}
	if sel.Branch != "" {
		ref.Name = headPrefix + sel.Branch
	}
	return ref
}

// advertised is a ref by its full name. An annotated tag is the commit that it points to and the
// object that it is.
func advertised(adv *packp.AdvRefs, name string) (Ref, bool) {
	id, ok := adv.References[name]
	if !ok {
		return Ref{}, false
	}
	if commit, annotated := adv.Peeled[name]; annotated {
		return Ref{Name: name, Hash: commit.String(), Tag: id.String()}, true
	}
	return Ref{Name: name, Hash: id.String()}, true
}

// newest lists the tags with the highest version of a range.
func newest(ctx context.Context, adv *packp.AdvRefs, sel gitref.Selector) (refs []Ref, err error) {
	found, err := sel.Newest(func(yield func(string) bool) {
		for name := range adv.References { // a filter may take long over many tags
			if tag, ok := strings.CutPrefix(name, tagPrefix); ok && (ctx.Err() != nil || !yield(tag)) {
				return
			}
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, &Error{Kind: Refused, Err: err}
	}
	for _, tag := range found.Tags {
		ref, _ := advertised(adv, tagPrefix+tag)
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		return refs, nil
	}
	e := noRef("no tag is in %q", sel.String())
	e.Hint = "no tag that prefix and filter leave is a version such as v1.2.3"
	if found.Versions > 0 {
		e.Hint = fmt.Sprintf("the highest of %d versions is %s; pre-releases are in a range that names one, as >=1.0.0-0 does", found.Versions,
			text.Line(found.Highest, 80))
	}
	return nil, e
}

// defaultBranch is the full name of the branch for who names none: the one of the
// remote's HEAD, and where that points to no branch that exists, main, master, or
// the first by name, as Grafana chooses. It is "" where there are no branches.
func defaultBranch(adv *packp.AdvRefs) (first string) {
	for _, symref := range slices.Concat(adv.Capabilities.Get(capability.SymRef), []string{"HEAD:refs/heads/main", "HEAD:refs/heads/master"}) {
		name, ok := strings.CutPrefix(symref, "HEAD:")
		if _, there := adv.References[name]; ok && there {
			return name
		}
	}
	for name := range adv.References {
		if strings.HasPrefix(name, headPrefix) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// similar names up to three branches or tags that somebody who wrote name may have meant, the
// closest first.
func similar(adv *packp.AdvRefs, prefix, name string) string {
	distance := map[string]int{}
	for full := range adv.References {
		if short, ok := strings.CutPrefix(full, prefix); ok {
			distance[text.Line(short, 80)] = text.Distance(strings.ToLower(short), strings.ToLower(name))
		}
	}
	all := slices.SortedFunc(maps.Keys(distance), func(a, b string) int { return cmp.Or(distance[a]-distance[b], strings.Compare(a, b)) })
	all = all[:min(len(all), 3)]
	switch {
	case len(all) == 0:
		return ""
	case distance[all[0]] <= max(2, len(name)/3):
		return "did you mean " + strings.Join(all, " or ") + "?"
	}
	return "there is " + strings.Join(all, ", ")
}

// checkRefName is auth.CheckRefName with the name in its error.
func checkRefName(name string) error {
	if err := auth.CheckRefName(name); err != nil {
		return fmt.Errorf("%q is not a branch name: %w", text.Line(name, 100), err)
	}
	return nil
}
