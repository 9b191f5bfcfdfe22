package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

const prefix = "/limpet/v1/"

// maxRequest bounds the body of a call, in bytes. Source: the limit of etcd for one object.
const maxRequest = 1536 << 10

// profiles is where Go's tools look for them.
const profiles = "/debug/pprof/"

// Server serves limpet.sock. Its fields are set before Serve.
type Server struct {
	Hello Hello
	Store Store
	Agent Agent
	Log   *Log // nil = none is kept
	// API serves all paths outside the control API.
	API http.Handler
}

// Serve answers on ln until ctx ends, then closes it and all connections.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // of relays
	srv := &http.Server{
		Handler:           s.handler(),
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	}()
	err := srv.Serve(ln)
	ended := ctx.Err() != nil
	cancel()
	<-stopped
	if ended {
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	local := NewLocal(s.Agent, s.Store)
	handle(mux, "hello", func(context.Context, none) (Hello, error) { return s.Hello, nil })
	handle(mux, "snapshot", func(ctx context.Context, _ none) (*snapshot.Snapshot, error) { return s.Agent.Next(ctx, 0) })
	mux.HandleFunc(prefix+"watch", s.watch)
	mux.HandleFunc(prefix+"logs", s.logs)

	handle(mux, "history", func(ctx context.Context, q state.Query) ([]state.Record, error) { return s.Store.History(ctx, q) })
	handle(mux, "history/prune", func(ctx context.Context, before time.Time) (int, error) { return s.Store.PruneHistory(ctx, before) })
	handle(mux, "history/trim", func(ctx context.Context, keep uint) (int, error) { return s.Store.TrimHistory(ctx, int(keep)) })
	handle(mux, "store/info", func(ctx context.Context, _ none) (state.Info, error) { return s.Store.Info(ctx) })
	handle(mux, "artifacts", func(ctx context.Context, of [3]string) ([]state.Artifact, error) {
		return s.Store.Artifacts(ctx, artifact.KeyOf(of[2], of[0], of[1])) // an older client gives no kind
	})
	handle(mux, "store/check", func(ctx context.Context, _ none) (state.CheckReport, error) { return s.Store.Check(ctx) })
	handle(mux, "store/compact", func(ctx context.Context, _ none) ([2]int64, error) {
		before, after, err := s.Store.Compact(ctx)
		return [2]int64{before, after}, err
	})
	mux.HandleFunc(prefix+"store/backup", func(w http.ResponseWriter, r *http.Request) {
		// The status line is sent before the copy ends; a failed copy ends the connection without the
		// last chunk, which the client detects.
		if _, err := s.Store.Backup(r.Context(), w); err != nil {
			panic(http.ErrAbortHandler)
		}
	})

	handle(mux, "drain", func(_ context.Context, on bool) (out Drained, _ error) {
		out.Since, out.Busy = s.Agent.Drain(on)
		return out, nil
	})
	handle(mux, "suspensions", func(ctx context.Context, _ none) ([]repos.Suspension, error) { return s.Agent.Suspended(ctx) })
	handle(mux, "suspend", func(ctx context.Context, one repos.Suspension) (none, error) {
		return none{}, s.Agent.Suspend(ctx, one)
	})
	handle(mux, "resume", func(ctx context.Context, of [2]string) (bool, error) { return s.Agent.Resume(ctx, of[0], of[1]) })
	handle(mux, "test", s.Agent.Test)
	handle(mux, "notify/test", s.Agent.TestNotify)
	handle(mux, "preview", s.Agent.Preview)
	handle(mux, "drift", s.Agent.Drift)

	handle(mux, "act", func(ctx context.Context, a snapshot.Action) (none, error) { return none{}, local.Act(ctx, a) })
	handle(mux, "history/page", local.HistoryPage)
	handle(mux, "history/job", local.PastJob)
	handle(mux, "diagnostics", func(ctx context.Context, _ none) (snapshot.DiagnosticsReport, error) { return local.Diagnostics(ctx) })
	handle(mux, "compare", local.Compare)
	handle(mux, "subject/test", local.Test)
	handle(mux, "manifest", local.Manifest)
	handle(mux, "edit", local.Edit)
	handle(mux, "files", local.Files)

	// Profiles are for those who may use the socket alone. The command line is not among them.
	mux.HandleFunc(profiles, pprof.Index)
	mux.HandleFunc(profiles+"profile", pprof.Profile)
	mux.HandleFunc(profiles+"trace", pprof.Trace)

	mux.HandleFunc(prefix, http.NotFound)
	mux.Handle("/", s.API)
	return mux
}

// handle serves a call: its input and its output are JSON. A call without a body has the zero
// input.
func handle[In, Out any](mux *http.ServeMux, name string, f func(context.Context, In) (Out, error)) {
	mux.HandleFunc(prefix+name, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var in In
		if r.ContentLength != 0 {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in); err != nil {
				refuse(w, http.StatusBadRequest, err)
				return
			}
		}
		out, err := f(r.Context(), in)
		switch {
		case errors.Is(err, context.Canceled): // or the client has disconnected
			refuse(w, http.StatusServiceUnavailable, fmt.Errorf("%w: it stops", ErrNoDaemon))
		case err != nil:
			refuse(w, http.StatusInternalServerError, err)
		default:
			_ = json.NewEncoder(w).Encode(out)
		}
	})
}

// errorBody carries an error over the socket. Class lets the client restore the sentinel that
// commands check for.
type errorBody struct {
	Error string `json:"error"`
	Class string `json:"class,omitempty"`
}

// classes are the sentinels that the socket preserves.
var classes = map[string]error{
	"full": state.ErrFull, "disk-full": syscall.ENOSPC, "read-only": state.ErrReadOnly, "not-found": state.ErrNotFound,
	"corrupt": state.ErrCorrupt, "closed": state.ErrClosed, "stops": ErrNoDaemon, "no-record": ErrNoRecord, "replaced": ErrReplaced,
}

func refuse(w http.ResponseWriter, code int, err error) {
	body := errorBody{Error: err.Error()}
	for name, sentinel := range classes {
		if errors.Is(err, sentinel) {
			body.Class = name
		}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// Proxy forwards API requests of clients of the socket: each group to the server of its client, and
// all else to that of rest.
func Proxy(rest *kube.Client, groups map[string]*kube.Client, logger *slog.Logger) http.Handler {
	others, handlers := proxy(rest, logger), map[string]http.Handler{}
	for group, client := range groups {
		handlers[group] = proxy(client, logger)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _ := strings.CutPrefix(r.URL.Path, "/apis/")
		group, _, _ := strings.Cut(path, "/")
		cmp.Or(handlers[group], others).ServeHTTP(w, r)
	})
}

// proxy forwards requests with the credentials of a client. Only the same user can open the socket.
func proxy(client *kube.Client, logger *slog.Logger) http.Handler {
	base, transport := client.Endpoint()
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			// Credentials of a client must not replace those of the agent.
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Access-Token")
		},
		Transport:     transport,
		FlushInterval: -1, // a watch is a stream of small pieces
		ErrorHandler:  writeUnavailable,
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// writeUnavailable answers a client of the socket when the server of the agent has not answered, as
// an API server would.
func writeUnavailable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has disconnected
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the agent gets no answer from its server: " + text.Redact(err.Error())}
	var exchange *kube.ExchangeError
	if errors.As(err, &exchange) && (exchange.Status == http.StatusUnauthorized || exchange.Status == http.StatusForbidden) {
		status.Code, status.Reason = http.StatusUnauthorized, metav1.StatusReasonUnauthorized
	}
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// Only a disconnected client makes this fail.
	_ = json.NewEncoder(w).Encode(status)
}

// maxSunPath is the longest path in sockaddr_un, without its final zero byte.
const maxSunPath = 107

// DialTimeout bounds the wait for a daemon that holds the socket but does not answer: long enough
// for a busy small board, short enough to be unnoticed.
const DialTimeout = 500 * time.Millisecond

// Listen opens the socket at path with mode 0600. The caller must hold the lock of the state file
// beside it: then an existing socket is stale, and Listen removes it.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	var ln net.Listener
	err := withShortPath(path, func(short string) error {
		// The mode comes from the umask, because other users must not connect between bind and chmod. The
		// umask is that of the process; limpet creates no files meanwhile that need more.
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

// withShortPath calls fn with a name for path that fits into a socket address. It opens the
// directory of a long path and names it by its descriptor.
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
	uid, peerErr := 0, error(nil)
	err = raw.Control(func(fd uintptr) { uid, peerErr = peerOf(int(fd)) })
	return uid, errors.Join(err, peerErr)
}
