package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	bolterrors "go.etcd.io/bbolt/errors"

	"limpet/state/frame"
)

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// infoOf returns the counts of a store.
func infoOf(t testing.TB, s *Store) Info {
	t.Helper()
	i, err := s.Info(context.Background())
	must(t, err)
	return i
}

func TestMain(m *testing.M) {
	if beChild() || RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// opened returns a store in a directory of its own. When the test ends it is checked and closed.
func opened(t testing.TB, o Options) *Store {
	t.Helper()
	s, _ := reopened(t, o)
	return s
}

// reopened is opened with the report.
func reopened(t testing.TB, o Options) (*Store, Report) {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "limpet.db")
	}
	s, r, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { Closed(t, s) })
	return s, r
}

// Closed checks and closes a store; once closed it does nothing.
func Closed(t testing.TB, s *Store) {
	t.Helper()
	r, err := s.Check(context.Background())
	if errors.Is(err, ErrClosed) {
		return
	}
	if err != nil {
		t.Errorf("check: %v", err)
	}
	if len(r.Problems) > 0 {
		t.Errorf("check: %s", strings.Join(r.Problems, "; "))
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// transactions is how many transactions wrote to the file.
func (s *Store) transactions() (seq uint64, err error) {
	err = s.view(context.Background(), func(v view) error {
		m, err := v.meta()
		seq = m.Seq
		return err
	})
	return seq, err
}

// TestGroupCommit: requests that wait while the writer is busy share one transaction, and one that
// is refused does not disturb the others.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	before, err := s.transactions()
	must(t, err)
	const writers = 20
	busy, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s.write(ctx, func(t *txn) error {
			select {
			case <-busy:
			default:
				close(busy)
			}
			<-goOn
			return t.put(frame.Facts, []byte("first"), nil)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	refused := errors.New("refused")
	results := make([]error, writers)
	var ready sync.WaitGroup
	ready.Add(writers)
	for i := range writers {
		all.Go(func() {
			ready.Done()
			results[i] = s.write(ctx, func(t *txn) error {
				switch i {
				case 7:
					return refused
				case 8:
					return errors.Join(t.put(frame.Facts, []byte("half"), nil), refused)
				}
				return t.put(frame.Facts, fmt.Append(nil, "f", i), nil)
			})
		})
	}
	ready.Wait()
	close(goOn)
	all.Wait()
	for i, err := range results {
		if want := i == 7 || i == 8; want != errors.Is(err, refused) || !want && err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) != writers-1 || facts["half"] != nil {
		t.Errorf("%d facts, %v", len(facts), err)
	}
	after, err := s.transactions()
	if err != nil || after-before > writers {
		t.Errorf("%d transactions for %d writers, %v", after-before, writers+1, err)
	}
}

// TestGather: a group waits for as many as the crowd, and no longer than it may.
func TestGather(t *testing.T) {
	t.Parallel()
	const linger = 10 * time.Millisecond
	for name, c := range map[string]struct {
		crowd int
		come  []time.Duration
		group int
		took  time.Duration
	}{
		"alone":                      {crowd: 1, come: []time.Duration{time.Second, time.Second + 1}, group: 1, took: time.Second},
		"all are back":               {crowd: 3, come: []time.Duration{0, 4, linger - 1, linger}, group: 3, took: linger - 1},
		"one does not come":          {crowd: 3, come: []time.Duration{5, 9, 5 + linger + 1}, group: 2, took: 5 + linger},
		"the store closes meanwhile": {crowd: 2, group: 0, took: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			life, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			s := &Store{requests: make(chan *request), life: life}
			for _, after := range c.come {
				go func() {
					time.Sleep(after)
					select {
					case s.requests <- &request{}:
					case <-life.Done():
					}
				}()
			}
			began := time.Now()
			group := s.gather(nil, c.crowd, linger)
			if took := time.Since(began); len(group) != c.group || took != c.took {
				t.Errorf("%s: a group of %d after %s, want %d after %s", name, len(group), took, c.group, c.took)
			}
			end()
			time.Sleep(time.Hour) // until all have come
		})
	}
}

func TestNothingToWriteIsNoTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	before, err := s.transactions()
	must(t, err)
	err = errors.Join(s.DropClaim(ctx, "x"), s.DeleteFact(ctx, "x"), s.DeleteSecret(ctx, "x"), s.EndClaim(ctx, "x", "posted", false))
	must(t, err)
	if _, err := s.PruneHistory(ctx, noon); err != nil {
		t.Fatal(err)
	}
	if after, err := s.transactions(); after != before || err != nil {
		t.Errorf("%d transactions, %v", after-before, err)
	}
}

func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	s := opened(t, Options{})
	busy, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s.write(context.Background(), func(t *txn) error { close(busy); <-goOn; return nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	lost := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(context.Background())
	all.Go(func() {
		if err := s.PutFact(ctx, "late", nil); !errors.Is(err, lost) {
			t.Errorf("error %v, want the cause", err)
		}
		close(goOn)
	})
	cancel(lost)
	all.Wait()
	if _, err := s.Fact(context.Background(), "late"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a write whose context had ended: %v", err)
	}
	if _, err := s.Fact(ctx, "late"); !errors.Is(err, lost) {
		t.Errorf("read with an ended context: %v", err)
	}
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				if err := s.PutFact(ctx, "k", []byte("v")); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("write while closing: %v", err)
					}
					return
				}
				if _, err := s.Facts(ctx, ""); err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("read while closing: %v", err)
				}
			}
		})
	}
	for range 3 {
		all.Go(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	all.Wait()
	if _, err := s.Info(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("info: %v", err)
	}
	if _, _, err := s.Compact(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("compact: %v", err)
	}
	if _, err := s.Backup(ctx, &strings.Builder{}); !errors.Is(err, ErrClosed) {
		t.Errorf("backup: %v", err)
	}
}

// TestSizeCap: at the cap writes are refused, but jobs can end, old history can go, and then there
// is space again.
func TestSizeCap(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{MaxSize: 1 << 20})
	must(t, s.PutClaim(ctx, Claim{UID: "running", Phase: PhaseHeld}))
	text := incompressible(5000)
	n := 0
	for ; n < 1000; n++ {
		if err := s.PutRecord(ctx, Record{UID: fmt.Sprint("u", n), Message: text, Finished: noon}); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 50 || n == 1000 {
		t.Fatalf("cap of 1 MiB was reached after %d records of 5 kB", n)
	}
	if _, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put(incompressible(100_000))); !errors.Is(err, ErrFull) {
		t.Errorf("object beyond the cap: %v", err)
	}
	if err := s.PutMark(ctx, "running", []byte(`{"done":1}`)); err != nil {
		t.Errorf("mark beyond the cap: %v", err)
	}
	if err := s.Complete(ctx, "running", Record{Message: text, Finished: noon}); err != nil {
		t.Errorf("end of a job beyond the cap: %v", err)
	}
	if err := s.EndClaim(ctx, "running", "posted", false); err != nil {
		t.Errorf("end of a claim beyond the cap: %v", err)
	}
	if removed, err := s.TrimHistory(ctx, 10); err != nil || removed == 0 {
		t.Errorf("trim beyond the cap: %d, %v", removed, err)
	}
	if _, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put(text)); err != nil {
		t.Errorf("object after the trim: %v", err)
	}
	if i, err := s.Info(ctx); err != nil || i.Bytes > hardLimit(1<<20) {
		t.Errorf("file of %d bytes, %v", i.Bytes, err)
	}
}

func TestRecordsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := opened(t, Options{})
	object := func(key ObjectKey) error { _, err := s.Mutate(ctx, key, put("{}")); return err }
	for what, err := range map[string]error{
		"a body beyond the limit":    s.PutFact(ctx, "big", make([]byte, frame.MaxBody+1)),
		"a key beyond the limit":     s.PutFact(ctx, strings.Repeat("k", 40_000), nil),
		"a claim without UID":        s.PutClaim(ctx, Claim{Name: "x"}),
		"a record without UID":       s.PutRecord(ctx, Record{Name: "x"}),
		"an object without a kind":   object(ObjectKey{"", "ns", "a"}),
		"an object without a name":   object(ObjectKey{"g/jobs", "ns", ""}),
		"a zero byte in a namespace": object(ObjectKey{"g/jobs", "n\x00s", "a"}),
		"a zero byte in a name":      object(ObjectKey{"g/jobs", "ns", "a\x00"}),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := s.PutFact(ctx, "big", make([]byte, 5<<20)); err != nil {
		t.Errorf("a body of 5 MiB: %v", err)
	}
}

// TestEveryCommitIsSynced: what the tests of power cuts take for granted, that bbolt waits for the
// disk twice in each transaction, is on in every file that the store works with: a new one, one
// that is opened again, one that was compacted, one that was rebuilt.
func TestEveryCommitIsSynced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	waits := func(what string, f *file) {
		t.Helper()
		if f.db.NoSync || f.db.NoGrowSync {
			t.Errorf("%s: a commit does not wait for the disk", what)
		}
	}
	s := opened(t, Options{Path: path})
	waits("a new file", s.cur)
	must(t, s.PutFact(context.Background(), "agent", []byte("edge-07")))
	Closed(t, s)
	s, _ = reopened(t, Options{Path: path})
	waits("opened again", s.cur)
	if _, _, err := s.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	waits("compacted", s.cur)
	Closed(t, s)
	f, err := openBolt(filepath.Join(t.TempDir(), "rebuilt.db"), boltOptions(0))
	must(t, err)
	waits("rebuilt", f)
	must(t, f.close())
}

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	flat := func(err error) error { return fmt.Errorf("file resize error: %s", err) }
	cases := []struct {
		name string
		err  error
		want []error
	}{
		{"none", nil, nil},
		{"disk full", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, []error{syscall.ENOSPC}},
		{"disk full, flattened", flat(syscall.ENOSPC), []error{syscall.ENOSPC}},
		{"quota", syscall.EDQUOT, []error{syscall.ENOSPC, syscall.EDQUOT}},
		{"quota, flattened", flat(syscall.EDQUOT), []error{syscall.ENOSPC, syscall.EDQUOT}},
		{"limit, flattened", flat(syscall.EFBIG), []error{syscall.ENOSPC, syscall.EFBIG}},
		{"read-only", &fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, []error{ErrReadOnly, syscall.EROFS}},
		{"read-only, flattened", flat(syscall.EROFS), []error{ErrReadOnly, syscall.EROFS}},
		{"forbidden", syscall.EACCES, []error{ErrReadOnly, syscall.EACCES}},
		{"not permitted", syscall.EPERM, []error{ErrReadOnly}},
		{"cap", bolterrors.ErrMaxSizeReached, []error{ErrFull}},
		{"closed", bolterrors.ErrDatabaseNotOpen, []error{ErrClosed}},
		{"other", context.Canceled, []error{context.Canceled}},
	}
	sentinels := []error{ErrFull, ErrReadOnly, ErrClosed, ErrCorrupt, syscall.ENOSPC}
	for _, c := range cases {
		got := frame.Classify(frame.Classify(c.err))
		if (got == nil) != (c.err == nil) {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, want := range c.want {
			if !errors.Is(got, want) {
				t.Errorf("%s: %v is not %v", c.name, got, want)
			}
		}
		for _, other := range sentinels {
			listed := false
			for _, want := range c.want {
				listed = listed || want == other
			}
			if !listed && errors.Is(got, other) {
				t.Errorf("%s: %v is also %v", c.name, got, other)
			}
		}
	}
}

// TestReserveIsMadeByWriting: a command that only reads leaves nothing behind.
func TestReserveIsMadeByWriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	if _, err := s.Claims(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + reserve); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a read: %v", err)
	}
	must(t, s.PutFact(context.Background(), "k", nil))
	Closed(t, s)
	if info, err := os.Stat(path + reserve); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after a write: %v", err)
	}
}

// A claim is written before the job is claimed; its end and its record are one transaction.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "limpet-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, _, err := Open(ctx, Options{Path: filepath.Join(dir, "limpet.db")})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	job := Claim{UID: "u1", Namespace: "default", Name: "pull-1", Repository: "boards", Action: "pull", Phase: PhaseIntent}
	if err := s.PutClaim(ctx, job); err != nil {
		panic(err)
	}
	record := Record{
		UID: job.UID, Namespace: job.Namespace, Name: job.Name, Repository: job.Repository, Action: job.Action,
		State: "success", Finished: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	if err := s.Complete(ctx, job.UID, record); err != nil {
		panic(err)
	}
	history, err := s.History(ctx, Query{Repository: "boards", Limit: 10})
	if err != nil {
		panic(err)
	}
	for _, r := range history {
		fmt.Println(r.Name, r.State)
	}
	_, err = s.Claim(ctx, "u2")
	fmt.Println(errors.Is(err, ErrNotFound))

	// Output:
	// pull-1 success
	// true
}

// incompressible returns text of n bytes that has no smaller form.
func incompressible(n int) string {
	rng := rand.NewChaCha8([32]byte{1})
	out := make([]byte, n)
	_, _ = rng.Read(out)
	for i, b := range out {
		out[i] = "!#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_abcd"[b&63]
	}
	return string(out)
}

// TestSpaceFor: the estimate is that of the stored form, and is made only where it can matter.
func TestSpaceFor(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	s := opened(t, Options{MaxSize: most})
	failed := errors.New("cannot read")
	for name, c := range map[string]struct {
		n      int
		sample string // of which each object is; "" = it cannot be read
		full   bool
		err    error
	}{
		"none":                {0, "", false, nil},
		"few, nothing read":   {10, "", false, nil},
		"many small":          {500, "{}", false, nil},
		"too many small":      {2000, "{}", true, nil},
		"large, compressible": {100, strings.Repeat("x", 1<<20), false, nil},
		"large, as they are":  {100, incompressible(100_000), true, nil},
		"sample fails":        {100, "", false, failed},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.SpaceFor(t.Context(), c.n, func(context.Context) ([][]byte, error) {
				if c.sample == "" {
					return nil, failed
				}
				return [][]byte{[]byte(c.sample), []byte(c.sample)}, nil
			})
			var refusal *SpaceError
			switch {
			case c.err != nil:
				if !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
			case errors.As(err, &refusal) != c.full, (err != nil) != c.full:
				t.Errorf("error %v", err)
			case c.full && (!errors.Is(err, ErrFull) || refusal.Need <= refusal.Left || refusal.Most != most || refusal.Objects != c.n):
				t.Errorf("%+v", refusal)
			}
		})
	}
}
