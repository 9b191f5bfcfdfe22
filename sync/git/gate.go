package git

import (
	"errors"
	"time"
)

// longestGate bounds for how long a host may have itself left alone. A person who
// looks into it should not have to wait for a day.
const longestGate = time.Hour

// gate is for whom a host counts requests.
func (c *call) gate() string { return c.addr.HostPort() + " " + c.remote.Creds.Fingerprint() }

// close has nobody ask the host with these credentials for a while: it has said so,
// and each repository there would only be told again.
func (c *call) close(wait time.Duration) {
	if wait <= 0 {
		return
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	now := time.Now()
	for k, until := range c.m.gates {
		if until.Before(now) {
			delete(c.m.gates, k)
		}
	}
	c.m.gates[c.gate()] = now.Add(min(wait, longestGate))
}

// gated says that the host is not to be asked now.
func (c *call) gated() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	wait := time.Until(c.m.gates[c.gate()])
	if wait <= 0 {
		return nil
	}
	return &Error{Kind: Throttled, Err: errors.New("it gets too many requests and has asked for a rest"), Hint: "it is asked again later", RetryAfter: wait}
}
