package git

import (
	"context"
	"fmt"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/push"
	"limpet/sync/text"
)

// Pushable asks the remote whether it takes a push from these credentials: it has
// the server begin one and leaves it at that, so nothing is written. It costs one
// request with the list of refs, as Resolve does. An *Error of kind ReadOnly says
// that a push is refused. Any other error, of a network or of a server that has
// no such service, says that this cannot be told. A local directory is not asked.
// It blocks as Resolve does.
func (m *Mirrors) Pushable(ctx context.Context, r Remote) error {
	c, err := m.begin(ctx, "ask for a push", r)
	if err != nil {
		return err
	}
	defer c.End()
	err = c.Fail(push.Check(c.Call))
	if KindOf(err) == Empty { // who pushes to it begins it
		return nil
	}
	return err
}

// Push has a branch of the remote, by its full name, go from the commit old to w; with
// old "" it is made anew. That is one request after the list of refs, and the host
// compares old with what it has: no commit is lost, and nothing is ever forced.
// Only the server of r.URL is asked, never a fallback. A local directory is written
// to in its place. The mirror stays as it is until the next Fetch.
//
// It blocks as Fetch does. Of its errors these say that nothing was changed: Overtaken
// (fetch, compose and push again), Declined and ReadOnly (a user has to act), Refused
// and TooLarge. After any other one it may have arrived all the same: see Contains.
func (m *Mirrors) Push(ctx context.Context, r Remote, branch, old string, w *Written) error {
	c, err := m.begin(ctx, "push", r)
	if err != nil {
		return err
	}
	defer c.End()
	u := push.Update{Branch: branch, Objects: w.made}
	var known bool
	if u.New, known = pack.ParseID(w.Hash); !known || !strings.HasPrefix(branch, headPrefix) || checkRefName(branch) != nil {
		return c.Fail(&Error{Kind: Refused, Err: fmt.Errorf("%q is not the full name of a branch", text.Line(branch, 100))})
	}
	if u.Old, known = pack.ParseID(old); !known && old != "" {
		return c.Fail(&Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", text.Line(old, 60))})
	}
	m.mu.Lock()
	delete(m.listings, c.Identity()) // a list of refs that is old soon
	m.mu.Unlock()
	return c.Fail(push.Push(c.Call, u))
}
