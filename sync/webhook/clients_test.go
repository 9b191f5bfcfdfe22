package webhook

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

func TestClientOf(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	tests := []struct {
		peer    string
		forward []string
		trusted []netip.Prefix
		want    string
	}{
		{peer: "203.0.113.7:4711", want: "203.0.113.7"},
		{peer: "203.0.113.7:4711", forward: []string{"198.51.100.1"}, trusted: trusted, want: "203.0.113.7"},
		{peer: "10.1.1.1:4711", forward: []string{"198.51.100.1"}, want: "10.1.1.1"},
		{peer: "10.1.1.1:4711", forward: []string{"198.51.100.1"}, trusted: trusted, want: "198.51.100.1"},
		{peer: "10.1.1.1:4711", forward: []string{"1.2.3.4, 198.51.100.1, 10.2.2.2"}, trusted: trusted, want: "198.51.100.1"},
		{peer: "10.1.1.1:4711", forward: []string{"1.2.3.4", "198.51.100.1"}, trusted: trusted, want: "198.51.100.1"},
		{peer: "10.1.1.1:4711", forward: []string{"198.51.100.1, unknown"}, trusted: trusted, want: "10.1.1.1"},
		{peer: "10.1.1.1:4711", forward: []string{"10.2.2.2"}, trusted: trusted, want: "10.2.2.2"},
		{peer: "10.1.1.1:4711", trusted: trusted, want: "10.1.1.1"},
		{peer: "[::ffff:203.0.113.7]:4711", want: "203.0.113.7"},
		{peer: "[2001:db8:1:2:3:4:5:6]:4711", want: "2001:db8:1:2::"},
		{peer: "[::1]:4711", forward: []string{"2001:db8:1:2:ffff::1"}, trusted: trusted, want: "2001:db8:1:2::"},
	}
	for _, tt := range tests {
		req := &http.Request{RemoteAddr: tt.peer, Header: http.Header{"X-Forwarded-For": tt.forward}}
		if got := clientOf(req, tt.trusted).String(); got != tt.want {
			t.Errorf("%s by way of %q: %s, want %s", tt.peer, tt.forward, got, tt.want)
		}
	}
}

func FuzzClientOf(f *testing.F) {
	f.Add("10.1.1.1:80", "1.2.3.4, x,10.0.0.1")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	f.Fuzz(func(t *testing.T, peer, forward string) {
		at := clientOf(&http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {forward}}}, trusted)
		from, err := netip.ParseAddrPort(peer)
		if err == nil && !isTrusted(from.Addr().Unmap(), trusted) && at != clientNetwork(from.Addr().Unmap()) {
			t.Errorf("%s says that it is %s, and is believed", peer, at)
		}
	})
}

func TestClientsLimit(t *testing.T) {
	t.Parallel()
	c, now := newClients(), time.Now()
	addr := netip.MustParseAddr("203.0.113.7")
	passed := func(d time.Duration) (n int) {
		for range 100 {
			if c.allow(addr, now.Add(d)) {
				n++
			}
		}
		return n
	}
	if burst, second := passed(0), passed(time.Second); burst != requestBurst || second != requestRate {
		t.Errorf("%d at once and %d in a second, want %d and %d", burst, second, requestBurst, requestRate)
	}
	for n := range 3 * maxClients {
		other := netip.MustParseAddr(fmt.Sprintf("198.%d.%d.%d", n>>16, n>>8&255, n&255))
		if !c.allow(other, now) {
			t.Fatalf("%s is held up by others", other)
		}
	}
	if c.Len() != maxClients {
		t.Errorf("%d clients are known", c.Len())
	}
}
