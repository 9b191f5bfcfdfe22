package git

import (
	"context"
	"fmt"
	"io"

	"limpet/sync/git/bundle"
	"limpet/sync/git/pack"
)

// BundleQuery is what a bundle of a mirror is to hold.
type BundleQuery struct {
	Ref   Ref
	Since string // a commit that the reader has; "" = none
	Depth int    // number of commits; 0 = all of the mirror
}

// Bundle writes a Git bundle with the commit of a ref, and the history of it that the mirror has. No server is asked.
// An error is an *Error, after which a part of the bundle may be written.
func (m *Mirrors) Bundle(ctx context.Context, r Remote, q BundleQuery, w io.Writer) error {
	return m.read(ctx, "bundle", r, func(v *reading) (err error) {
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
		if q.Ref.Name == q.Ref.Hash || q.Ref.Name == "" { // of a commit without a branch
			c.Ref = headPrefix + "main"
		}
		if err := checkRefName(c.Ref); err != nil {
			return &Error{Kind: Refused, Err: fmt.Errorf("bundle: %w", err)}
		}
		return bundle.Write(v.ctx, w, v.store, c)
	})
}
