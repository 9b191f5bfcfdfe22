// Package netx connects this process to Git hosts, their APIs and token providers: it
// decides which addresses and which proxy to use.
//
// Authors of a Repository or a Secret name hosts, and the agent runs inside a network. A [Guard]
// therefore checks each address when it is dialled, after name resolution: a name that resolves to
// another address a moment later gains nothing. A proxy resolves names itself; there the Guard
// checks the address of the proxy, and the name of the target.
package netx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// DialTimeout bounds a connect to a host or its proxy.
const DialTimeout = 15 * time.Second

// Guard checks addresses. The zero Guard allows all but those that are never a Git
// host: link-local addresses, metadata servers of clouds, multicast.
type Guard struct {
	narrow  bool           // private networks are closed but for
	private []netip.Prefix // these
}

// Loopback reports whether a host is this one by its name or address.
func Loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// PublicOnly allows no private network.
var PublicOnly = Guard{narrow: true}

// ErrForbidden is wrapped when a Guard refuses an address.
var ErrForbidden = errors.New("forbidden address")

// network is a range of addresses and its purpose.
type network struct {
	prefix netip.Prefix
	why    string
}

// never lists ranges without Git hosts. The sources of the single addresses are the
// vendors' documents of their metadata servers.
var never = networks(
	"0.0.0.0/8", "stands for this host",
	"169.254.0.0/16", "is link-local, where clouds keep their metadata",
	"100.100.100.200/32", "is a metadata server",
	"168.63.129.16/32", "is a metadata server",
	"192.0.0.192/32", "is a metadata server",
	"224.0.0.0/4", "is multicast",
	"240.0.0.0/4", "is reserved",
	"::/128", "stands for this host",
	"fe80::/10", "is link-local, where clouds keep their metadata",
	"fd00:ec2::/32", "is a metadata server",
	"fd20:ce::/32", "is a metadata server",
	"ff00::/8", "is multicast",
	"2001::/32", "is a tunnel (Teredo)",
	"2002::/16", "is a tunnel (6to4)",
)

// private lists ranges that differ in meaning at each site.
var private = networks(
	"127.0.0.0/8", "is of this host", "::1/128", "is of this host",
	"10.0.0.0/8", "is private", "172.16.0.0/12", "is private", "192.168.0.0/16", "is private",
	"100.64.0.0/10", "is private", "192.0.0.0/24", "is private", "198.18.0.0/15", "is private",
	"fc00::/7", "is private", "fec0::/10", "is private",
)

// metadataNames are names that only clouds resolve, so a proxy there would find them.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}

func networks(pairs ...string) []network {
	var out []network
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, network{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return out
}

// ParseGuard parses the allowed private networks: "all" (or nothing), "none", or a
// list of networks such as 10.1.0.0/16 and addresses.
func ParseGuard(list []string) (Guard, error) {
	switch {
	case len(list) == 0, len(list) == 1 && list[0] == "all":
		return Guard{}, nil
	case len(list) == 1 && list[0] == "none":
		return PublicOnly, nil
	}
	g := Guard{narrow: true}
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if ip, aerr := netip.ParseAddr(text); err != nil && aerr == nil && ip.Zone() == "" {
			p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return Guard{}, fmt.Errorf("%q is neither all, nor none, nor a network such as 10.1.0.0/16", text)
		}
		g.private = append(g.private, p.Masked())
	}
	return g, nil
}

// Check checks an address, and the IPv4 addresses that an IPv6 address embeds. The error wraps
// ErrForbidden.
func (g Guard) Check(ip netip.Addr) error {
	for _, form := range forms(ip) {
		for _, n := range never {
			if n.prefix.Contains(form) {
				return forbidden(ip, n.why)
			}
		}
		for _, n := range private {
			if g.narrow && n.prefix.Contains(form) && !slices.ContainsFunc(g.private, func(p netip.Prefix) bool { return p.Contains(form) }) {
				return forbidden(ip, n.why+", and not among --git-private-networks")
			}
		}
	}
	return nil
}

func forbidden(what any, why string) error {
	return fmt.Errorf("%w: %v %s", ErrForbidden, what, why)
}

// forms returns an address without its zone, and the IPv4 address that it embeds: mapped
// and compatible (RFC 4291), NAT64 (RFC 6052, RFC 8215).
func forms(ip netip.Addr) []netip.Addr {
	ip = ip.WithZone("").Unmap()
	if !ip.Is6() || ip.IsLoopback() || !slices.ContainsFunc(embedding, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return []netip.Addr{ip}
	}
	b := ip.As16()
	return []netip.Addr{ip, netip.AddrFrom4([4]byte(b[12:]))}
}

var embedding = []netip.Prefix{
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
}

// Host checks the host of a URL before its resolution: addresses, numbers that some resolvers
// interpret as addresses, and names of metadata servers. The error wraps ErrForbidden.
func (g Guard) Host(name string) error {
	if !IsASCIIHost(name) {
		return forbidden(fmt.Sprintf("%+q", name), "is no ASCII name of a host")
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if ip, err := netip.ParseAddr(name); err == nil {
		return g.Check(ip)
	}
	last := name[strings.LastIndex(name, ".")+1:]
	digits, hex := strings.CutPrefix(last, "0x")
	if number := strings.Trim(last, "0123456789") == "" || hex && strings.Trim(digits, "0123456789abcdef") == ""; number {
		return forbidden(fmt.Sprintf("%q", name), "is a number in place of a name or an address")
	}
	if slices.Contains(metadataNames, name) {
		return forbidden(fmt.Sprintf("%q", name), "is a metadata server")
	}
	return nil
}

// IsASCIIHost reports whether a host has only ASCII letters, digits, '-', '.' and '_', or those of
// an IPv6 address. A proxy or a client maps any other letter to one of them after the host was
// judged.
func IsASCIIHost(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._:[]%", r))
	})
}

// control checks the address of a socket before it connects.
func (g Guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return forbidden(fmt.Sprintf("%q", address), "is no address")
	}
	return g.Check(at.Addr())
}

// Dial connects to an address that the Guard allows. It blocks for at most DialTimeout.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer().DialContext(ctx, network, address)
}

func (g Guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: DialTimeout, KeepAlive: 15 * time.Second, Control: g.control}
}
