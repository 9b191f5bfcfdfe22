package git

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"limpet/sync/git/bundle"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
)

// BundleQuery is what a bundle of a mirror is to hold.
type BundleQuery struct {
	Ref   Ref
	Since string   // a commit that the reader has; "" = none
	Haves []string // commits of which the reader may have some; the first that the mirror has stands for Since
	Depth int      // number of commits; 0 = all of the mirror
}

// Named returns the Ref under which a selector has found a commit of the mirror, if need be a
// branch before a tag. One that is there without a name gets that of the branch main.
func (m *Mirrors) Named(r Remote, commit string, sel gitref.Selector) Ref {
	refs, _ := pack.ReadRefs(m.dirOf(r)) // without them the commit has no name
	out, want := Ref{Name: headPrefix + "main", Hash: commit}, sel.Name
	switch {
	case sel.Branch != "":
		want = headPrefix + sel.Branch
	case sel.Tag+sel.SemVer != "":
		want = tagPrefix + sel.Tag
	}
	if want != "" && want != tagPrefix {
		out.Name = want // also when it has moved on since
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(refs))) {
		if strings.HasPrefix(name, ownPrefix) || refs[name].String() != commit ||
			want != "" && name != want && (want != tagPrefix || !strings.HasPrefix(name, want)) {
			continue
		}
		if out.Name, out.Tag = name, ""; !refs[tagNote(name)].IsZero() {
			out.Tag = refs[tagNote(name)].String()
		}
	}
	return out
}

// Lacks returns those of some commits that are not in the mirror.
func (m *Mirrors) Lacks(ctx context.Context, r Remote, commits []pack.ID) (missing []pack.ID, err error) {
	err = m.read(ctx, "look for commits", r, func(v *reading) error {
		missing = slices.DeleteFunc(slices.Clone(commits), v.store.Has)
		return nil
	})
	if errors.Is(err, ErrUnknownCommit) { // there is no mirror
		return commits, nil
	}
	return missing, err
}

// Bundle writes a Git bundle with the commit of a ref, and the history of it that the mirror has.
// No server is asked. An error is an *Error, after which a part of the bundle may be written.
func (m *Mirrors) Bundle(ctx context.Context, r Remote, q BundleQuery, w io.Writer) error {
	out := &bundleWriter{Writer: w}
	return m.read(ctx, "bundle", r, func(v *reading) (err error) {
		if out.begun { // it would begin once more in the middle
			return &Error{Kind: Moved, Err: errors.New("the mirror changed while the bundle was written"), Hint: "ask for it again"}
		}
		c := bundle.Content{Ref: q.Ref.Name, Depth: q.Depth}
		for _, id := range []struct {
			text string
			to   *pack.ID
		}{{q.Ref.Hash, &c.Tip}, {q.Ref.Tag, &c.Tag}, {q.Since, &c.Since}} {
			if id.text == "" {
				continue
			}
			if *id.to, err = parseHash("commit", id.text); err != nil {
				return err
			}
		}
		for _, have := range q.Haves {
			if id, ok := pack.ParseID(have); ok && c.Since.IsZero() && id != c.Tip && v.store.Has(id) {
				c.Since = id
			}
		}
		return bundle.Write(v.ctx, out, v.store, c)
	})
}

// bundleWriter notes whether a part of a bundle is written.
type bundleWriter struct {
	io.Writer
	begun bool
}

func (w *bundleWriter) Write(p []byte) (int, error) {
	w.begun = true
	return w.Writer.Write(p)
}

// runChain is run, which brings what a bundle builds on from the others of its directory first.
func (f *fetch) runChain() error {
	err := f.run()
	if KindOf(err) != CommitNotFound || len(f.exchange.Older) == 0 {
		return err
	}
	id, tag := f.id, f.tag
	left := slices.Clone(f.exchange.Older)
	if old, none := f.mirror.use(f.exchange.Limits.ObjectBytes); none == nil {
		if !f.mirror.isDamaged() {
			left = slices.DeleteFunc(left, old.store.Has)
		}
		f.mirror.release(old)
	}
	for KindOf(err) == CommitNotFound {
		i := slices.IndexFunc(left, func(older pack.ID) bool { f.id, f.tag = older, pack.ID{}; return f.run() == nil })
		if f.id, f.tag = id, tag; i < 0 || f.exchange.Ctx.Err() != nil {
			break
		}
		left = slices.Delete(left, i, i+1)
		err = f.run()
	}
	return err
}
