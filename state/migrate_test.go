package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"limpet/state/frame"
)

// nextFormat is a schema after the present one, whose step moves a fact.
var nextFormat = format{version: current.version + 1, steps: map[int]func(*txn) error{
	current.version: func(t *txn) error {
		f, ok, err := t.get(frame.Facts, []byte("old"))
		if err != nil || !ok {
			return err
		}
		if err := t.put(frame.Facts, []byte("new"), f.Body); err != nil {
			return err
		}
		_, err = t.remove(frame.Facts, []byte("old"))
		return err
	},
}}

// written makes a closed file of a schema with one fact and returns its path.
func written(t *testing.T, f format, key string) string {
	t.Helper()
	path := filepath.Join(quickDir(t), "limpet.db")
	s, _, err := openAs(context.Background(), Options{Path: path}, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutFact(context.Background(), key, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	Closed(t, s)
	return path
}

// TestNewerSchema: a newer file is refused and stays as it is, after a clean and after an unclean stop, and also when
// its frames are of a version that this program does not know.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	for _, unclean := range []bool{false, true} {
		path := written(t, nextFormat, "k")
		if unclean {
			if err := os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := beside(t, path)
		_, _, err = Open(context.Background(), Options{Path: path})
		var newer *SchemaError
		if !errors.As(err, &newer) || newer.Have != nextFormat.version || newer.Want != current.version || newer.Path != path {
			t.Errorf("unclean %v: error %v", unclean, err)
		}
		if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, before) {
			t.Errorf("unclean %v: the file was changed, %v", unclean, err)
		}
		if left := beside(t, path); !slices.Equal(left, names) {
			t.Errorf("unclean %v: left %v of %v", unclean, left, names)
		}
	}
}

func TestOlderSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := written(t, current, "old")
	s, r, err := openAs(ctx, Options{Path: path}, nextFormat)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Fact(ctx, "new"); err != nil || string(v) != "kept" {
		t.Errorf("fact %q, %v", v, err)
	}
	if i, err := s.Info(ctx); err != nil || i.Schema != nextFormat.version || i.Facts != 1 {
		t.Errorf("info %+v, %v", i, err)
	}
	Closed(t, s)
	if info, err := os.Stat(r.Migrated); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("copy %q: %v", r.Migrated, err)
	}
	copied, _ := reopened(t, Options{Path: r.Migrated})
	if v, err := copied.Fact(ctx, "old"); err != nil || string(v) != "kept" {
		t.Errorf("fact of the copy %q, %v", v, err)
	}
	s, r, err = openAs(ctx, Options{Path: path}, nextFormat)
	if err != nil || r.Migrated != "" {
		t.Fatalf("second open: %+v, %v", r, err)
	}
	Closed(t, s)
}

// TestFailedMigration: the file stays what it was.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := written(t, current, "old")
	refused := errors.New("refused")
	broken := format{version: current.version + 1, steps: map[int]func(*txn) error{
		current.version: func(t *txn) error { return errors.Join(t.put(frame.Facts, []byte("half"), nil), refused) },
	}}
	for _, f := range []format{broken, {version: current.version + 2}} {
		if _, _, err := openAs(ctx, Options{Path: path}, f); err == nil || f.steps != nil && !errors.Is(err, refused) {
			t.Errorf("error %v", err)
		}
	}
	s := opened(t, Options{Path: path})
	facts, err := s.Facts(ctx, "")
	if err != nil || len(facts) != 1 || string(facts["old"]) != "kept" {
		t.Errorf("facts %q, %v", facts, err)
	}
}

// TestDamagedOlderFile is rebuilt in its own schema and then migrated.
func TestDamagedOlderFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := written(t, current, "old")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[:4096])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, r, err := openAs(ctx, Options{Path: path}, nextFormat)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Fact(ctx, "new"); err != nil || string(v) != "kept" || r.Quarantined == "" || r.Migrated == "" {
		t.Errorf("fact %q, %v, report %+v", v, err, r)
	}
	Closed(t, s)
}
