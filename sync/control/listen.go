package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxSunPath is the longest path in sockaddr_un, without its final zero byte.
const maxSunPath = 107

// DialTimeout bounds the wait for a daemon that holds the socket but does not answer: long enough for a busy small
// board, short enough to be unnoticed.
const DialTimeout = 500 * time.Millisecond

// Listen opens the socket at path with mode 0600. The caller must hold the lock of the state file beside it: then an
// existing socket is stale, and Listen removes it.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	var ln net.Listener
	err := withShortPath(path, func(short string) error {
		// The mode comes from the umask, because other users must not connect between bind and chmod. The umask is that
		// of the process; limpet creates no files meanwhile that need more.
		old := unix.Umask(0o177)
		defer unix.Umask(old)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err == nil {
			// The bound name may be a descriptor; Close removes by path.
			l.SetUnlinkOnClose(false)
			ln = &listener{UnixListener: l, path: path}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return ln, nil
}

// removeStale removes the socket of a dead process. Any other file stays.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen on %s: a file is there that is no socket", path)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// Dial connects to the socket at path within DialTimeout. A link is not followed.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("connect to %s: it is no socket", path)
	}
	var conn net.Conn
	err = withShortPath(path, func(short string) error {
		d := net.Dialer{Timeout: DialTimeout}
		c, err := d.DialContext(ctx, "unix", short)
		conn = c
		return err
	})
	return conn, err
}

// withShortPath calls fn with a name for path that fits into a socket address. It opens the directory of a long path
// and names it by its descriptor.
func withShortPath(path string, fn func(short string) error) error {
	if len(path) <= maxSunPath {
		return fn(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// listener accepts only connections of the same user and of root.
type listener struct {
	*net.UnixListener
	path string
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.UnixListener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(conn)
		if err == nil && (uid == 0 || uid == os.Geteuid()) {
			return conn, nil
		}
		conn.Close()
	}
}

func (l *listener) Close() error { return errors.Join(l.UnixListener.Close(), removeStale(l.path)) }

// peer returns the user ID of the process at the other end.
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
