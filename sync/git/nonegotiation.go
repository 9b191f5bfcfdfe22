package git

import (
	"errors"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// Some servers give out a whole commit and no difference to what is here: Azure
// DevOps and CodeCommit answer with something that is not what the protocol says
// once haves come into play. From a host that did so, one commit is fetched as if
// nothing were here, and so are the next for some time. It still goes into the
// mirror that there is, so that older commits stay.

// noNegotiationFor is how long a host is not asked for a difference any more: what was seen
// may have been the network.
const noNegotiationFor = time.Hour

// noNegotiation reports whether the host failed incremental fetches within the last hour.
func (c *call) noNegotiation() bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return time.Now().Before(c.m.noNegotiation[c.Addr.HostPort()])
}

// fetchFull fetches the commit without regard to what is here. why is what became of
// the difference, nil when none was asked for.
func (f *fetch) fetchFull(old *handle, shallows []pack.ID, why error) error {
	f.ClearProblem()
	err := f.receive(f.mirror.dir, old, transport.Want{ID: f.wants(), Depth: max(f.depth, 1), Ends: shallows}, f.Limits.PackBytes)
	if err != nil || why == nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.noNegotiation[f.Addr.HostPort()] = time.Now().Add(noNegotiationFor)
	f.m.log.Warn("server does not negotiate; fetching full commits for 1h", "host", f.Addr.HostPort(), "err", f.Fail(why))
	return nil
}

// isProtocolError reports that a server has answered a want with what is no answer to it.
func (f *fetch) isProtocolError(err error) bool {
	if err == nil || f.Ctx.Err() != nil || errors.Is(err, pack.ErrIncomplete) || errors.Is(err, pack.ErrDamaged) {
		return false
	}
	return KindOf(f.Fail(err)) == Protocol
}
