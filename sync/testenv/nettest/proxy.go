// Package nettest has a small real proxy, which speaks HTTP CONNECT and SOCKS5
// and resolves names that only it knows.
package nettest

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Options are what a Proxy knows. Nobody changes them once it is started: it may be
// asked at any time.
type Options struct {
	// The one user that it takes, and the password; "" = it takes everybody.
	Username, Password string
	// Names are the addresses that names with their port stand for; what is not in
	// it is dialled as it is.
	Names map[string]string
	// Wrap makes another listener of its own, such as one with TLS; nil leaves it as
	// it is.
	Wrap func(net.Listener) net.Listener
}

// Proxy is a proxy on loopback.
type Proxy struct {
	Addr string // host:port

	o     Options
	mu    sync.Mutex // guards asked
	asked []string
	group sync.WaitGroup
}

// Start makes a Proxy that ends with the test.
func Start(t testing.TB, o Options) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), o: o}
	if o.Wrap != nil {
		l = o.Wrap(l)
	}
	var open sync.Map // of connections, to end them with the test
	p.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, true)
			p.group.Go(func() {
				defer open.Delete(conn)
				defer conn.Close()
				p.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		p.group.Wait()
	})
	return p
}

// Asked are the targets that clients have named so far.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

func (p *Proxy) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 5 {
		p.socks(conn, r)
		return
	}
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	if want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.o.Username+":"+p.o.Password)); p.o.Username != "" &&
		req.Header.Get("Proxy-Authorization") != want {
		io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	if req.Method != http.MethodConnect {
		p.forward(conn, req)
		return
	}
	p.carry(conn, r, req.Host, func(ok bool) {
		if ok {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		} else {
			io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		}
	})
}

// forward answers a request of plain HTTP.
func (p *Proxy) forward(conn net.Conn, req *http.Request) {
	target := p.target(req.URL.Host)
	req.Header.Del("Proxy-Authorization")
	req.Close = true
	up, err := net.Dial("tcp", target)
	if err != nil {
		io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer up.Close()
	if req.Write(up) == nil {
		io.Copy(conn, up)
	}
}

func (p *Proxy) target(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, name)
	if addr, ok := p.o.Names[name]; ok {
		return addr
	}
	return name
}

// carry connects both sides until one of them ends.
func (p *Proxy) carry(conn net.Conn, r io.Reader, name string, answer func(ok bool)) {
	up, err := net.Dial("tcp", p.target(name))
	if answer(err == nil); err != nil {
		return
	}
	p.group.Go(func() {
		io.Copy(up, r)
		up.Close()
	})
	io.Copy(conn, up)
	up.Close()
	conn.Close()
}

// socks speaks RFC 1928 and RFC 1929.
func (p *Proxy) socks(conn net.Conn, r *bufio.Reader) {
	read := func(n byte) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return make([]byte, n)
		}
		return b
	}
	methods := string(read(read(2)[1]))
	if p.o.Username != "" {
		if !strings.Contains(methods, "\x02") {
			conn.Write([]byte{5, 0xff})
			return
		}
		conn.Write([]byte{5, 2})
		user := string(read(read(2)[1]))
		if pass := string(read(read(1)[0])); user != p.o.Username || pass != p.o.Password {
			conn.Write([]byte{1, 1})
			return
		}
		conn.Write([]byte{1, 0})
	} else {
		conn.Write([]byte{5, 0})
	}
	host := ""
	switch read(4)[3] {
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = string(read(read(1)[0]))
	case 4:
		host = net.IP(read(16)).String()
	}
	port := read(2)
	p.carry(conn, r, net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port)))), func(ok bool) {
		code := byte(0)
		if !ok {
			code = 5
		}
		conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	})
}
