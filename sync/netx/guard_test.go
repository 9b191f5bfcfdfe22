package netx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestGuard(t *testing.T) {
	open, none := Guard{}, must(t)(ParseGuard([]string{"none"}))
	some := must(t)(ParseGuard([]string{"10.1.0.0/16", "127.0.0.1", "fd12::/16"}))
	cases := []struct {
		ip               string
		open, some, none bool
	}{
		{"140.82.121.3", true, true, true},
		{"2606:50c0:8000::153", true, true, true},
		{"127.0.0.1", true, true, false},
		{"127.0.0.2", true, false, false},
		{"::1", true, false, false},
		{"10.1.2.3", true, true, false},
		{"10.2.2.3", true, false, false},
		{"192.168.1.1", true, false, false},
		{"100.64.0.1", true, false, false},
		{"fd12::1", true, true, false},
		{"fd13::1", true, false, false},
		{"::ffff:10.2.2.3", true, false, false},
		{"64:ff9b::10.2.2.3", true, false, false},
		{"64:ff9b::140.82.121.3", true, true, true},
		// never
		{"169.254.169.254", false, false, false},
		{"169.254.170.2", false, false, false},
		{"100.100.100.200", false, false, false},
		{"168.63.129.16", false, false, false},
		{"0.0.0.0", false, false, false},
		{"0.1.2.3", false, false, false},
		{"224.0.0.1", false, false, false},
		{"255.255.255.255", false, false, false},
		{"::", false, false, false},
		{"fe80::1", false, false, false},
		{"fe80::1%eth0", false, false, false},
		{"fd00:ec2::254", false, false, false},
		{"fd00:ec2::23", false, false, false},
		{"fd20:ce::254", false, false, false},
		{"ff02::1", false, false, false},
		{"::ffff:169.254.169.254", false, false, false},
		{"::169.254.169.254", false, false, false},
		{"64:ff9b::169.254.169.254", false, false, false},
		{"64:ff9b:1::169.254.169.254", false, false, false},
		{"2002:a9fe:a9fe::1", false, false, false},
		{"2001:0:a9fe:a9fe::1", false, false, false},
		{"2001:0:102:304::5601:5601", false, false, false},
		{"64:ff9b::100.100.100.200", false, false, false},
	}
	for _, c := range cases {
		for name, g := range map[string]struct {
			Guard
			want bool
		}{"open": {open, c.open}, "some": {some, c.some}, "none": {none, c.none}} {
			err := g.Check(netip.MustParseAddr(c.ip))
			if (err == nil) != g.want || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s of %s: %v, want through: %v", name, c.ip, err, g.want)
			}
			if herr := g.Host(c.ip); (herr == nil) != (err == nil) {
				t.Errorf("%s of %s as a host: %v", name, c.ip, herr)
			}
		}
	}
	for _, host := range []string{"metadata.google.internal", "Metadata.Google.Internal.", "2852039166", "0xA9FEA9FE", "169.254.43518",
		"0251.0376.0251.0376", "[fe80::1]", "169.254.169.254.",
		"\uff4detadata.google.internal", "metadata\u3002google.internal", "meta\u00addata.google.internal", "169\u3002254\u3002169\u3002254"} {
		if err := open.Host(host); !errors.Is(err, ErrForbidden) {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for _, host := range []string{"github.com", "git.example.com.", "host-7", "1password.example", "face", "127.0.0.1", "[::1]"} {
		if err := open.Host(host); err != nil {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for _, list := range [][]string{{"everything"}, {"all", "none"}, {"10.0.0.0/99"}, {"fe80::1%eth0"}} {
		if _, err := ParseGuard(list); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
}

func must(t *testing.T) func(Guard, error) Guard {
	return func(g Guard, err error) Guard {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
}

// TestRebinding: a name that stands for a good address when it is asked for first,
// and for the metadata server when it is dialled, leads nowhere.
func TestRebinding(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var asked atomic.Int64
	resolve(t, func(string) [4]byte {
		if asked.Add(1) == 1 {
			return [4]byte{127, 0, 0, 1}
		}
		return [4]byte{169, 254, 169, 254}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	conn, err := Guard{}.Dial(t.Context(), "tcp4", "git.rebind.example:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, err = Guard{}.Dial(t.Context(), "tcp4", "git.rebind.example:"+port)
	if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "169.254.169.254") {
		t.Errorf("the second answer is dialled: %v", err)
	}
	if asked.Load() < 2 {
		t.Errorf("the name was asked for %d times", asked.Load())
	}
}

// resolve has names answered by a name server of the test.
func resolve(t *testing.T, of func(name string) [4]byte) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body: &dnsmessage.AResource{A: of(q.Name.String())}}}
			}
			if out, err := m.Pack(); err == nil {
				server.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		server.Close()
		<-done
	})
}
