package cli_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// door is the last hop to a server as a network device keeps it: it can forget
// the connections that are open while new ones work, which toxiproxy cannot, and
// it counts those who come while the server is away.
type door struct {
	URL string

	target string
	ln     net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	open   map[net.Conn]net.Conn
	frozen map[net.Conn]bool
	shut   bool
	came   int
}

// newDoor makes a door to a URL until the end of the test.
func newDoor(t *testing.T, target string) *door {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{target: u.Host, open: map[net.Conn]net.Conn{}, frozen: map[net.Conn]bool{}}
	if d.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = d.ln.Addr().String()
	d.URL = u.String()
	d.all.Go(d.serve)
	t.Cleanup(func() {
		d.ln.Close()
		d.close()
		d.all.Wait()
	})
	return d
}

func (d *door) serve() {
	for {
		in, err := d.ln.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.came++
		shut := d.shut
		d.mu.Unlock()
		if shut {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", d.target)
		if err != nil {
			in.Close()
			continue
		}
		d.mu.Lock()
		shut = d.shut // it may have been closed meanwhile
		if !shut {
			d.open[in] = out
		}
		d.mu.Unlock()
		if shut {
			in.Close()
			out.Close()
			continue
		}
		d.all.Go(func() { d.carry(in, in, out) })
		d.all.Go(func() { d.carry(in, out, in) })
	}
}

// carry copies one direction of the connection that is known as key.
func (d *door) carry(key, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		frozen := d.frozen[key]
		d.mu.Unlock()
		if frozen { // what comes is lost, and nobody hears of the end
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// freeze forgets the connections that are open: they stay so, and nothing
// comes through any more. New ones are good.
func (d *door) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in := range d.open {
		d.frozen[in] = true
	}
}

// close refuses everybody from now on and cuts what is open.
func (d *door) close() {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.cut()
}

// reopen takes that back.
func (d *door) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in, out := range d.open {
		in.Close()
		out.Close()
	}
	clear(d.open)
	clear(d.frozen)
}

// knocks is how many connections were tried since the last call.
func (d *door) knocks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.came
	d.came = 0
	return n
}
