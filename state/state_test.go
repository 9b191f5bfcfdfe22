package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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

func TestFirstUse(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "a", "b", "limpet.db")
	s, r := reopened(t, Options{Path: path})
	if !r.Created || r.Unclean {
		t.Errorf("report of a new file: %+v", r)
	}
	if err := s.PutClaim(ctx, Claim{UID: "u1", Name: "job", Phase: PhaseIntent}); err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(ctx, "u1", Record{State: "success", Finished: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := s.EndClaim(ctx, "u1", "posted"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSecret(ctx, "a", []byte("hidden")); err != nil {
		t.Fatal(err)
	}
	o, err := s.Mutate(ctx, ObjectKey{"/secrets", "ns", "n"}, func(cur *Object, rev uint64) (Mutation, error) {
		return Mutation{Data: []byte(`{}`)}, nil
	})
	if err != nil || o.Revision == 0 {
		t.Fatal(o, err)
	}
	Closed(t, s)
	s, r = reopened(t, Options{Path: path})
	if r.Created || r.Unclean {
		t.Errorf("report of an old file: %+v", r)
	}
	rs, err := s.History(ctx, Query{})
	if err != nil || len(rs) != 1 || rs[0].HistoricJob != "posted" || rs[0].UID != "u1" {
		t.Errorf("history %+v, %v", rs, err)
	}
	if p, err := s.Secret(ctx, "a"); err != nil || string(p) != "hidden" {
		t.Errorf("secret %q, %v", p, err)
	}
	if _, err := s.Claim(ctx, "u1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("claim: %v", err)
	}
	_, _, err = Open(ctx, Options{Path: path})
	var l *LockedError
	if !errors.As(err, &l) || l.PID != os.Getpid() {
		t.Errorf("second open: %v", err)
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
