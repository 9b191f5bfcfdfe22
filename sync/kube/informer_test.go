package kube

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// errRefused is what a host without a server gives.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// watched is a running informer in a bubble.
type watched struct {
	*Informer
	shelf *shelf
	wire  *wire
	log   *eventLog
	stop  func()
}

// eventLog keeps what a handler saw.
type eventLog struct {
	mu     sync.Mutex // guards events
	events []string
}

func (l *eventLog) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, text)
}

// take returns the events since the last take.
func (l *eventLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.events, " ")
	l.events = nil
	return all
}

func (l *eventLog) handler() Handler {
	return Handler{
		Add:    func(o Object) { l.add("+" + o.Name()) },
		Update: func(old, o Object) { l.add(old.Text(pathValue) + ">" + o.Text(pathValue)) },
		Delete: func(o Object) { l.add("-" + o.Name()) },
	}
}

// bubble runs a test with an informer in fake time. The informer is stopped and waited for at its
// end.
func bubble(t *testing.T, prepare func(*shelf), o InformerOptions, test func(t *testing.T, w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		s.put("default", "a", "1")
		s.put("other", "b", "1")
		if prepare != nil {
			prepare(s)
		}
		pipe := &wire{handler: s}
		client := connect(t, Config{Transport: pipe, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		w := &watched{Informer: client.Informer(things, "", o), shelf: s, wire: pipe, log: &eventLog{}}
		w.AddHandler(w.log.handler())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
		defer w.stop()
		test(t, w)
	})
}

func (w *watched) want(t *testing.T, picture string) {
	t.Helper()
	synctest.Wait()
	if got := contents(w.Informer); got != picture {
		t.Fatalf("picture %q, want %q", got, picture)
	}
}

func TestInformerFollows(t *testing.T) {
	bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
		if err := w.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.want(t, "default/a=1 other/b=1")
		w.shelf.put("default", "c", "1")
		w.shelf.put("default", "a", "2")
		w.shelf.drop("other", "b")
		w.want(t, "default/a=2 default/c=1")
		if got := w.log.take(); got != "+a +b +c 1>2 -b" && got != "+b +a +c 1>2 -b" {
			t.Errorf("handler saw %q", got)
		}
		lists, watches := w.shelf.requests()
		if len(lists) != 1 || len(watches) != 1 {
			t.Errorf("%d lists and %d watches, want 1 and 1", len(lists), len(watches))
		}
		if u, ok := w.Get("default", "a"); !ok || len(u.GetManagedFields()) != 0 {
			t.Errorf("get: %v %v, want an object without managedFields", u, ok)
		}
		if _, ok := w.Get("default", "none"); ok {
			t.Error("get finds what is not there")
		}
		if w.LastError() != nil {
			t.Errorf("last error %v", w.LastError())
		}
	})
}

func TestInformerSelectorAndLateHandler(t *testing.T) {
	bubble(t, nil, InformerOptions{LabelSelector: "x=y"}, func(t *testing.T, w *watched) {
		w.want(t, "default/a=1 other/b=1")
		late := &eventLog{}
		w.AddHandler(late.handler())
		synctest.Wait()
		if got := late.take(); got != "+a +b" && got != "+b +a" {
			t.Errorf("late handler saw %q", got)
		}
		_, watches := w.shelf.requests()
		if !strings.Contains(watches[0].query, "labelSelector=x%3Dy") {
			t.Errorf("selector not sent: %s", watches[0].query)
		}
		w.stop()
		w.AddHandler(Handler{}) // of no use any more, but no harm
	})
}

// 410 leads to one new picture, however it is told, and nothing is missed.
func TestInformerRelistsWhenExpired(t *testing.T) {
	for name, inside := range map[string]bool{"status": false, "event": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *shelf) { s.goneInside = inside }, InformerOptions{}, func(t *testing.T, w *watched) {
				w.want(t, "default/a=1 other/b=1")
				w.log.take()
				w.wire.set(errRefused)
				w.shelf.set(func(s *shelf) { s.silent = true })
				w.shelf.drop("other", "b")
				w.shelf.put("default", "a", "2")
				w.shelf.put("default", "c", "1")
				w.shelf.compact()
				pass(15 * time.Minute) // the watch ends by its timeout
				w.wire.set(nil)
				w.shelf.set(func(s *shelf) { s.silent = false })
				before, _ := w.shelf.requests()
				pass(time.Minute)
				w.want(t, "default/a=2 default/c=1")
				seen := strings.Fields(w.log.take())
				slices.Sort(seen)
				if got := strings.Join(seen, " "); got != "+c -b 1>2" {
					t.Errorf("handler saw %q", got)
				}
				after, _ := w.shelf.requests()
				if n := len(after) - len(before); n > 1 {
					t.Errorf("%d lists, want one at most", n)
				}
				if err := w.LastError(); err != nil {
					t.Errorf("last error %v", err)
				}
			})
		})
	}
}

// What comes from a list is framed, what comes from the watch is not: only that has an order.
func TestInformerFramesLists(t *testing.T) {
	bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
		w.want(t, "default/a=1 other/b=1")
		log := &eventLog{}
		h := log.handler()
		h.Listing = func(on bool) { log.add(map[bool]string{true: "[", false: "]"}[on]) }
		w.AddHandler(h)
		if got := log.take(); got != "[ +a +b ]" && got != "[ +b +a ]" {
			t.Errorf("late handler saw %q", got)
		}
		w.shelf.put("default", "a", "2")
		synctest.Wait()
		if got := log.take(); got != "1>2" {
			t.Errorf("handler saw %q of the watch", got)
		}
		w.wire.set(errRefused)
		w.shelf.set(func(s *shelf) { s.silent = true })
		w.shelf.put("default", "a", "3")
		w.shelf.drop("other", "b")
		w.shelf.compact()
		pass(15 * time.Minute) // the watch ends by its timeout
		w.wire.set(nil)
		w.shelf.set(func(s *shelf) { s.silent = false })
		pass(time.Minute)
		if got := log.take(); got != "[ 2>3 -b ]" {
			t.Errorf("handler saw %q of a new list", got)
		}
	})
}

// A stream that breaks is followed by another.
func TestInformerContinuesAfterBrokenStream(t *testing.T) {
	bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
		w.want(t, "default/a=1 other/b=1")
		broken := false
		w.shelf.set(func(s *shelf) {
			s.fail = func(r *http.Request) (int, map[string]string, string) {
				if r.URL.Query().Get("watch") == "true" && !broken {
					broken = true
					return http.StatusOK, map[string]string{"Content-Type": "application/json"}, `{"type":"ADDED","object":{"ki`
				}
				return 0, nil, ""
			}
		})
		pass(11 * time.Minute) // the first watch ends, the broken one follows
		w.shelf.put("default", "c", "1")
		pass(5 * time.Second)
		w.want(t, "default/a=1 default/c=1 other/b=1")
	})
}

// The rows 9 and 12 of the fault matrix: an hour without a server costs at most four requests a
// minute of all informers together, and a minute later everything is caught up.
func TestInformersWaitForServer(t *testing.T) {
	for name, down := range map[string]error{
		"refused": errRefused,
		"reset":   syscall.ECONNRESET,
		"timeout": &timeoutError{After: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				defer group.Wait()
				defer cancel()
				more := []*Informer{w.Informer}
				for range 4 {
					i := w.client.Informer(things, "", InformerOptions{})
					group.Go(func() { _ = i.Run(ctx) })
					more = append(more, i)
				}
				w.want(t, "default/a=1 other/b=1")
				w.shelf.set(func(s *shelf) { s.silent = true })
				w.wire.set(down)
				pass(20 * time.Minute) // all watches have ended by themselves
				start, before := time.Now(), len(w.wire.attempts())
				pass(time.Hour)
				if n := len(w.wire.attempts()) - before; n > 4*60 {
					t.Errorf("%d requests in an hour without a server", n)
				}
				for at := start; at.Before(start.Add(time.Hour)); at = at.Add(time.Minute) {
					if n := within(w.wire.attempts(), at, time.Minute); n > 4 {
						t.Errorf("%d requests in minute %v", n, at.Sub(start))
					}
				}
				if err := w.LastError(); err == nil || !errors.Is(err, down) {
					t.Errorf("last error %v, want %v", err, down)
				}
				if since, err := w.client.Down(); since.IsZero() || err == nil {
					t.Errorf("down since %v: %v", since, err)
				}
				w.shelf.set(func(s *shelf) { s.silent = false })
				w.shelf.put("default", "c", "1")
				w.wire.set(nil)
				pass(time.Minute)
				synctest.Wait()
				for n, i := range more {
					if got := contents(i); got != "default/a=1 default/c=1 other/b=1" {
						t.Errorf("informer %d has %q a minute after the return", n, got)
					}
				}
				if since, err := w.client.Down(); !since.IsZero() || w.LastError() != nil {
					t.Errorf("still down since %v: %v, %v", since, err, w.LastError())
				}
			})
		})
	}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func within(all []time.Time, from time.Time, d time.Duration) (n int) {
	for _, at := range all {
		if !at.Before(from) && at.Before(from.Add(d)) {
			n++
		}
	}
	return n
}

// A watch that may not be made, while lists may, is replaced by lists.
func TestInformerPollsWhenWatchIsForbidden(t *testing.T) {
	forbid := func(s *shelf) {
		s.fail = func(r *http.Request) (int, map[string]string, string) {
			if r.URL.Query().Get("watch") != "true" {
				return 0, nil, ""
			}
			return http.StatusForbidden, map[string]string{"Content-Type": "application/json"},
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"things is forbidden"}`
		}
	}
	bubble(t, forbid, InformerOptions{}, func(t *testing.T, w *watched) {
		if err := w.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.want(t, "default/a=1 other/b=1")
		w.shelf.put("default", "a", "2")
		pass(relistEvery * 3 / 2)
		w.want(t, "default/a=2 other/b=1")
		if hint := Hint(w.LastError()); !strings.Contains(hint, "--namespace") {
			t.Errorf("hint %q for %v", hint, w.LastError())
		}
		_, watches := w.shelf.requests()
		if n := len(watches); n > 15*4 {
			t.Errorf("%d watches in 15 minutes", n)
		}
	})
}

// Errors of the resource alone are kept and repeated, at most four times a minute once they last.
func TestInformerKeepsTrying(t *testing.T) {
	deny := func(s *shelf) {
		s.fail = func(*http.Request) (int, map[string]string, string) {
			return http.StatusNotFound, nil, "404 page not found"
		}
	}
	bubble(t, deny, InformerOptions{}, func(t *testing.T, w *watched) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w.WaitSynced(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || statusOf(err) == nil || !strings.Contains(Hint(err), "limpet crds") {
			t.Errorf("wait: %v, hint %q", err, Hint(err))
		}
		before := len(w.wire.attempts())
		pass(10 * time.Minute)
		if n := len(w.wire.attempts()) - before; n > 40 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		w.shelf.set(func(s *shelf) { s.fail = nil })
		pass(30 * time.Second)
		w.want(t, "default/a=1 other/b=1")
	})
}

// Retry-After of a busy server is honoured.
func TestInformerHonoursRetryAfter(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		busy := func(s *shelf) {
			s.fail = func(*http.Request) (int, map[string]string, string) {
				return code, map[string]string{"Retry-After": "120"}, "later"
			}
		}
		bubble(t, busy, InformerOptions{}, func(t *testing.T, w *watched) {
			pass(10 * time.Minute)
			if n := len(w.wire.attempts()); n < 4 || n > 7 {
				t.Errorf("status %d: %d requests in 10 minutes with Retry-After 120, want 4 to 7", code, n)
			}
		})
	}
}

// A server that closes every watch at once does not get a busy loop.
func TestInformerShortWatches(t *testing.T) {
	bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
		w.want(t, "default/a=1 other/b=1")
		w.shelf.set(func(s *shelf) {
			s.fail = func(r *http.Request) (int, map[string]string, string) {
				if r.URL.Query().Get("watch") == "true" {
					return http.StatusOK, map[string]string{"Content-Type": "application/json"},
						`{"type":"BOOKMARK","object":{"apiVersion":"test.limpet/v1","kind":"Thing","metadata":{"resourceVersion":"102"}}}` + "\n"
				}
				return 0, nil, ""
			}
		})
		pass(15 * time.Minute)
		before := len(w.wire.attempts())
		pass(10 * time.Minute)
		if n := len(w.wire.attempts()) - before; n > 60 {
			t.Errorf("%d requests in 10 minutes", n)
		}
	})
}

// A server that forgets to end a watch does not hold it for ever.
func TestInformerEndsOverdueWatch(t *testing.T) {
	var overdue http.Handler
	bubble(t, func(s *shelf) {
		overdue = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			q.Del("timeoutSeconds")
			r.URL.RawQuery = q.Encode()
			s.ServeHTTP(w, r)
		})
	}, InformerOptions{}, func(t *testing.T, w *watched) {
		w.stop() // this one has a server that keeps time
		pipe := &wire{handler: overdue}
		client := connect(t, Config{Transport: pipe, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		i := client.Informer(things, "", InformerOptions{})
		done := make(chan error, 1)
		go func() { done <- i.Run(ctx) }()
		pass(30 * time.Minute)
		if n := len(pipe.attempts()); n < 6 || n > 12 {
			t.Errorf("%d requests in 30 minutes, want 6 to 12", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestInformerIsStuck: a handler that does not return holds the watch up. A quiet watch, and one of
// a server that refuses, is at work.
func TestInformerIsStuck(t *testing.T) {
	bubble(t, nil, InformerOptions{}, func(t *testing.T, w *watched) {
		if err := w.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 24 {
			pass(5 * time.Minute)
			if why := w.Stuck(); why != "" {
				t.Errorf("a quiet watch: %s", why)
			}
		}
		w.shelf.set(func(s *shelf) {
			s.fail = func(*http.Request) (int, map[string]string, string) { return http.StatusForbidden, nil, "" }
		})
		pass(time.Hour)
		if why := w.Stuck(); why != "" || w.LastError() == nil {
			t.Errorf("refused: %q, %v", why, w.LastError())
		}
		w.shelf.set(func(s *shelf) { s.fail = nil })
		pass(time.Minute)
		held := make(chan struct{})
		w.AddHandler(Handler{Update: func(_, _ Object) { <-held }})
		w.shelf.put("default", "a", "7")
		pass(watchLimit / 2)
		if why := w.Stuck(); why != "" {
			t.Errorf("too early: %s", why)
		}
		pass(watchLimit)
		if w.Stuck() == "" {
			t.Error("a stuck watch is not told")
		}
		close(held)
		synctest.Wait()
		pass(time.Second)
		if why := w.Stuck(); why != "" {
			t.Errorf("after its end: %s", why)
		}
	})
}
