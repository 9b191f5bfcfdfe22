package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/notify"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

// BaseURL is the server name of requests over the socket.
const BaseURL = "http://limpet"

// ErrNoDaemon reports that no daemon answers on the socket.
var ErrNoDaemon = errors.New("no daemon answers on the socket")

// Client talks to the process that holds the state file. It is safe for concurrent use; every call
// ends with its context.
type Client struct {
	dialer    Dialer
	transport *http.Transport
	http      *http.Client
	hello     Hello
}

// Dialer connects to the socket of an agent.
type Dialer interface {
	Dial(ctx context.Context) (net.Conn, error)
	// Protocols are those of requests; nil = HTTP/1.
	Protocols() *http.Protocols
	// Close ends what connections need besides themselves.
	Close()
}

// Socket is the path of a socket of this host.
type Socket string

func (s Socket) Dial(ctx context.Context) (net.Conn, error) { return Dial(ctx, string(s)) }
func (Socket) Protocols() *http.Protocols                   { return nil }
func (Socket) Close()                                       {}

// Attach connects to the socket at path. It returns ErrNoDaemon when no daemon answers in time, and
// the cause of ctx when that ends first.
func Attach(ctx context.Context, path string) (*Client, error) {
	limited, cancel := context.WithTimeout(ctx, 4*DialTimeout)
	defer cancel()
	c, err := AttachBy(limited, Socket(path))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c, err
}

// AttachBy is Attach by any way, for as long as ctx lasts. All requests of the client share its
// connections.
func AttachBy(ctx context.Context, dialer Dialer) (*Client, error) {
	transport := newTransport(dialer)
	c := &Client{dialer: dialer, transport: transport, http: &http.Client{Transport: transport}}
	var err error
	if c.hello, err = call[Hello](ctx, c, "hello", nil); err == nil {
		return c, nil
	}
	c.Close()
	if !errors.Is(err, ErrNoDaemon) {
		err = fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	return nil, err
}

func newTransport(dialer Dialer) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.Dial(ctx) },
		Protocols:           dialer.Protocols(),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingEvery},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
	}
}

// Hello returns the answer of the daemon to Attach.
func (c *Client) Hello() Hello { return c.hello }

// Dial returns a connection to the socket.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) { return c.dialer.Dial(ctx) }

// Transport returns the transport of the client, for other requests than calls.
func (c *Client) Transport() *http.Transport { return c.transport }

// Close drops idle connections, and all that need more than a socket.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.dialer.Close()
}

// Snapshot returns the newest snapshot of the agent. It waits for the first.
func (c *Client) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	return call[*snapshot.Snapshot](ctx, c, "snapshot", nil)
}

func (c *Client) History(ctx context.Context, q state.Query) ([]state.Record, error) {
	return call[[]state.Record](ctx, c, "history", q)
}

func (c *Client) PruneHistory(ctx context.Context, before time.Time) (int, error) {
	return call[int](ctx, c, "history/prune", before)
}

func (c *Client) TrimHistory(ctx context.Context, maxRecords int) (int, error) {
	return call[int](ctx, c, "history/trim", maxRecords)
}

func (c *Client) Info(ctx context.Context) (state.Info, error) {
	return call[state.Info](ctx, c, "store/info", nil)
}

func (c *Client) Artifacts(ctx context.Context, of state.SourceKey) ([]state.Artifact, error) {
	return call[[]state.Artifact](ctx, c, "artifacts", [3]string{of.Namespace, of.Name, of.Kind})
}

func (c *Client) Check(ctx context.Context) (state.CheckReport, error) {
	return call[state.CheckReport](ctx, c, "store/check", none{})
}

func (c *Client) Compact(ctx context.Context) (before, after int64, err error) {
	sizes, err := call[[2]int64](ctx, c, "store/compact", none{})
	return sizes[0], sizes[1], err
}

func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	resp, err := c.send(ctx, "store/backup", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(w, resp.Body)
}

// Drain stops the agent from claiming new jobs; with false it resumes.
func (c *Client) Drain(ctx context.Context, on bool) (Drained, error) {
	return call[Drained](ctx, c, "drain", on)
}

func (c *Client) Suspended(ctx context.Context) ([]repos.Suspension, error) {
	return call[[]repos.Suspension](ctx, c, "suspensions", nil)
}

func (c *Client) Suspend(ctx context.Context, one repos.Suspension) error {
	_, err := call[none](ctx, c, "suspend", one)
	return err
}

func (c *Client) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	return call[bool](ctx, c, "resume", [2]string{namespace, repository})
}

func (c *Client) Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	return call[repos.TestResults](ctx, c, "test", u)
}

func (c *Client) Preview(ctx context.Context, q worker.PreviewQuery) (*worker.Preview, error) {
	return call[*worker.Preview](ctx, c, "preview", q)
}

func (c *Client) TestNotify(ctx context.Context, only string) ([]notify.Result, error) {
	return call[[]notify.Result](ctx, c, "notify/test", only)
}

func (c *Client) Drift(ctx context.Context, q worker.DriftQuery) (*drift.Report, error) {
	return call[*drift.Report](ctx, c, "drift", q)
}

func (c *Client) Act(ctx context.Context, a snapshot.Action) error {
	_, err := call[none](ctx, c, "act", a)
	return err
}

func (c *Client) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error) {
	return call[snapshot.HistoryPage](ctx, c, "history/page", q)
}

func (c *Client) PastJob(ctx context.Context, uid string) (snapshot.Job, error) {
	return call[snapshot.Job](ctx, c, "history/job", uid)
}

func (c *Client) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	return call[snapshot.DiagnosticsReport](ctx, c, "diagnostics", nil)
}

func (c *Client) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	return call[snapshot.Comparison](ctx, c, "compare", q)
}

func (c *Client) Manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	return call[string](ctx, c, "manifest", of)
}

// Edit carries out a step of an edit of an object.
func (c *Client) Edit(ctx context.Context, e snapshot.Edit) (snapshot.Edited, error) {
	return call[snapshot.Edited](ctx, c, "edit", e)
}

// Files lists the files of a repository at the commit that was synced last, or reads one of them.
func (c *Client) Files(ctx context.Context, q snapshot.FileQuery) (snapshot.FileList, error) {
	return call[snapshot.FileList](ctx, c, "files", q)
}

// none is the input or output of calls without one.
type none struct{}

// call sends in as JSON and decodes the answer. Without in it sends a GET.
func call[Out any](ctx context.Context, c *Client, name string, in any) (out Out, err error) {
	resp, err := c.send(ctx, name, in)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read answer of the daemon: %w", err)
	}
	return out, nil
}

// send returns the answer when its status is 200, otherwise the error in its body.
func (c *Client) send(ctx context.Context, name string, in any) (*http.Response, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, BaseURL+prefix+name, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		// The address in the error of net/http is meaningless to people.
		if u := new(url.Error); errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var failure errorBody
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&failure) != nil || failure.Error == "" {
		if resp.StatusCode == http.StatusNotFound { // from its router
			return nil, &remoteError{
				text:  strings.TrimSpace("the daemon "+c.hello.Version) + " does not know this request, which is of another version of limpet",
				class: errors.ErrUnsupported,
			}
		}
		return nil, fmt.Errorf("the daemon answers %s", resp.Status)
	}
	return nil, &remoteError{text: failure.Error, class: classes[failure.Class]}
}

// remoteError is an error of the daemon with its text and class; nil = none.
type remoteError struct {
	text  string
	class error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.class }
