package git

import (
	"context"
	"fmt"
	"os"
	"strings"

	"limpet/sync/git/push"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// OpenDir opens a directory of plain files that lies below one of others.
func OpenDir(below []string, dir string) (*os.Root, error) { return transport.OpenDir(below, dir) }

// PermitsDir reports whether a directory of plain files may be read: it lies below one of others.
func PermitsDir(below []string, dir string) bool {
	root, err := OpenDir(below, dir)
	if err == nil {
		root.Close()
	}
	return KindOf(err) != Refused
}

// Pushable asks the remote whether it takes a push from these credentials: it has the server begin
// one, and nothing is written. An *Error of kind ReadOnly says that a push is refused; any other
// one says that this cannot be told. A local directory is not asked. It blocks as Resolve does.
func (m *Mirrors) Pushable(ctx context.Context, r Remote) error {
	c, err := m.begin(ctx, "ask for a push", r)
	if err != nil {
		return err
	}
	defer c.exchange.End()
	err = c.exchange.Fail(push.Check(c.exchange))
	if KindOf(err) == Empty { // who pushes to it begins it
		return nil
	}
	return err
}

// Push has a branch of the remote, by its full name, go from the commit old to w; with old "" it is
// made anew. The host compares old with what it has: no commit is lost, and nothing is ever forced.
// Only the server of r.URL is asked, never a fallback. The mirror stays as it is until the next
// Fetch.
//
// It blocks as Fetch does. Of its errors these say that nothing was changed: Overtaken (fetch,
// compose and push again), Declined and ReadOnly (a user has to act), Refused and TooLarge. After
// any other one it may have arrived all the same: see Contains. A directory that another process
// changes meanwhile may have got a part: the error, also Overtaken, has the number of changes.
func (m *Mirrors) Push(ctx context.Context, r Remote, branch, old string, w *NewCommit) error {
	c, err := m.begin(ctx, "push", r)
	if err != nil {
		return err
	}
	defer c.exchange.End()
	u := push.Update{Branch: branch, Objects: w.made, Edits: w.edits}
	u.New, err = parseHash("commit", w.Hash)
	if err == nil && old != "" {
		u.Old, err = parseHash("commit", old)
	}
	if err == nil && (!strings.HasPrefix(branch, headPrefix) || checkRefName(branch) != nil) {
		err = &Error{Kind: Refused, Err: fmt.Errorf("%q is not the full name of a branch", text.Line(branch, 100))}
	}
	if err != nil {
		return c.exchange.Fail(err)
	}
	m.mu.Lock()
	delete(m.listings, c.exchange.Identity()) // a list of refs that is old soon
	m.mu.Unlock()
	return c.exchange.Fail(push.Push(c.exchange, u))
}
