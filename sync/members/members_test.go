package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// shelf is the Leases of one API, in memory: versions, conflicts, and watches that
// tell after a delay.
type shelf struct {
	mu      sync.Mutex // guards what follows
	rev     int
	objects map[string]*unstructured.Unstructured
	watches map[*link]bool
	writes  int
	reads   int
}

// link is how one agent reaches the shelf.
type link struct {
	*shelf
	delay time.Duration // of a watch event
	seen  func(*unstructured.Unstructured)
	gone  func(*unstructured.Unstructured)
	down  bool        // guarded by the shelf's mutex
	news  chan func() // events in order
}

// event reaches the agent after the delay of its link.
func (l *link) event(tell func()) {
	at := time.Now().Add(l.delay)
	l.news <- func() {
		<-time.After(time.Until(at))
		tell()
	}
}

var errDown = errors.New("no route to host")

func newShelf() *shelf {
	return &shelf{objects: map[string]*unstructured.Unstructured{}, watches: map[*link]bool{}}
}

// count is how many Leases there are, and how often one was written.
func (s *shelf) count() (leases, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects), s.writes
}

func (l *link) get(_ context.Context, name string) (*unstructured.Unstructured, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	l.reads++
	if u := l.objects[name]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(leases.GroupResource(), name)
}

func (l *link) create(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	if l.objects[u.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(leases.GroupResource(), u.GetName())
	}
	return l.store(u), nil
}

func (l *link) update(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	if was := l.objects[u.GetName()]; was == nil || was.GetResourceVersion() != u.GetResourceVersion() {
		return nil, apierrors.NewConflict(leases.GroupResource(), u.GetName(), nil)
	}
	return l.store(u), nil
}

func (s *shelf) store(u *unstructured.Unstructured) *unstructured.Unstructured {
	s.rev++
	s.writes++
	u = u.DeepCopy()
	u.SetResourceVersion(strconv.Itoa(s.rev))
	s.objects[u.GetName()] = u
	for l := range s.watches {
		l.event(func() { l.seen(u) })
	}
	return u.DeepCopy()
}

func (l *link) remove(_ context.Context, u *unstructured.Unstructured) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return errDown
	}
	if was := l.objects[u.GetName()]; was == nil || was.GetResourceVersion() != u.GetResourceVersion() {
		return apierrors.NewConflict(leases.GroupResource(), u.GetName(), nil)
	}
	delete(l.objects, u.GetName())
	for other := range l.watches {
		other.event(func() { other.gone(u) })
	}
	return nil
}

func (l *link) watch(ctx context.Context, seen, gone func(*unstructured.Unstructured), synced func()) error {
	l.mu.Lock()
	l.seen, l.gone = seen, gone
	l.watches[l] = true
	l.news = make(chan func(), 1000) // not what an earlier watch has left
	var there []*unstructured.Unstructured
	for _, u := range l.objects {
		there = append(there, u)
	}
	l.mu.Unlock()
	for _, u := range there {
		seen(u)
	}
	synced()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case tell := <-l.news:
			tell()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, l)
	return nil
}

func (l *link) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		delete(l.watches, l)
	} else {
		l.watches[l] = true
		for _, u := range l.objects {
			l.event(func() { l.seen(u) })
		}
	}
}

// life is one agent under way.
type life struct {
	*Members
	link *link
	stop func() // ends it in order
}

func (s *shelf) agent(t *testing.T, id string, skew time.Duration) *life {
	l := &life{link: &link{shelf: s, delay: 100 * time.Millisecond, news: make(chan func(), 1000)}}
	l.Members = newMembers(l.link, func() time.Time { return time.Now().Add(skew) }, Options{Namespace: "ns", ID: id, Agent: id, Logger: slog.New(slog.DiscardHandler)})
	l.start(t)
	return l
}

// start runs it, again after its stop.
func (l *life) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	l.stop = func() { cancel(); <-done }
}

const objects = 200

// keepers says how many of the agents look after each object.
func keepers(all []*life) (most, none int) {
	for i := range objects {
		n := 0
		for _, l := range all {
			if l.Mine("ns", fmt.Sprint("repo-", i), nil) {
				n++
			}
		}
		most = max(most, n)
		if n == 0 {
			none++
		}
	}
	return most, none
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestOneKeeper: agents with clocks that are years apart come, go, crash and are
// cut off; nothing is ever looked after by two of them, and by nobody for no
// longer than an expiry.
func TestOneKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		all := []*life{s.agent(t, "a", 0), s.agent(t, "b", -20*365*24*time.Hour), s.agent(t, "c", 10*365*24*time.Hour)}
		watchOver := func(d time.Duration) (gap time.Duration) {
			for range int(d / (500 * time.Millisecond)) {
				pass(500 * time.Millisecond)
				most, none := keepers(all)
				if most > 1 {
					t.Fatalf("%d agents look after one object", most)
				}
				if none > 0 {
					gap += 500 * time.Millisecond
				}
			}
			return gap
		}
		pass(settle + time.Second)
		if most, none := keepers(all); most != 1 || none != 0 {
			t.Fatalf("at first: %d agents for one object, %d objects without", most, none)
		}
		if gap := watchOver(2 * time.Minute); gap > 0 {
			t.Errorf("in peace some objects were alone for %s", gap)
		}
		late := s.agent(t, "d", 0)
		all = append(all, late)
		if gap := watchOver(time.Minute); gap > settle+time.Second {
			t.Errorf("while one came some objects were alone for %s", gap)
		}
		if _, served := late.Here(); !served {
			t.Error("leases are served")
		}
		late.stop()
		all = all[:3]
		if gap := watchOver(time.Minute); gap > time.Second {
			t.Errorf("after one had left some objects were alone for %s", gap)
		}
		all[1].link.cut(true)
		if gap := watchOver(3 * time.Minute); gap > DefaultExpiry {
			t.Errorf("after one was cut off some objects were alone for %s", gap)
		}
		if all[1].Mine("ns", "repo-1", nil) {
			t.Error("the one that is cut off still acts")
		}
		all[1].link.cut(false)
		if gap := watchOver(2 * time.Minute); gap > settle+time.Second {
			t.Errorf("when it came back some objects were alone for %s", gap)
		}
		_, before := s.count()
		pass(10 * time.Minute)
		if _, after := s.count(); after-before > 3*31 {
			t.Errorf("%d writes of 3 agents in 10 minutes", after-before)
		}
		for _, l := range all {
			l.stop()
		}
		if left, _ := s.count(); left != 0 {
			t.Errorf("%d leases are left", left)
		}
	})
}

// TestRestartedAgent takes its own Lease up at once; a second process with the
// same state stops the first.
func TestRestartedAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first := s.agent(t, "a", 0)
		pass(time.Second)
		if !first.Mine("ns", "repo-1", nil) {
			t.Fatal("an agent that is alone waits")
		}
		first.link.cut(true) // as by kill -9: nothing is given back
		second := s.agent(t, "a", 0)
		pass(time.Second)
		if !second.Mine("ns", "repo-1", nil) {
			t.Error("the restarted agent waits for itself")
		}
		first.link.cut(false)
		pass(DefaultRenew * 3)
		if first.Mine("ns", "repo-1", nil) || !second.Mine("ns", "repo-1", nil) {
			t.Error("two processes share one lease")
		}
		second.stop()
		first.stop()
	})
}

// TestCopiedState: an agent whose state file was copied to a second host stops as
// soon as it sees the other, which holds its Lease then.
func TestCopiedState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first, third := s.agent(t, "a", 0), s.agent(t, "b", 0)
		pass(settle + time.Second)
		second := s.agent(t, "a", 0)
		for range 60 {
			pass(2 * time.Second)
			if most, _ := keepers([]*life{first, second, third}); most > 1 {
				t.Fatalf("%d processes look after one object", most)
			}
		}
		if _, none := keepers([]*life{second, third}); none > 0 {
			t.Errorf("nobody looks after %d objects", none)
		}
		fourth := s.agent(t, "a", 0)
		pass(time.Second)
		second.stop() // it holds nothing any more
		if left, _ := s.count(); left != 2 {
			t.Error("who does not hold the lease has given it back")
		}
		fourth.stop()
		pass(DefaultExpiry + DefaultRenew + settle)
		if _, none := keepers([]*life{first, third}); none > 0 {
			t.Errorf("nobody looks after %d objects after the copy is gone", none)
		}
		first.stop()
		third.stop()
	})
}

// TestStaleEvent: the watch shows an agent that has just begun the Lease as its
// process of before left it. That is no reason to stop.
func TestStaleEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first := s.agent(t, "a", 0)
		pass(time.Second)
		before, err := first.link.get(t.Context(), first.name)
		if err != nil {
			t.Fatal(err)
		}
		first.link.cut(true)
		first.stop()
		second := s.agent(t, "a", 0)
		pass(time.Second)
		second.saw(before)
		if !second.Mine("ns", "repo-1", nil) {
			t.Error("it stops for a process that is gone")
		}
		second.stop()
	})
}

// TestUntakenLease: an agent that cannot get its Lease says so, once.
func TestUntakenLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		m := newMembers(&link{shelf: newShelf(), down: true}, time.Now, Options{ID: "a", Agent: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Run(ctx); err != nil || m.Mine("ns", "repo", nil) {
			t.Errorf("%v; does it act?", err)
		}
		if n := strings.Count(log.String(), errDown.Error()); n != 1 {
			t.Errorf("told %d times: %s", n, &log)
		}
	})
}

// TestSuspendedAgent: whoever slept longer than its Lease renews it first, and
// then lets the others see that before it acts.
func TestSuspendedAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		l, other := s.agent(t, "a", 0), s.agent(t, "b", 0)
		pass(settle)
		l.mu.Lock()
		// The wall clock has gone on while the monotonic one stood still.
		l.wall = l.wall.Add(-time.Hour)
		l.mu.Unlock()
		acts := func() bool { most, _ := keepers([]*life{l}); return most > 0 }
		if acts() {
			t.Error("it acts on a lease of an hour ago")
		}
		pass(DefaultRenew - settle + time.Second)
		if acts() {
			t.Error("it acts before others have seen that it is back")
		}
		if pass(settle); !acts() {
			t.Error("it does not act after a renewal")
		}
		l.stop()
		other.stop()
	})
}

// TestTidy: the Lease of an agent that will not come back is deleted, once.
func TestTidy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		dead := s.agent(t, "dead", 0)
		pass(time.Second)
		dead.link.cut(true)
		dead.stop()
		l := s.agent(t, "a", 0)
		pass(30 * time.Minute)
		if left, _ := s.count(); left != 2 {
			t.Fatal("it is deleted too early")
		}
		pass(time.Hour)
		if left, _ := s.count(); left != 1 {
			t.Error("it is not deleted")
		}
		l.stop()
	})
}

func TestWithoutLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(nowhere{}, time.Now, Options{ID: "a", Agent: "a", Logger: slog.New(slog.DiscardHandler)})
		if err := m.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, served := m.Here(); served || !m.Mine("ns", "repo", nil) {
			t.Error("an agent on an API without leases does nothing")
		}
	})
}

// nowhere is an API that does not know Leases.
type nowhere struct{ store }

func (nowhere) get(context.Context, string) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(leases.GroupResource(), "")
}

func (nowhere) create(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewGenericServerResponse(404, "post", leases.GroupResource(), "", "", 0, false)
}

// TestRestsAndGoesOn: an agent that has given its Lease back looks after nothing and
// writes nothing until it runs again. Renewals read nothing.
func TestRestsAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		a, b := s.agent(t, "a", 0), s.agent(t, "b", 0)
		pass(time.Minute)
		_, writes := s.count()
		reads := s.reads
		pass(10 * DefaultRenew)
		if _, now := s.count(); now != writes+20 || s.reads != reads {
			t.Errorf("%d writes and %d reads for 20 renewals", now-writes, s.reads-reads)
		}
		a.stop()
		_, writes = s.count()
		for range 60 {
			pass(time.Second)
			if most, none := keepers([]*life{b}); most != 1 || none != 0 || a.Mine("ns", "repo-1", nil) || a.MineUnlabelled("ns", "repo-1") {
				t.Fatalf("%d objects are nobody's", none)
			}
		}
		if leases, now := s.count(); leases != 1 || now > writes+4 {
			t.Errorf("%d leases, %d writes in a minute", leases, now-writes)
		}
		a.start(t)
		pass(settle + time.Second)
		if most, none := keepers([]*life{a, b}); most != 1 || none != 0 {
			t.Errorf("%d agents for one object, %d objects without", most, none)
		}
		if a.MineUnlabelled("ns", "repo-1") == b.MineUnlabelled("ns", "repo-1") {
			t.Error("an object without labels has no one agent")
		}
		if most, none := keepers([]*life{a}); most != 1 || none == 0 || none == objects {
			t.Errorf("the first one has %d of %d", objects-none, objects)
		}
		a.stop()
		b.stop()
	})
}

func FuzzRead(f *testing.F) {
	f.Add("h", "a", "ns", "a in (b)", int64(60), true)
	f.Add("", "", "", "((", int64(-1), true)
	f.Add("h", "a", "", "", int64(maxExpiry), true)
	f.Add("h", "a", "", "", int64(1)<<62, true)
	f.Fuzz(func(t *testing.T, holder, agent, namespace, selector string, seconds int64, ours bool) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"holderIdentity": holder, "leaseDurationSeconds": seconds}}}
		if ours {
			u.SetLabels(map[string]string{labelRole: role})
		}
		u.SetAnnotations(map[string]string{annoAgent: agent, annoNamespace: namespace, annoSelector: selector})
		rec, ok := read(u)
		if ok && (rec.expiry <= 0 || rec.expiry > maxExpiry || rec.holder == "") {
			t.Errorf("%+v", rec)
		}
	})
}

func TestHereNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		a, b := s.agent(t, "id-a", 0), s.agent(t, "id-b", 0)
		pass(time.Second)
		agents, _ := a.Here()
		slices.Sort(agents)
		if !slices.Equal(agents, []string{"id-a", "id-b"}) {
			t.Errorf("%q", agents)
		}
		a.stop()
		b.stop()
	})
}

// TestNothingIsToldOfRenewals: agents that renew their Leases have nothing looked at
// again, but one that was asked while it was cut off has.
func TestNothingIsToldOfRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		var told atomic.Int32
		a, b := s.agent(t, "id-a", 0), s.agent(t, "id-b", 0)
		a.stop()
		a.o.Changed = func() { told.Add(1) }
		a.start(t)
		pass(time.Minute)
		told.Store(0)
		pass(time.Hour)
		if n := told.Load(); n != 0 {
			t.Errorf("changes were told %d times in an hour of renewals", n)
		}
		a.link.cut(true)
		pass(a.o.Expiry * 3 / 4)
		if a.Mine("ns", "repo", nil) {
			t.Error("an agent that is cut off acts")
		}
		a.link.cut(false)
		told.Store(0)
		pass(2 * a.o.Expiry)
		if told.Load() == 0 {
			t.Error("what was refused is not asked again")
		}
		b.stop()
		a.stop()
	})
}
