package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"limpet/state/atomicfile"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// How a mirror is filled. The first fetch asks for one commit without history, later ones for all
// that is new: the mirror says which commits it has and where its history ends. Where that would be
// a whole history (the branch was rewritten, or is another one), one commit without history is
// asked for again, still as a difference to what is here. What cannot be made whole that way is
// cloned afresh beside the old mirror and takes its place when it is complete, so that a lost
// network never loses a mirror.

// leastBudget is what an incremental fetch may always receive before it is taken for a whole
// history. Unit: bytes.
const leastBudget = 1 << 20

// Bounds of a mirror; beyond them the next fetch starts it afresh.
const (
	growthFactor = 4         // of the first pack
	growthFree   = 256 << 20 // bytes that are always allowed on top
	maxShallows  = 256       // ends of history: each costs 50 bytes in every request
)

// Haves that are offered at most: the old tip and commits below it, and all with the tips of other
// refs, of which fewer may help where the old tip is known.
const (
	maxBelow     = 64
	maxHaves     = 32
	maxOtherTips = 4
)

// Fetch brings the commit of ref into the mirror, with all its files, and the tag object if it has
// one. When they are there already, no request is made. Otherwise it blocks until the commit is
// durable on disk, the end of ctx, Options.Stall of silence, or Options.Whole, which all servers
// share. One fetch runs at a time per mirror. Every error is an *Error, after which the mirror is
// sound and has at least what it had.
//
// What a fallback announced is fetched from there; an error of kind Moved says to resolve again.
// Anything else is fetched from any server that answers, since the hash says what it is.
func (m *Mirrors) Fetch(ctx context.Context, r Remote, ref Ref) (stats Stats, err error) {
	f := &failover{m: m, op: "fetch", remote: r, do: func(c *call) (err error) {
		stats, err = m.fetch(c, ref)
		return err
	}}
	r.Meter.Start(transfer.Queued, 0)
	defer r.Meter.End()
	server := r.server(ref.Via)
	if server < 0 {
		return stats, &Error{Kind: Moved, Op: "fetch", URL: ref.Via.URL, Err: errors.New("it is no mirror of the repository any more"),
			Hint: "resolve again"}
	}
	if server == 0 || ref.Pinned {
		_, err = f.run(ctx)
		return stats, err
	}
	err = f.ask(ctx, server, 1+len(r.Fallbacks))
	if unreachable(err) && ctx.Err() == nil {
		m.trip(r.serverURL(server), err)
	} else if ref.Via.Base == "" || KindOf(err) != Refused {
		return stats, err
	}
	e, _ := errors.AsType[*Error](err)
	moved := *e
	moved.Kind = Moved
	return stats, &moved
}

// fetch is Fetch from one server. The error is for call.fail.
func (m *Mirrors) fetch(c *call, ref Ref) (stats Stats, err error) {
	id, err := parseHash("commit", ref.Hash)
	if err != nil {
		return Stats{}, err
	}
	var tag pack.ID
	if ref.Tag != "" {
		if tag, err = parseHash("tag", ref.Tag); err != nil {
			return Stats{}, err
		}
	}
	name := ref.Name
	if name == ref.Hash {
		name = ""
	} else if err := checkRefName(name); err != nil || !strings.HasPrefix(name, "refs/") {
		return Stats{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the full name of a ref", text.Line(name, 100))}
	}
	f := c.newFetch(id)
	f.tag = tag
	f.name = name
	mi := f.mirror
	defer func() {
		stats.Bytes, stats.Requests, stats.Elapsed = c.exchange.Cost()
		m.received.Add(stats.Bytes)
	}()
	if err := mi.lock(c.exchange.Ctx); err != nil {
		return stats, err
	}
	defer mi.unlock()
	switch {
	case ref.Pinned:
		err = f.fetchPinned()
	case c.fallback:
		err = f.fromFallback(ref)
	default:
		err = f.runChain()
	}
	if err == nil {
		ref.Via = Via{}
		mi.mu.Lock()
		mi.last = ref
		mi.mu.Unlock()
	}
	return f.stats, err
}

// fetch is one Fetch that has the mirror's turn.
type fetch struct {
	call     *call
	exchange *transport.Call // of call
	mirror   *mirror
	id       pack.ID
	tag      pack.ID // the annotated tag that points to id; zero = none
	name     string  // full name of the ref, "" for a bare commit
	depth    int     // of the history that is wanted; 0 = what costs least
	stats    Stats
	first    int64 // size of the mirror's first pack
}

// newFetch returns a fetch of a commit into the mirror of a call.
func (c *call) newFetch(id pack.ID) *fetch {
	return &fetch{call: c, exchange: c.exchange, mirror: c.m.mirror(c.home), id: id}
}

func (f *fetch) run() error {
	old, err := f.mirror.use(f.exchange.Limits.ObjectBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.stats.Full = true
		return f.clone()
	case errors.Is(err, pack.ErrDamaged):
		return f.rebuild(err)
	case err != nil:
		return err
	}
	defer f.mirror.release(old)
	if f.mirror.isDamaged() {
		return f.rebuild(pack.ErrDamaged)
	}
	if err := f.peel(old.store); err != nil {
		return f.rebuild(err)
	}
	if f.depth == 0 && old.store.Has(f.id) && (f.tag.IsZero() || old.store.Has(f.tag)) {
		if f.name == "" {
			return nil
		}
		refs, err := pack.ReadRefs(f.mirror.dir)
		if err != nil {
			return f.rebuild(err)
		}
		if f.setRef(refs) {
			return pack.WriteRefs(f.mirror.dir, refs)
		}
		return nil
	}
	refs, err := pack.ReadRefs(f.mirror.dir)
	shallows, serr := readShallow(f.mirror.dir)
	n, nerr := readNote(f.mirror.dir)
	if err := errors.Join(err, serr, nerr); err != nil {
		return f.rebuild(err)
	}
	if f.first = n.First; !f.call.fallback && (old.store.Bytes() > growthFactor*n.First+growthFree || len(shallows) > maxShallows) {
		if err := f.rebuild(nil); KindOf(err) != CommitNotFound { // else a bundle builds on what is here
			return err
		}
	}
	err = f.incremental(old.store, refs, shallows)
	if errors.Is(err, pack.ErrIncomplete) || errors.Is(err, pack.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return f.rebuild(err)
	}
	if err == nil && len(old.store.Packs) >= pack.MaxPacks {
		if err := pack.Consolidate(f.exchange.Ctx, f.mirror.dir); err != nil { // the packs stay as they are
			f.call.m.log.Warn("cannot merge packs", "url", f.exchange.URL(), "err", err)
		}
		f.mirror.changed()
	}
	return err
}

// peel finds the commit of a tag of which the server does not tell it, once the tag is there.
func (f *fetch) peel(s *pack.Store) (err error) {
	if f.id != f.tag || !s.Has(f.tag) {
		return nil
	}
	if f.id, err = s.Peel(f.tag); f.id == f.tag { // it is no tag
		f.tag = pack.ID{}
	}
	return err
}

// wants is what the server is asked for: a tag brings its commit with it, and is in the refs of the
// server.
func (f *fetch) wants() pack.ID {
	if f.tag.IsZero() {
		return f.id
	}
	return f.tag
}

// ownPrefix begins the names of refs that no server has.
const ownPrefix = "refs/limpet/"

// tagNote is the name under which a mirror keeps an annotated tag, the commit of which
// stands under the name of the tag.
func tagNote(name string) string { return ownPrefix + "tags/" + name }

// setRef puts what was fetched under its name. It reports whether that changes refs.
func (f *fetch) setRef(refs map[string]pack.ID) bool {
	if f.name == "" || refs[f.name] == f.id && refs[tagNote(f.name)] == f.tag {
		return false
	}
	refs[f.name] = f.id
	if delete(refs, tagNote(f.name)); !f.tag.IsZero() {
		refs[tagNote(f.name)] = f.tag
	}
	return true
}

// incremental fetches what is new against the mirror.
func (f *fetch) incremental(old *pack.Store, refs map[string]pack.ID, shallows []pack.ID) error {
	w := transport.Want{ID: f.wants(), Shallows: shallows, Haves: f.haves(old, refs), Depth: f.depth}
	if _, known := refs[f.name]; !known {
		w.Depth = max(w.Depth, 1)
	}
	if len(w.Haves) == 0 {
		return fmt.Errorf("%w: it has no commit to build on", pack.ErrDamaged)
	}
	budget := f.exchange.Limits.PackBytes
	if w.Depth == 0 {
		budget = min(budget, max(leastBudget, 2*f.first))
	}
	err := f.receive(f.mirror.dir, old, w, budget)
	if large, ok := errors.AsType[*TooLargeError](err); ok && w.Depth == 0 && large.What == transport.PackBudget &&
		budget < f.exchange.Limits.PackBytes {
		w.Depth = 1
		err = f.receive(f.mirror.dir, old, w, f.exchange.Limits.PackBytes)
	}
	if err == nil || f.exchange.Ctx.Err() != nil || errors.Is(err, pack.ErrIncomplete) || errors.Is(err, pack.ErrDamaged) ||
		KindOf(f.exchange.Fail(err)) != Protocol {
		return err
	}
	// Azure DevOps and CodeCommit answer with something that is not what the protocol says
	// once haves come into play: one commit is fetched as if nothing were here. It still goes
	// into the mirror that there is, so that older commits stay.
	f.call.m.log.Warn("server does not negotiate; fetching the full commit", "host", f.exchange.Addr.HostPort(), "err", f.exchange.Fail(err))
	f.exchange.ClearProblem()
	return f.receive(f.mirror.dir, old, transport.Want{ID: f.wants(), Depth: max(f.depth, 1), Ends: shallows}, f.exchange.Limits.PackBytes)
}

// haves lists commits of the mirror that the server may know: the old tip of the ref and some below
// it, ever farther apart, and tips of other refs. A server with multi_ack answers with a line for
// each one that it knows.
func (f *fetch) haves(s *pack.Store, refs map[string]pack.ID) (out []pack.ID) {
	met, next := 0, 0
	s.History(f.exchange.Ctx, refs[f.name], func(id pack.ID) bool {
		if met == maxBelow || !s.Has(id) {
			return false
		}
		if met == next || f.exchange.Addr.Local() || f.exchange.Addr.Upstream() { // which send no such lines
			out = append(out, id)
			next = 4*met + 3
		}
		met++
		return true
	})
	most := maxHaves
	if len(out) > 0 {
		most = len(out) + maxOtherTips
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		id := refs[name]
		if len(out) < most && s.Has(id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// rebuild throws the mirror away and clones afresh. why is nil when it only has
// grown too large. For a fallback only a damaged mirror is thrown away.
func (f *fetch) rebuild(why error) error {
	if f.call.fallback && errors.Is(why, pack.ErrIncomplete) {
		return why
	}
	if f.exchange.Ctx.Err() != nil {
		return context.Cause(f.exchange.Ctx)
	}
	f.call.m.log.Warn("rebuilding mirror", "url", f.exchange.URL(), "err", why)
	f.stats.Full, f.stats.Rebuilt = true, true
	return f.clone()
}

// clone clones at depth 1 beside the mirror, and puts the clone in its place.
func (f *fetch) clone() error {
	if err := os.MkdirAll(f.call.m.dir, 0o700); err != nil { // it may have been deleted
		return err
	}
	build, err := os.MkdirTemp(f.call.m.dir, buildPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(build)
	dir := filepath.Join(build, "mirror")
	head := "refs/heads/main"
	if strings.HasPrefix(f.name, headPrefix) {
		head = f.name
	}
	if err := makeBare(dir, head); err != nil {
		return err
	}
	if err := f.receive(dir, nil, transport.Want{ID: f.wants(), Depth: max(f.depth, 1)}, f.exchange.Limits.PackBytes); err != nil {
		if errors.Is(err, pack.ErrIncomplete) {
			err = fmt.Errorf("%w: %w", pack.ErrBadPack, err)
		}
		return err
	}
	if err := writeNote(dir, note{Format: layoutFormat, URL: f.call.home.String(), First: f.first}); err != nil {
		return err
	}
	// The new mirror takes the place of the old one.
	root := filepath.Dir(f.mirror.dir)
	old, err := os.MkdirTemp(root, trashPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(old)
	if err := os.Rename(f.mirror.dir, filepath.Join(old, "mirror")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir, f.mirror.dir); err != nil {
		return errors.Join(err, os.Rename(filepath.Join(old, "mirror"), f.mirror.dir))
	}
	f.mirror.changed()
	return atomicfile.SyncDir(root)
}
