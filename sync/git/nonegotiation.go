package git

import (
	"errors"
	"time"

	"limpet/sync/git/pack"
)

// Some servers give out a whole commit and no difference to what is here: Azure
// DevOps and CodeCommit answer with something that is not what the protocol says
// once haves come into play. From a host that did so, one commit is fetched as if
// nothing were here, and so are the next for some time. It still goes into the
// mirror that there is, so that older commits stay.

// dearFor is how long a host is not asked for a difference any more: what was seen
// may have been the network.
const dearFor = time.Hour

// dear says that the host of the call is known to give out no difference.
func (c *call) dear() bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return time.Now().Before(c.m.dear[c.addr.HostPort()])
}

// alone fetches the commit without regard to what is here. why is what became of
// the difference, nil when none was asked for.
func (f *fetch) alone(old *handle, shallows []pack.ID, why error) error {
	f.problem.Store(nil)
	err := f.receive(f.mirror.dir, old, want{id: f.wants(), depth: max(f.depth, 1), ends: shallows}, f.limits.PackBytes)
	if err != nil || why == nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.dear[f.addr.HostPort()] = time.Now().Add(dearFor)
	f.m.log.Warn("host gives out no difference, for a while each fetch costs a whole commit", "host", f.addr.HostPort(), "err", f.fail(why))
	return nil
}

// undone says that a server has answered a want with what is no answer to it.
func (f *fetch) undone(err error) bool {
	if err == nil || f.ctx.Err() != nil || errors.Is(err, pack.ErrIncomplete) || errors.Is(err, pack.ErrDamaged) {
		return false
	}
	return KindOf(f.fail(err)) == Protocol
}
