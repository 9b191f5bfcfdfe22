package webhook

import (
	"container/list"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Source of both: Grafana's endpoint.
const (
	requestRate  = 10 // per second and client
	requestBurst = 20
	// maxClients bounds the table of clients. The least recently seen is dropped,
	// which delays no request.
	maxClients = 10_000
)

// clients counts the requests of each client.
type clients struct {
	mu    sync.Mutex // guards what follows
	known map[netip.Addr]*list.Element
	order *list.List // of *client, the last seen first
}

type client struct {
	addr    netip.Addr
	limiter *rate.Limiter
}

func newClients() *clients {
	return &clients{known: map[netip.Addr]*list.Element{}, order: list.New()}
}

// allow counts one request and reports whether it is within the limit.
func (c *clients) allow(addr netip.Addr, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[addr]
	if ok {
		c.order.MoveToFront(at)
	} else {
		if len(c.known) >= maxClients {
			last := c.order.Back()
			delete(c.known, c.order.Remove(last).(*client).addr)
		}
		at = c.order.PushFront(&client{addr, rate.NewLimiter(requestRate, requestBurst)})
		c.known[addr] = at
	}
	return at.Value.(*client).limiter.AllowN(now, 1)
}

// clientOf returns the address that a request is counted under. A header counts only
// as far as trusted proxies have written it: the client is the last untrusted address
// in X-Forwarded-For.
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
	for _, p := range trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// clientNetwork returns the address, or for IPv6 its /64: a client controls all of
// its addresses.
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
