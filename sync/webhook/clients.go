package webhook

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Source of both: Grafana's endpoint.
const (
	requestRate  = 10 // failures per second and client
	requestBurst = 20
	maxClients   = 10_000 // the least recently seen is dropped, which delays no request
)

// clients are the limits of the clients by their address.
type clients struct{ *lru.Cache }

func newClients() clients { return clients{lru.New(maxClients)} }

// allow counts one failure and reports whether it is within the limit.
func (c clients) allow(addr netip.Addr, now time.Time) bool {
	limiter, ok := c.Get(addr)
	if !ok {
		limiter = rate.NewLimiter(requestRate, requestBurst)
		c.Add(addr, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}

// clientOf returns the address that a request is counted under. A header counts only as far as
// trusted proxies have written it: the client is the last untrusted address in X-Forwarded-For.
func clientOf(req *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, _ := netip.ParseAddrPort(req.RemoteAddr)
	at := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(req.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(at, trusted); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		at = hop.Unmap()
	}
	return clientNetwork(at)
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// clientNetwork returns the address, or for IPv6 its /64: a client controls all of its addresses.
func clientNetwork(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	p, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return p.Addr()
}
