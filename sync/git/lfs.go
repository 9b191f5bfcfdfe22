package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"limpet/sync/git/pack"

	"golang.org/x/sync/errgroup"
)

// Files that Git LFS keeps. A tree has a pointer in their place; the host says in an
// answer of its batch API where each content is, which may be on another host. What
// comes is counted, checked against the pointer, and kept as a file in a cache that
// may be deleted: nothing of it is held in memory.
//
// The host of the repository gets the credentials of the repository. Another host gets
// what the answer says for it, and nothing else. A fallback is asked first where
// it announced the commit, and else while the host is unreachable: the pointer says
// what comes.

// Large brings the contents that one pull needs. It is safe for concurrent use; Close
// it, so that its files may leave the cache.
type Large struct {
	m      *Mirrors
	remote Remote
	ref    Ref
	turn   chan struct{} // capacity 1: full while something is fetched
	spent  *int64        // bytes that were asked for; of whoever has the turn

	mu    sync.Mutex       // guards all below; no network under it
	known map[string]error // by oid; nil = it is in the cache, and pinned
	store *lfsStore
}

// largeAtOnce is how many contents are downloaded at a time.
const largeAtOnce = 2

// largeOp is what errors say was tried.
const largeOp = "fetch from Git LFS"

// Large begins a pull's share of what Git LFS keeps for the files of a commit. It
// makes no request.
func (m *Mirrors) Large(r Remote, ref Ref) *Large {
	return &Large{m: m, remote: r, ref: ref, turn: make(chan struct{}, 1), spent: new(int64), known: map[string]error{}}
}

// Within is the share of a submodule at home. What it takes counts with what l takes,
// and they fetch in turn. Close it too.
func (l *Large) Within(home string, at Home) *Large {
	r := l.remote
	r.URL, r.Fallbacks, r.LastSynced = home, at.fallbacks, ""
	return &Large{m: l.m, remote: r, ref: Ref{Hash: at.Commit}, turn: l.turn, spent: l.spent, known: map[string]error{}}
}

// Close lets go of the files.
func (l *Large) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return
	}
	for oid, err := range l.known {
		if err == nil {
			l.m.unpin(l.path(oid))
		}
	}
	clear(l.known)
	l.m.trimLarge(largeCache)
}

// Fetch brings what the pointers stand for, in as few requests as there can be. It
// blocks until all is there or cannot be had; Open tells which. A second call
// asks for nothing that the first one had.
func (l *Large) Fetch(ctx context.Context, pointers []Pointer) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return
	}
	var want []Pointer
	seen := make(map[string]bool, len(pointers))
	for _, p := range pointers {
		if !seen[p.OID] && l.admit(ctx, p) {
			want = append(want, p)
		}
		seen[p.OID] = true
	}
	for len(want) > 0 && ctx.Err() == nil {
		n := min(batchSize, len(want))
		l.fetchBatch(ctx, want[:n])
		want = want[n:]
	}
}

// Open opens the content of a pointer, which it fetches if nobody has. Every error is
// an *Error, also that of a fetch before.
func (l *Large) Open(ctx context.Context, p Pointer) (io.ReadCloser, error) {
	l.Fetch(ctx, []Pointer{p})
	l.mu.Lock()
	err, known := l.known[p.OID]
	l.mu.Unlock()
	if err == nil && known {
		f, oerr := os.Open(l.path(p.OID))
		if oerr == nil {
			return f, nil
		}
		err = oerr
	}
	if !known {
		err = context.Cause(ctx)
	}
	return nil, l.fail(ctx, err)
}

// Fits says whether a content may be fetched at all. The error is a *TooLargeError.
func (l *Large) Fits(p Pointer) error {
	if most := l.remote.Limits.Or(l.m.options.Limits).LargeObject; p.Size > most {
		return &TooLargeError{What: "file in Git LFS", Size: p.Size, Limit: most}
	}
	return nil
}

// admit says whether p has to be fetched, and settles it if not.
func (l *Large) admit(ctx context.Context, p Pointer) bool {
	l.mu.Lock()
	_, known := l.known[p.OID]
	l.mu.Unlock()
	if known {
		return false
	}
	most := l.remote.Limits.Or(l.m.options.Limits).LargeBytes
	if err := l.Fits(p); err != nil {
		l.settle(p, l.fail(ctx, err))
		return false
	}
	switch {
	case l.m.pinCached(ctx, l.path(p.OID), p):
		l.settle(p, nil)
		return false
	case *l.spent+p.Size > most:
		l.settle(p, l.fail(ctx, &TooLargeError{What: "what a pull takes from Git LFS", Size: *l.spent + p.Size, Limit: most}))
		return false
	}
	*l.spent += p.Size
	return true
}

// settle notes what became of p. What failed with the context is not known.
func (l *Large) settle(p Pointer, err error) {
	if KindOf(err) == Cancelled {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[p.OID] = err
}

// errStale says that the place of a content is not good any more: it is asked for
// once more.
var errStale = errors.New("what the answer said of its place is not good any more")

// fetchBatch settles every one of the pointers.
func (l *Large) fetchBatch(ctx context.Context, want []Pointer) {
	for _, last := range []bool{false, true} {
		places, err := l.places(ctx, want)
		if err != nil {
			for _, p := range want {
				l.settle(p, err)
			}
			return
		}
		var g errgroup.Group
		g.SetLimit(largeAtOnce)
		errs := make([]error, len(want))
		for i, p := range want {
			g.Go(func() error {
				errs[i] = places.errs[p.OID]
				if errs[i] == nil {
					errs[i] = l.download(ctx, p, places.at[p.OID])
				}
				return nil
			})
		}
		g.Wait()
		var again []Pointer
		for i, p := range want {
			if errors.Is(errs[i], errStale) && !last {
				again = append(again, p)
				continue
			}
			l.settle(p, errs[i])
		}
		if want = again; len(want) == 0 {
			return
		}
	}
}

// path is where the content of an oid is kept: apart for each remote, because who
// knows the name of a content may not be one who may read it.
func (l *Large) path(oid string) string { return l.m.largePath(l.remote.URL, oid) }

// fail tells an error as those of a call are told.
func (l *Large) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	c, berr := l.m.begin(ctx, largeOp, l.remote)
	if berr != nil {
		return berr
	}
	defer c.end()
	return c.fail(err)
}

// lfsConfig is what the .lfsconfig of the commit says of the server; "" = nothing.
func (l *Large) lfsConfig(ctx context.Context) (string, error) {
	data, err := l.m.rootFile(ctx, l.remote, l.ref.Hash, ".lfsconfig")
	if err != nil || data == nil {
		return "", err
	}
	cfg, err := parseConfig(data)
	if err != nil {
		return "", &Error{Kind: Refused, Err: fmt.Errorf(".lfsconfig of the repository: %w", err)}
	}
	return cfg.Section("lfs").Option("url"), nil
}

// rootFile reads a file of configuration in the root of a commit; nil for none.
func (m *Mirrors) rootFile(ctx context.Context, r Remote, commit, name string) ([]byte, error) {
	var data []byte
	err := m.read(ctx, "read "+name, r, func(v *reading) error {
		_, c, err := v.commit(commit)
		if err != nil {
			return err
		}
		entries, _, err := v.directory(c.Tree, "")
		if err != nil {
			return err
		}
		data = nil
		for _, e := range entries {
			if e.Name == name && e.Mode != pack.ModeTree {
				data, err = v.store.ReadKind(e.ID, pack.BlobKind, min(maxConfig, v.limits.ObjectBytes))
			}
		}
		return err
	})
	return data, err
}
