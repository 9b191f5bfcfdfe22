package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"limpet/sync/text"
)

// A relay carries the socket of another host: 'ssh HOST limpet relay' connects its stdin and its
// stdout to it, so that the host opens no port and ssh decides who may come. One connection serves
// all requests, as HTTP/2, because each costs a login. The relay says first that it is connected:
// what the shell of the host prints before that is no answer, and a Dial that ends well has reached
// an agent.

const (
	// relayGreeting is the line behind which the bytes of the socket begin.
	relayGreeting = "limpet relay 1"
	// maxNoise bounds what a shell may print before it, in bytes.
	maxNoise = 64 << 10
	// pingEvery is how often a silent connection is tried; without an answer in that time it ends.
	pingEvery = 15 * time.Second
)

// Host is a host whose agent is reached by ssh.
type Host struct {
	Name    string // as ssh takes it: a host, user@host or an alias of its configuration
	Program string // limpet there; "" = limpet
	State   string // state file of the agent there; "" = the usual one

	mu      sync.Mutex // guards the fields below
	closed  bool
	running []*relayed
}

// Words are the command line that connects to the socket.
func (h *Host) Words() []string {
	program := h.Program
	if program == "" {
		program = "limpet"
	}
	far := text.ShellWord(program)
	if h.State != "" {
		far += " --state " + text.ShellWord(h.State)
	}
	return []string{"ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", h.Name, far + " relay"}
}

// Protocols has HTTP/2 alone.
func (*Host) Protocols() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// Dial starts ssh, and returns once the relay is connected. The error is what ssh or the relay says
// on stderr.
func (h *Host) Dial(ctx context.Context) (net.Conn, error) {
	words := h.Words()
	farIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, farOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, farIn.Close(), in.Close())
	}
	c := &relayed{in: in, out: out, host: h.Name, cmd: exec.Command(words[0], words[1:]...), ended: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = farIn, farOut, &c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program, which ends it
	c.cmd.WaitDelay = time.Second
	err = h.start(c)
	farIn.Close()
	farOut.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", h.Name, err), in.Close(), out.Close())
	}
	stop := context.AfterFunc(ctx, c.kill)
	err = c.greeted()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// start starts the program of a connection, unless the host is closed.
func (h *Host) start(c *relayed) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	h.running = append(slices.DeleteFunc(h.running, (*relayed).over), c)
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // c.said has the reason
	}()
	return nil
}

// Close ends all connections, also those that are being made, and waits for their end: a host that
// hangs leaves no ssh behind.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.running {
		c.kill()
		<-c.ended
	}
}

// relayed is a connection over the stdin and the stdout of ssh. Close waits for its end.
type relayed struct {
	in    *os.File
	out   *os.File
	read  *bufio.Reader // of out
	host  string
	cmd   *exec.Cmd
	said  lastWords     // on its stderr; complete once ended is closed
	ended chan struct{} // closed by the goroutine that waits for it
}

// lastWords keep the end of what is written, and are read after the last write.
type lastWords struct{ data []byte }

func (w *lastWords) Write(p []byte) (int, error) {
	w.data = append(w.data, p...)
	w.data = w.data[max(0, len(w.data)-maxNoise):]
	return len(p), nil
}

// line is the last one that says something, without the name of its program, which may be limpet.
func (w *lastWords) line() string {
	lines := strings.Split(strings.TrimSpace(string(w.data)), "\n")
	for len(lines) > 1 && strings.HasPrefix(strings.TrimSpace(lines[len(lines)-1]), "try: ") {
		lines = lines[:len(lines)-1]
	}
	return text.Line(strings.TrimPrefix(text.Redact(lines[len(lines)-1]), "limpet: "), 300)
}

// greeted reads up to the greeting.
func (c *relayed) greeted() error {
	c.read = bufio.NewReaderSize(c.out, maxNoise)
	for seen := 0; ; {
		line, err := c.read.ReadSlice('\n')
		if seen += len(line); err == nil && seen < maxNoise {
			if bytes.Equal(bytes.TrimSpace(line), []byte(relayGreeting)) {
				return nil
			}
			continue
		}
		if err == nil || errors.Is(err, bufio.ErrBufferFull) {
			c.kill()
			return fmt.Errorf("%s sends something else than an agent", c.host)
		}
		<-c.ended
		if why := c.said.line(); why != "" {
			return fmt.Errorf("%s: %s", c.host, why)
		}
		return fmt.Errorf("%s: ssh has ended: %s", c.host, c.cmd.ProcessState)
	}
}

// over reports whether ssh has ended.
func (c *relayed) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// kill ends ssh and what it has started.
func (c *relayed) kill() {
	if !c.over() { // else its number may be that of another process
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

func (c *relayed) Read(p []byte) (int, error)  { return c.read.Read(p) }
func (c *relayed) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close ends ssh, and by that the relay.
func (c *relayed) Close() error {
	c.kill()
	<-c.ended
	return errors.Join(c.in.Close(), c.out.Close())
}

func (c *relayed) LocalAddr() net.Addr  { return relayAddr(c.host) }
func (c *relayed) RemoteAddr() net.Addr { return relayAddr(c.host) }

func (c *relayed) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *relayed) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *relayed) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }

// relayAddr is the name of a host as an address.
type relayAddr string

func (relayAddr) Network() string  { return "ssh" }
func (a relayAddr) String() string { return string(a) }

// Relay greets and then copies between a connection to a socket and the two streams, until the
// socket or out is closed. The end of in ends the requests; a read of it cannot be interrupted, and
// ends with the process.
func Relay(conn net.Conn, in io.Reader, out io.Writer) error {
	// The shell may have left a line without its end.
	if _, err := io.WriteString(out, "\n"+relayGreeting+"\n"); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, in) // the other copy has the error
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err := io.Copy(out, conn)
	return err
}
