package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// script answers requests from a list, the last entry for ever, and counts.
type script struct {
	answers []func(w http.ResponseWriter, r *http.Request)
	asked   atomic.Int64
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(s.asked.Add(1)) - 1
	s.answers[min(n, len(s.answers)-1)](w, r)
}

func (s *script) calls() int { return int(s.asked.Load()) }

func reply(code int, contentType, body string, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n+1 < len(header); n += 2 {
			w.Header().Set(header[n], header[n+1])
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType = "application/json"
	busyBody = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"slow down"}`
)

// inBubble runs a test with a client to the answers.
func inBubble(t *testing.T, c Config, test func(*testing.T, *Client, *script), answers ...func(http.ResponseWriter, *http.Request)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: answers}
		c.Transport, c.Logger = &wire{handler: s}, slog.New(slog.DiscardHandler)
		test(t, connect(t, c), s)
	})
}

func TestDoRepeats(t *testing.T) {
	ok := reply(200, jsonType, `{"a":1}`)
	for name, tc := range map[string]struct {
		method  string
		answers []func(http.ResponseWriter, *http.Request)
		calls   int
		status  int
		least   time.Duration
	}{
		"at once": {"GET", []func(http.ResponseWriter, *http.Request){ok}, 1, 200, 0},
		"500 twice": {"GET", []func(http.ResponseWriter, *http.Request){reply(500, "text/plain", "oops"),
			reply(500, "text/plain", "oops"), ok}, 3, 200, 300 * time.Millisecond},
		"503 with a wish": {"PUT", []func(http.ResponseWriter, *http.Request){reply(503, "text/plain", "", "Retry-After", "7"), ok}, 2, 200,
			7 * time.Second},
		"429 in a Status": {"POST", []func(http.ResponseWriter, *http.Request){reply(429, jsonType, busyBody, "Retry-After", "3"), ok}, 2, 200,
			3 * time.Second},
		"503 with a date": {"GET", []func(http.ResponseWriter, *http.Request){reply(503, "text/html", "<p>", "Retry-After",
			"Sat, 01 Jan 2000 00:00:09 GMT"), ok}, 2, 200, 9 * time.Second},
		"absurd wish": {"GET", []func(http.ResponseWriter, *http.Request){reply(429, "text/plain", "", "Retry-After", "999999999"), ok}, 2,
			200, 5 * time.Minute},
		"504":          {"DELETE", []func(http.ResponseWriter, *http.Request){reply(504, "text/plain", ""), ok}, 2, 200, 0},
		"for ever":     {"GET", []func(http.ResponseWriter, *http.Request){reply(500, "text/plain", "oops")}, 8, 500, 11 * time.Second},
		"POST and 500": {"POST", []func(http.ResponseWriter, *http.Request){reply(500, "text/plain", "oops"), ok}, 1, 500, 0},
		"POST and 503": {"POST", []func(http.ResponseWriter, *http.Request){reply(503, "text/plain", ""), ok}, 2, 200, 0},
		"404":          {"GET", []func(http.ResponseWriter, *http.Request){reply(404, "text/plain", "404 page not found")}, 1, 404, 0},
		"409": {"PUT", []func(http.ResponseWriter,
			*http.Request){reply(409, jsonType, `{"kind":"Status","status":"Failure","reason":"Conflict","code":409}`)}, 1, 409, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, c *Client, s *script) {
				start := time.Now()
				status, answer, err := c.Do(t.Context(), tc.method, "/apis/x", url.Values{"q": {"1"}}, jsonType, []byte(`{}`))
				if status != tc.status || s.calls() != tc.calls {
					t.Errorf("status %d after %d calls, want %d after %d", status, s.calls(), tc.status, tc.calls)
				}
				if took := time.Since(start); took < tc.least || took > tc.least*12/10+5*time.Second {
					t.Errorf("took %v, want %v and a little", took, tc.least)
				}
				var api apierrors.APIStatus
				if failed := status >= 400; failed != errors.As(err, &api) || failed && int(api.Status().Code) != status {
					t.Errorf("error %v for status %d, answer %s", err, status, answer)
				}
			}, tc.answers...)
		})
	}
}

// A call that is harmless when done twice is repeated as often as any, not as often squared.
func TestDoTwice(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		for _, status := range []int{429, 500, 503} {
			inBubble(t, Config{}, func(t *testing.T, c *Client, s *script) {
				got, _, err := c.DoIdempotent(t.Context(), method, "/apis/x", nil, jsonType, []byte(`{}`))
				if got != status || err == nil || s.calls() != retryAttempts {
					t.Errorf("%s %d: status %d after %d calls, %v", method, status, got, s.calls(), err)
				}
			}, reply(status, "text/plain", "oops"))
		}
	}
}

// No repetition begins that the caller's deadline would cut.
func TestDoKeepsDeadline(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *Client, s *script) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := c.Do(ctx, http.MethodGet, "/apis", nil, "", nil)
		if after, ok := RetryAfter(err); !ok || after != time.Minute || time.Since(start) > time.Second || s.calls() != 1 {
			t.Errorf("%v after %v and %d calls", err, time.Since(start), s.calls())
		}
	}, reply(503, "text/plain", "", "Retry-After", "60"))
}

// client-go's own repetitions are off: one call is one request.
func TestResourceCallsOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *Client, s *script) {
		_, err := c.Resource(things).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		after, ok := RetryAfter(err)
		if s.calls() != 1 || !apierrors.IsTooManyRequests(err) || !ok || after != 3*time.Second || !Retryable(err) {
			t.Errorf("%d calls, error %v, retry after %v", s.calls(), err, after)
		}
		if since, _ := c.Down(); !since.IsZero() {
			t.Error("a busy server counts as down")
		}
	}, reply(429, jsonType, busyBody, "Retry-After", "3"))
}

// Every call ends, whether the header or the body does not come; watches stay.
func TestCallDeadline(t *testing.T) {
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	half := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		_, _ = io.WriteString(w, `{"apiVersion":`)
		flush(w)
		<-r.Context().Done()
	}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){"no header": never, "half a body": half} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Timeout: 4 * time.Second}, func(t *testing.T, c *Client, _ *script) {
				start := time.Now()
				_, err := c.Resource(things).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
				var timeout *timeoutError
				if took := time.Since(start); !errors.As(err, &timeout) || took != 4*time.Second || !Retryable(err) || Hint(err) == "" {
					t.Errorf("after %v: %v", took, err)
				}
				if since, err := c.Down(); since.IsZero() || !errors.As(err, &timeout) {
					t.Errorf("down since %v: %v", since, err)
				}
				// The end of the caller's own context is no fault of the server.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, _, err := c.once(ctx, http.MethodGet, "/apis", nil, "", nil); !errors.Is(err, context.DeadlineExceeded) ||
					errors.As(err, &timeout) {
					t.Errorf("caller's deadline: %v", err)
				}
			}, answer)
		})
	}
}

func TestWatchHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		c := connect(t, Config{Transport: &wire{handler: s}, Logger: slog.New(slog.DiscardHandler)})
		w, err := c.Resource(things).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
		if err != nil {
			t.Fatal(err)
		}
		pass(50 * time.Minute)
		s.put("default", "a", "1")
		event := <-w.ResultChan()
		if u, ok := event.Object.(*unstructured.Unstructured); !ok || u.GetName() != "a" {
			t.Errorf("event %v", event)
		}
		w.Stop()
		synctest.Wait()
	})
}

// Renewals have connections of their own, and say what they are.
func TestLeaseHasOwnConnections(t *testing.T) {
	peers, agents := map[string]bool{}, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers[r.RemoteAddr] = true
		agents[r.UserAgent()]++
		okHandler(w, r)
	}))
	defer server.Close()
	c := connect(t, Config{Server: server.URL})
	for _, client := range []*Client{c, c.Lease(), c, c.Lease(), c.Lease().Lease()} {
		if _, _, err := client.Do(t.Context(), http.MethodGet, "/apis", nil, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(peers) != 2 || agents["limpet"] != 2 || agents["limpet (lease)"] != 3 {
		t.Errorf("connections of %v, requests of %v; want 2 connections, 2 and 3 requests", peers, agents)
	}
	c.Lease().Close() // closes nothing
	c.Close()
	c.Close()
}

// An answer without end does not take the host down.
func TestAnswerIsBounded(t *testing.T) {
	var told error
	body := &callBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 100))), ctx: t.Context(), parent: t.Context(),
		failed: func(err error) { told = err }, left: 99, done: func() {}}
	_, err := io.ReadAll(body)
	if !errors.Is(err, errTooLarge) || Retryable(fmt.Errorf("read: %w", err)) || told != nil {
		t.Errorf("error %v, told %v", err, told)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

func TestRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		calls int
	}{
		"reset":         {syscall.ECONNRESET, 8},
		"cut":           {io.ErrUnexpectedEOF, 8},
		"timeout":       {&timeoutError{After: time.Second}, 8},
		"500":           {apierrors.NewInternalError(errors.New("x")), 8},
		"conflict":      {apierrors.NewConflict(things.GroupResource(), "a", errors.New("x")), 1},
		"not found":     {apierrors.NewNotFound(things.GroupResource(), "a"), 1},
		"canceled":      {context.Canceled, 1},
		"a plain error": {errors.New("x"), 1},
		"flag":          {flagErrorf("--x", "wrong"), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := retry(t.Context(), Retryable, func(context.Context) error { calls++; return tc.err })
			if calls != tc.calls || !errors.Is(err, tc.err) {
				t.Errorf("%s: %d calls, %v; want %d", name, calls, err, tc.calls)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := retry(ctx, Retryable, func(context.Context) error {
			if calls++; calls == 2 {
				cancel()
			}
			return syscall.ECONNRESET
		})
		if calls != 2 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
