package dependency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// told collects who was told, and when.
type told struct {
	began time.Time
	users []Ref
	at    []time.Duration
}

func (o *told) note(user Ref) {
	o.users = append(o.users, user)
	o.at = append(o.at, time.Since(o.began))
}

// bubble runs a Watcher in virtual time.
func bubble(t *testing.T, dir string, test func(w *Watcher, o *told)) {
	synctest.Test(t, func(t *testing.T) {
		o := &told{began: time.Now()}
		w := New(Options{Wake: o.note, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w, o)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass lets the time of the bubble pass, and all come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestBurst: a burst of changes is told once, a second after it has begun; what
// comes later is told again, and Connections come first.
func TestBurst(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(w *Watcher, o *told) {
		w.Use(a, s1, s2)
		w.Use(conn, s2)
		w.Observe(s1, "1")
		w.Observe(s2, "1")
		synctest.Wait()
		for n := range 9 {
			pass(100 * time.Millisecond)
			w.Observe(s1, fmt.Sprint("burst ", n))
			w.Observe(s2, fmt.Sprint("burst ", n))
		}
		pass(time.Minute)
		if !slices.Equal(o.users, []Ref{conn, a}) || o.at[0] != 100*time.Millisecond+settle || o.at[1] != o.at[0]+wakeGap {
			t.Errorf("told %v at %v", o.users, o.at)
		}
		w.Observe(s1, "later")
		pass(time.Minute)
		if !slices.Equal(o.users, []Ref{conn, a, a}) {
			t.Errorf("told %v", o.users)
		}
	})
}

// TestCrowd: what a thousand use has them look one after another.
func TestCrowd(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(w *Watcher, o *told) {
		const crowd = 1000
		for n := range crowd {
			w.Use(ref(Repository, fmt.Sprint(n)), s1)
		}
		w.Observe(s1, "1")
		w.Observe(s1, "2")
		pass(settle + crowd*wakeGap)
		if len(o.users) != crowd {
			t.Fatalf("told %d", len(o.users))
		}
		for n := range crowd - 50 {
			if in := o.at[n+50] - o.at[n]; in < time.Second {
				t.Fatalf("50 in %s", in)
			}
		}
	})
}

// TestPoll: files that change, of a directory that comes later, are told within
// a poll to those whom they are for; those that stay are not told.
func TestPoll(t *testing.T) {
	t.Parallel()
	p := place{t, t.TempDir()}
	bubble(t, p.path("later"), func(w *Watcher, o *told) {
		w.Use(a, ref(File, "a"), ref(File, "c"))
		w.Use(b, ref(File, "b"))
		w.Use(conn, ref(File, "c"))
		pass(time.Minute - settle/2) // each step is half a second before a poll
		for n, step := range []struct {
			change func()
			want   []Ref
		}{
			{func() { p.write("later/ns.a/token", "1") }, []Ref{a}},
			{func() { p.write("later/ns.c/token", "1") }, []Ref{conn, a}},
			{func() { p.write("later/ns.d/token", "1") }, nil},
			{func() { p.write("later/ns.b/token", "1"); p.write("later/ns.b/username", "1") }, []Ref{b}},
			{func() {
				w.Use(b, ref(File, "d"))
				w.ObserveFiles("ns", "d")
				p.write("later/ns.d/token", "2") // after it was read for the first time
				p.write("later/ns.b/token", "2")
			}, []Ref{b}},
			{func() {
				p.write("later/ns.d/token", "3")
				w.ObserveFiles("ns", "d")
				p.write("later/ns.d/token", "2") // what was read is there for no poll
			}, []Ref{b}},
			{func() { w.Use(b); p.write("later/ns.d/token", "3") }, nil},
		} {
			o.users = nil
			step.change()
			pass(pollEvery + settle + 2*wakeGap)
			if !slices.Equal(o.users, step.want) {
				t.Errorf("step %d: told %v, want %v", n+1, o.users, step.want)
			}
			pass(time.Minute - settle - 2*wakeGap)
		}
	})
}

func TestScopes(t *testing.T) {
	t.Parallel()
	some := func(namespace string, n int) (out []Ref) {
		for i := range n {
			out = append(out, Ref{Secret, namespace, fmt.Sprint("s", i)})
		}
		return out
	}
	if got, over := scopes(some("a", maxNamed)); len(got) != maxNamed || got[0] != (scope{"a", "s0"}) || over != 0 {
		t.Errorf("few: %v, %d over", got, over)
	}
	if got, over := scopes(append(some("a", maxNamed+1), some("b", 1)...)); !slices.Equal(got, []scope{{"a", ""}, {"b", "s0"}}) || over != 0 {
		t.Errorf("many and one: %v, %d over", got, over)
	}
	var many []Ref
	for n := range maxStreams + 7 {
		many = append(many, some(fmt.Sprintf("ns%03d", n), maxNamed+1)...)
	}
	if got, over := scopes(many); len(got) != maxStreams || over != 7 {
		t.Errorf("too many: %d, %d over", len(got), over)
	}
}
