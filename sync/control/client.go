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
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

// BaseURL is the server name of requests over the socket.
const BaseURL = "http://limpet"

// ErrNoDaemon reports that no daemon answers on the socket.
var ErrNoDaemon = errors.New("no daemon answers on the socket")

// Client talks to the process that holds the state file. It is safe for concurrent
// use; every call ends with its context.
type Client struct {
	path  string
	http  *http.Client
	hello Hello
}

// Attach connects to the socket at path. It returns ErrNoDaemon when no daemon
// answers in time, and the cause of ctx when that ends first.
func Attach(ctx context.Context, path string) (*Client, error) {
	c := To(path)
	hello, cancel := context.WithTimeout(ctx, 4*DialTimeout)
	defer cancel()
	if err := c.call(hello, http.MethodGet, "hello", nil, &c.hello); err != nil {
		c.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, ErrNoDaemon) {
			err = fmt.Errorf("%w: %w", ErrNoDaemon, err)
		}
		return nil, err
	}
	return c, nil
}

// To returns a client of the socket at path without contacting it, for a daemon that
// is too slow to Attach.
func To(path string) *Client {
	return &Client{path: path, http: &http.Client{Transport: Transport(path)}}
}

// Transport returns a transport for HTTP over the socket at path.
func Transport(path string) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) },
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
	}
}

// Hello returns the answer of the daemon to Attach.
func (c *Client) Hello() Hello { return c.hello }

// Path returns the path of the socket.
func (c *Client) Path() string { return c.path }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// History implements Store.
func (c *Client) History(ctx context.Context, q state.Query) ([]state.Record, error) {
	var out struct {
		Items []state.Record `json:"items"`
	}
	err := c.call(ctx, http.MethodGet, "history", encodeQuery(q), &out)
	return out.Items, err
}

// PruneHistory implements Store.
func (c *Client) PruneHistory(ctx context.Context, before time.Time) (int, error) {
	var out struct {
		Removed int `json:"removed"`
	}
	err := c.call(ctx, http.MethodPost, "history/prune", url.Values{"before": {before.Format(time.RFC3339Nano)}}, &out)
	return out.Removed, err
}

// TrimHistory implements Store.
func (c *Client) TrimHistory(ctx context.Context, maxRecords int) (int, error) {
	var out struct {
		Removed int `json:"removed"`
	}
	err := c.call(ctx, http.MethodPost, "history/prune", url.Values{"keep": {strconv.Itoa(maxRecords)}}, &out)
	return out.Removed, err
}

// Info implements Store.
func (c *Client) Info(ctx context.Context) (out state.Info, err error) {
	return out, c.call(ctx, http.MethodGet, "store/info", nil, &out)
}

// Check implements Store.
func (c *Client) Check(ctx context.Context) (out state.CheckReport, err error) {
	return out, c.call(ctx, http.MethodPost, "store/check", nil, &out)
}

// Compact implements Store.
func (c *Client) Compact(ctx context.Context) (before, after int64, err error) {
	var out Compaction
	err = c.call(ctx, http.MethodPost, "store/compact", nil, &out)
	return out.Before, out.After, err
}

// Backup implements Store.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	resp, err := c.send(ctx, http.MethodGet, "store/backup", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(w, resp.Body)
}

// Snapshot returns the newest snapshot of the agent. It waits for the first.
func (c *Client) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) { return c.Next(ctx, 0) }

// Next blocks until the agent has a snapshot newer than seq, or ctx ends.
func (c *Client) Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	var out snapshot.Snapshot
	err := c.call(ctx, http.MethodGet, "snapshot", url.Values{"after": {strconv.FormatUint(seq, 10)}}, &out)
	return &out, err
}

// Cancel stops a job that the agent runs.
func (c *Client) Cancel(ctx context.Context, namespace, name string) error {
	return c.call(ctx, http.MethodPost, "jobs/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/cancel", nil, nil)
}

// Drain stops the agent from claiming new jobs; with false it resumes.
func (c *Client) Drain(ctx context.Context, on bool) (out Drained, err error) {
	return out, c.call(ctx, http.MethodPost, "drain", url.Values{"on": {strconv.FormatBool(on)}}, &out)
}

// Hurry makes the agent retry an unavailable API at once.
func (c *Client) Hurry(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "hurry", nil, nil)
}

// Suspended implements Suspender.
func (c *Client) Suspended(ctx context.Context) ([]repos.Suspension, error) {
	var out suspensions
	return out.Items, c.call(ctx, http.MethodGet, "suspensions", nil, &out)
}

// Suspend implements Suspender.
func (c *Client) Suspend(ctx context.Context, one repos.Suspension) error {
	body, err := json.Marshal(one)
	if err != nil {
		return err
	}
	resp, err := c.sendBody(ctx, http.MethodPost, "suspensions", nil, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Resume implements Suspender.
func (c *Client) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	var out resumed
	err := c.call(ctx, http.MethodDelete, "suspensions/"+url.PathEscape(namespace)+"/"+url.PathEscape(repository), nil, &out)
	return out.Was, err
}

// Test implements Tester.
func (c *Client) Test(ctx context.Context, u *unstructured.Unstructured) (out repos.TestResults, err error) {
	body, err := u.MarshalJSON()
	if err != nil {
		return out, err
	}
	resp, err := c.sendBody(ctx, http.MethodPost, "test", nil, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read answer of the daemon: %w", err)
	}
	return out, nil
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, out any) error {
	resp, err := c.send(ctx, method, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read answer of the daemon: %w", err)
	}
	return nil
}

// send returns the answer when its status is 200, otherwise the error in its body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	return c.sendBody(ctx, method, path, query, nil)
}

func (c *Client) sendBody(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	u := BaseURL + prefix + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
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
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed { // from its router
			return nil, &remoteError{text: strings.TrimSpace("the daemon "+c.hello.Version) + " does not know this request, which is of another version of limpet", class: errors.ErrUnsupported}
		}
		return nil, fmt.Errorf("the daemon answers %s", resp.Status)
	}
	if sentinel, ok := classes[failure.Class]; ok {
		return nil, &remoteError{text: failure.Error, class: sentinel}
	}
	return nil, errors.New(failure.Error)
}

// Diagnostics returns the diagnostics of the daemon.
func (c *Client) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	var out snapshot.DiagnosticsReport
	err := c.call(ctx, http.MethodGet, "diagnostics", nil, &out)
	return out, err
}

// Compare returns the changes in Git between two commits.
func (c *Client) Compare(ctx context.Context, q snapshot.CompareQuery) (out snapshot.Comparison, err error) {
	v := url.Values{"namespace": {q.Namespace}, "repository": {q.Repository}, "from": {q.From}, "to": {q.To}, "path": {q.Path}}
	return out, c.call(ctx, http.MethodGet, "compare", v, &out)
}

// remoteError is an error of the daemon with its text and class.
type remoteError struct {
	text  string
	class error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.class }
