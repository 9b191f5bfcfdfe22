package netx

import (
	"net/url"
	"time"
)

// Proofs carry a time, which a host compares with its own within minutes. The clock of a small
// board may be years off; that of the host is in the header of each of its answers, refusals too.

// SetClock notes the time at a host.
func (c *Client) SetClock(host string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.skews == nil || len(c.skews) >= maxHosts {
		c.skews = map[string]time.Duration{}
	}
	c.skews[host] = time.Until(at)
}

// Clock returns the time by the clock of the host of a URL; while that is unknown, by c.Now.
func (c *Client) Clock(of string) time.Time {
	host := ""
	if u, err := url.Parse(of); err == nil {
		host = u.Host
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if skew, known := c.skews[host]; known || c.Now == nil {
		return time.Now().Add(skew)
	}
	return c.Now()
}

// InTime calls ask, which sends a proof that is signed at a time to the host of a URL,
// and once more when the host refuses it and its answer shows that the time was wrong.
func (c *Client) InTime(to string, ask func(now time.Time) error) error {
	now, began := c.Clock(to), time.Now()
	err := ask(now)
	kind := KindOf(err)
	refused := kind == Unauthorized || kind == Forbidden || kind == Refused
	if again := c.Clock(to); refused && again.Add(-time.Since(began)).Sub(now).Abs() > minSkew {
		return ask(again)
	}
	return err
}
