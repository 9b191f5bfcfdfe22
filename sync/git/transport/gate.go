package transport

import (
	"context"
	"errors"
	"maps"
	"time"

	"limpet/sync/git/giterr"
)

// longestGate bounds for how long a host may have itself left alone. A person who
// looks into it should not have to wait for a day.
const longestGate = time.Hour

// identity is for whom a host counts requests.
func (c *Call) identity() string { return c.Addr.HostPort() + " " + c.Target.Creds.Fingerprint() }

// throttle has nobody ask the host with these credentials for a while: it has said so,
// and each repository there would only be told again.
func (c *Call) throttle(wait time.Duration) {
	if wait <= 0 {
		return
	}
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.client.throttledUntil, func(_ string, until time.Time) bool { return until.Before(now) })
	c.client.throttledUntil[c.identity()] = now.Add(min(wait, longestGate))
}

// Visit waits until fewer than Options.PerHost requests run at the call's host, unless
// that is not to be asked now. The returned function ends the visit when all was read:
// what a slow disk then does with a pack is no silence of the server.
func (c *Call) Visit() (leave func(), err error) {
	c.client.mu.Lock()
	wait := time.Until(c.client.throttledUntil[c.identity()])
	c.client.mu.Unlock()
	if wait > 0 {
		return nil, &giterr.Error{Kind: giterr.Throttled, Err: errors.New("it gets too many requests and has asked for a rest"),
			Hint: "it is asked again later", RetryAfter: wait}
	}
	return c.visit(c.Addr.HostPort())
}

// visit is visit for another host.
func (c *Call) visit(host string) (leave func(), err error) {
	c.client.mu.Lock()
	tokens, ok := c.client.hosts[host]
	if !ok {
		tokens = make(chan struct{}, c.client.Options.PerHost)
		c.client.hosts[host] = tokens
	}
	c.client.mu.Unlock()
	select {
	case tokens <- struct{}{}:
		c.startClock()
		return func() {
			c.stopWatchdog()
			<-tokens
		}, nil
	case <-c.Ctx.Done():
		return nil, context.Cause(c.Ctx)
	}
}
