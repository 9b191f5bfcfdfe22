package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state/frame"
	"limpet/state/repair"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	began := time.Now()
	s := opened(t, Options{Path: path})
	empty, err := s.Info(ctx)
	if err != nil || !empty.Oldest.IsZero() || !empty.Newest.IsZero() || empty.History != 0 {
		t.Errorf("info of an empty file %+v, %v", empty, err)
	}
	hourly(t, s, 3)
	err = errors.Join(s.PutClaim(ctx, Claim{UID: "u"}), s.PutClaim(ctx, Claim{UID: "v", Phase: PhaseResting}), s.PutFact(ctx, "f", nil),
		s.PutSecret(ctx, "s", nil))
	must(t, err)
	o, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put("{}"))
	must(t, err)
	i, err := s.Info(ctx)
	must(t, err)
	if !i.Oldest.Equal(noon) || !i.Newest.Equal(noon.Add(2*time.Hour)) || i.Bytes == 0 || i.FreeBytes >= i.Bytes || i.Created.Before(began) ||
		i.Created.After(time.Now()) {
		t.Errorf("info %+v", i)
	}
	i.Oldest, i.Newest, i.Created, i.Bytes, i.FreeBytes = time.Time{}, time.Time{}, time.Time{}, 0, 0
	want := Info{Path: path, Schema: current.version, Claims: 1, Resting: 1, History: 3, HistoryBytes: 494, Objects: 1, Facts: 1, Secrets: 1,
		Revision: o.Revision}
	if i != want {
		t.Errorf("info %+v, want %+v", i, want)
	}
}

func TestCompactLive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	FillHistory(t, path, 4<<20)
	s := opened(t, Options{Path: path})
	if _, err := s.TrimHistory(ctx, 100); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				if err := s.PutFact(ctx, fmt.Sprint(g), fmt.Append(nil, i)); err != nil {
					t.Errorf("write while compacting: %v", err)
				}
				if v, err := s.Fact(ctx, fmt.Sprint(g)); err != nil || string(v) != fmt.Sprint(i) {
					t.Errorf("read while compacting: %q, %v", v, err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 3 {
		before, after, err := s.Compact(ctx)
		if err != nil || before == 0 || after == 0 || after > before {
			t.Errorf("compact: %d -> %d, %v", before, after, err)
		}
	}
	close(stop)
	all.Wait()
	if i, err := s.Info(ctx); err != nil || i.History != 100 || i.Facts != 4 || i.Bytes > 2<<20 {
		t.Errorf("info %+v, %v", i, err)
	}
	if names := beside(t, path); !slices.Equal(names, []string{".owner"}) {
		t.Errorf("left %v", names)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := s.Compact(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("compact with an ended context: %v", err)
	}
}

// closingContext begins to close the store when the compaction that it belongs to is at its first
// records.
type closingContext struct {
	context.Context
	s      *Store
	asked  atomic.Int32
	closes chan error
}

func (c *closingContext) Err() error {
	if c.asked.Add(1) != 2 { // the first look is before the writer has the request
		return nil
	}
	go func() { c.closes <- c.s.Close() }()
	for isClosed := false; !isClosed; runtime.Gosched() {
		c.s.mu.Lock()
		isClosed = c.s.closed
		c.s.mu.Unlock()
	}
	return nil
}

func TestCloseWhileCompacting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	hourly(t, s, 2*checkEvery)
	ctx := &closingContext{Context: context.Background(), s: s, closes: make(chan error, 1)}
	if _, _, err := s.Compact(ctx); err != nil {
		t.Errorf("compact: %v", err)
	}
	select {
	case err := <-ctx.closes:
		if err != nil {
			t.Errorf("close: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("close still waits for the compacted file")
	}
	if _, r := reopened(t, Options{Path: path}); r.Unclean || r.Quarantined != "" {
		t.Errorf("report %+v", r)
	}
}

func TestCompactAtStart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	FillHistory(t, path, 2*compactAbove)
	s, r := reopened(t, Options{Path: path})
	if r.Compacted {
		t.Errorf("a full file was compacted: %+v", r)
	}
	if _, err := s.TrimHistory(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	before, err := s.Info(ctx)
	must(t, err)
	Closed(t, s)
	s, r = reopened(t, Options{Path: path})
	after, err := s.Info(ctx)
	if err != nil || !r.Compacted || after.Bytes > before.Bytes/2 || after.History != 1000 || after.Revision != before.Revision {
		t.Errorf("report %+v, %d -> %d bytes, %v", r, before.Bytes, after.Bytes, err)
	}
	Closed(t, s)
	if _, r = reopened(t, Options{Path: path}); r.Compacted {
		t.Errorf("compacted again: %+v", r)
	}
}

// slowWriter blocks in the middle of a copy until it is let go.
type slowWriter struct {
	bytes.Buffer
	reached, goOn chan struct{}
	once          sync.Once
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.reached); <-w.goOn })
	return w.Buffer.Write(p)
}

// TestBackup: a copy whose reader is slow holds up neither writers nor a compaction, and is of one
// moment.
func TestBackup(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	hourly(t, s, 50)
	slow := &slowWriter{reached: make(chan struct{}), goOn: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		if n, err := s.Backup(ctx, slow); err != nil || n != int64(slow.Len()) {
			t.Errorf("backup of %d bytes, %v", n, err)
		}
	})
	<-slow.reached
	for i := range 200 {
		must(t, s.PutFact(ctx, fmt.Sprint(i), bytes.Repeat([]byte("x"), 20_000)))
	}
	if _, _, err := s.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	close(slow.goOn)
	all.Wait()
	must(t, os.WriteFile(path+"2", slow.Bytes(), 0o600))
	copied, r := reopened(t, Options{Path: path + "2"})
	if i, err := copied.Info(ctx); err != nil || i.History != 50 || i.Facts != 0 || r.Quarantined != "" {
		t.Errorf("copy %+v, %v, report %+v", i, err, r)
	}
	broken := errors.New("pipe broke")
	if _, err := s.Backup(ctx, failing{broken}); !errors.Is(err, broken) {
		t.Errorf("backup to a broken writer: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

var _ io.Writer = failing{}

// TestDamageInUse: damage that comes while the file is open is an error of what reads it, never a
// value, and the next start rebuilds.
func TestDamageInUse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := Open(ctx, Options{Path: path})
	must(t, err)
	for i := range 200 {
		must(t, s.PutFact(ctx, fmt.Sprintf("%03d", i), []byte(strings.Repeat("fact", 100))))
	}
	data, err := os.ReadFile(path)
	must(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	for at := 4096 * 2; at < len(data); at += 4096 {
		// The middle of every page: bodies of records.
		if _, err := f.WriteAt([]byte{data[at+2000] ^ 1}, int64(at+2000)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, f.Close())
	bad := 0
	for i := range 200 {
		v, err := s.Fact(ctx, fmt.Sprintf("%03d", i))
		switch {
		case errors.Is(err, ErrCorrupt):
			bad++
		case err != nil || string(v) != strings.Repeat("fact", 100):
			t.Errorf("fact %d: %.20q, %v", i, v, err)
		}
	}
	if bad == 0 {
		t.Error("no read met the damage")
	}
	if _, err := s.Facts(ctx, ""); !errors.Is(err, ErrCorrupt) {
		t.Errorf("facts: %v", err)
	}
	if r, err := s.Check(ctx); err != nil || len(r.Problems) == 0 {
		t.Errorf("check: %+v, %v", r, err)
	}
	if _, _, err := s.Compact(ctx); !errors.Is(err, ErrCorrupt) {
		t.Errorf("compact: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, r := reopened(t, Options{Path: path})
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) < 200-bad || r.Quarantined == "" || r.Lost == 0 || !r.Unclean {
		t.Errorf("%d facts, %v, report %+v", len(facts), err, r)
	}
}

// noErrors has nothing at any index.
var noErrors []error

// TestGuard: panics and memory faults leave the room as ErrCorrupt.
func TestGuard(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	cases := []struct {
		name string
		fn   func() error
		want error
	}{
		{"nothing", func() error { return nil }, nil},
		{"error", func() error { return plain }, plain},
		{"panic", func() error { panic("assertion failed: page 7 already freed") }, ErrCorrupt},
		{"index", func() error { return noErrors[len(os.Args)+100] }, ErrCorrupt},
		{"fault", faultInMap(t), ErrCorrupt},
	}
	for _, c := range cases {
		if err := repair.Guard(c.fn); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestSeal: only what the last owner sealed is opened without verification.
func TestSeal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	someFacts(s)
	if isSealed(path) {
		t.Error("sealed while in use")
	}
	Closed(t, s)
	if !isSealed(path) {
		t.Error("not sealed after a clean close")
	}
	sealed, err := os.ReadFile(path)
	must(t, err)
	metas := repair.ReadHeads(bytes.NewReader(sealed))
	end := metas[0].High * uint64(metas[0].Page)
	for name, at := range map[string]uint64{
		"first head": 20, "second head": 4096 + 40, "list of free pages": metas[0].Freelist*4096 + 10, "seal": end + 3,
	} {
		spoilt := append([]byte{}, sealed...)
		spoilt[at] ^= 4
		must(t, os.WriteFile(path, spoilt, 0o600))
		if isSealed(path) {
			t.Errorf("sealed with a flipped bit in the %s", name)
		}
		s, r := reopened(t, Options{Path: path})
		facts, err := s.Facts(context.Background(), "")
		if err != nil || len(facts) != 300 || r.Lost != 0 {
			t.Errorf("flipped bit in the %s: %d facts, %v, %+v", name, len(facts), err, r)
		}
		Closed(t, s)
	}
	if isSealed(path + ".absent") {
		t.Error("an absent file is sealed")
	}
}

// TestScrub: damage to a large file, which a clean start does not look for, is found later and
// mended at the next start.
func TestScrub(t *testing.T) {
	path := filepath.Join(quickDir(t), "limpet.db")
	FillHistory(t, path, inlineCheck+4<<20)
	data, err := os.ReadFile(path)
	must(t, err)
	metas := repair.ReadHeads(bytes.NewReader(data))
	walk := repair.NewWalk(&repair.Pages{R: bytes.NewReader(data), Size: int64(len(data)), Page: 4096, High: metas[0].High},
		func(frame.Bucket, []byte, []byte) error { return nil })
	must(t, walk.Run(metas[0].Root))
	for id := metas[0].High / 2; ; id++ {
		if p, err := repair.ParsePage(data[id*4096 : id*4096+4096]); walk.Seen.Has(id) && err == nil && p.Id == id && p.Flags == repair.LeafPage {
			clear(data[id*4096 : id*4096+4096])
			break
		}
	}
	must(t, os.WriteFile(path, data, 0o600))
	synctest.Test(t, func(t *testing.T) {
		s, r, err := Open(context.Background(), Options{Path: path})
		if err != nil || r.Quarantined != "" {
			t.Fatal(r, err)
		}
		if err := s.PutFact(context.Background(), "k", []byte("v")); err != nil || s.damaged.Load() {
			t.Errorf("use before the verification: %v", err)
		}
		<-time.After(verifyAfter + time.Second)
		synctest.Wait()
		if !s.damaged.Load() {
			t.Error("damage was not found")
		}
		<-s.Damaged()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s, r := reopened(t, Options{Path: path})
	if v, err := s.Fact(context.Background(), "k"); err != nil || string(v) != "v" || r.Quarantined == "" || r.Lost == 0 {
		t.Errorf("fact %q, %v, report %+v", v, err, r)
	}
}
