package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"limpet/sync/program"
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
	name    string
	words   []string        // the command line
	life    context.Context // of all connections
	end     context.CancelFunc
	running sync.WaitGroup // processes of ssh
}

// NewHost returns a host, which is to be closed: name is as ssh takes it, program is limpet there,
// and state its state file; "" for the usual ones.
func NewHost(name, program, state string) *Host {
	relay := text.ShellWord(cmp.Or(program, "limpet"))
	if state != "" {
		relay += " --state " + text.ShellWord(state)
	}
	h := &Host{name: name, words: []string{"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", name, relay + " relay"}}
	h.life, h.end = context.WithCancel(context.Background())
	return h
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
	c, err := h.start()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", h.name, err)
	}
	stop := context.AfterFunc(ctx, c.end)
	err = c.greeted()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.name, errors.Join(err, c.Close()))
	}
	return c, nil
}

// start starts ssh, with one end of a pair of sockets as its stdin and stdout.
func (h *Host) start() (*relayed, error) {
	syscall.ForkLock.RLock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	near, far := os.NewFile(uintptr(ends[0]), "near"), os.NewFile(uintptr(ends[1]), "far")
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return nil, err
	}
	c := &relayed{Conn: conn, read: bufio.NewReaderSize(conn, maxNoise), said: program.Tail{Most: maxNoise}, ended: make(chan struct{})}
	life, end := context.WithCancel(h.life)
	c.end = end
	c.cmd = exec.CommandContext(life, "ssh", h.words...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = far, far, &c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                  // Ctrl-C is for this program, which ends it
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) } // what it has started too
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		end()
		return nil, errors.Join(err, conn.Close())
	}
	h.running.Go(func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // c.said has the reason
	})
	return c, nil
}

// Close ends all connections, also those that are being made, and waits for their end: a host that
// hangs leaves no ssh behind.
func (h *Host) Close() {
	h.end()
	h.running.Wait()
}

// relayed is a connection to the stdin and the stdout of ssh.
type relayed struct {
	net.Conn
	read  *bufio.Reader // of Conn
	cmd   *exec.Cmd
	said  program.Tail  // on stderr; complete once ended is closed
	end   func()        // ends cmd
	ended chan struct{} // closed by the goroutine that waits for cmd
}

// greeted reads up to the greeting.
func (c *relayed) greeted() error {
	for seen := 0; seen < maxNoise; {
		line, err := c.read.ReadSlice('\n')
		switch seen += len(line); {
		case err == nil && string(bytes.TrimSpace(line)) == relayGreeting:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			<-c.ended
			return errors.New(cmp.Or(c.reason(), "ssh has ended: "+c.cmd.ProcessState.String()))
		}
	}
	return errors.New("it sends something else than an agent does")
}

// reason is the last line of stderr, without the hint and the name that limpet adds to its own.
func (c *relayed) reason() string {
	said, _, _ := strings.Cut(strings.TrimSpace(text.Redact(string(c.said.Data))), "\n  try: ")
	return text.Line(strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "limpet: "), 300)
}

// Read implements net.Conn.
func (c *relayed) Read(p []byte) (int, error) { return c.read.Read(p) }

// Close ends ssh, and by that the relay, and waits for its end.
func (c *relayed) Close() error {
	c.end()
	<-c.ended
	return c.Conn.Close()
}

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
