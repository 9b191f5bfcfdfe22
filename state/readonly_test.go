package state

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.etcd.io/bbolt"

	"limpet/state/repair"
)

// TestCopiesOfEitherParity: the copy after each of four commits has its heads in their slots and
// stays sound over looks and short uses; also one whose heads bbolt itself has placed.
func TestCopiesOfEitherParity(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	misplaced := 0
	for i := range 4 {
		must(t, s.PutFact(ctx, "k", []byte(strconv.Itoa(i))))
		var ours, bolts bytes.Buffer
		_, err := s.Backup(ctx, &ours)
		must(t, err)
		must(t, s.view(ctx, func(v view) error {
			_, err := v.tx.WriteTo(&bolts)
			return err
		}))
		if repair.Misplaced(bytes.NewReader(ours.Bytes())) {
			t.Errorf("copy %d: the newest head is in the wrong slot", i)
		}
		if repair.Misplaced(bytes.NewReader(bolts.Bytes())) {
			misplaced++
		}
		for name, data := range map[string][]byte{"ours": ours.Bytes(), "bolts": bolts.Bytes()} {
			copied := filepath.Join(t.TempDir(), name+".db")
			must(t, os.WriteFile(copied, data, 0o600))
			for range 3 {
				r, _, err := Open(ctx, Options{Path: copied, ReadOnly: true})
				must(t, err)
				if v, err := r.Fact(ctx, "k"); err != nil || string(v) != strconv.Itoa(i) {
					t.Errorf("%s %d: fact %q, %v", name, i, v, err)
				}
				if err := r.PutFact(ctx, "k", nil); !errors.Is(err, ErrReadOnly) {
					t.Errorf("%s %d: a write: %v", name, i, err)
				}
				if _, _, err := r.Compact(ctx); !errors.Is(err, ErrReadOnly) {
					t.Errorf("%s %d: a compaction: %v", name, i, err)
				}
				Closed(t, r)
				if now, err := os.ReadFile(copied); err != nil || !bytes.Equal(now, data) {
					t.Fatalf("%s %d: a look changed the file: %v", name, i, err)
				}
			}
			if left, err := os.ReadDir(filepath.Dir(copied)); err != nil || len(left) != 1 {
				t.Errorf("%s %d: left behind: %v, %v", name, i, left, err)
			}
			if repair.Misplaced(bytes.NewReader(data)) { // no space to mend it: it is not written to
				room := filepath.Join(copied+suffixCompacting, "taken")
				full := func(context.Context, string) error { return os.MkdirAll(room, 0o700) }
				if r, _, err := Open(ctx, Options{Path: copied, probe: full}); err == nil {
					Closed(t, r)
					t.Errorf("%s %d: opened for writing without a compaction", name, i)
				}
				if now, err := os.ReadFile(copied); err != nil || !bytes.Equal(now, data) {
					t.Fatalf("%s %d: a refused open changed the file: %v", name, i, err)
				}
				must(t, os.RemoveAll(filepath.Dir(room)))
			}
			for range 3 {
				r, report := reopened(t, Options{Path: copied})
				if report.Quarantined != "" {
					t.Fatalf("%s %d: %s", name, i, report.Damage)
				}
				Closed(t, r)
			}
		}
	}
	if misplaced != 2 {
		t.Errorf("bbolt misplaced %d of 4 heads: the test has nothing to hold", misplaced)
	}
}

// TestReadOnlyRefuses: what Open would make or mend is an error, and nothing is touched.
func TestReadOnlyRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sound := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: sound})
	must(t, s.PutFact(ctx, "k", []byte("v")))
	if _, _, err := Open(ctx, Options{Path: sound, ReadOnly: true}); !errors.As(err, new(*LockedError)) {
		t.Errorf("held by another: %v", err)
	}
	Closed(t, s)
	data, err := os.ReadFile(sound)
	must(t, err)
	bare := filepath.Join(t.TempDir(), "bare.db")
	db, err := bbolt.Open(bare, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	fresh, err := os.ReadFile(bare)
	must(t, err)
	torn := bytes.Clone(data)
	copy(torn[:repair.PageHeader+repair.MetaLen], make([]byte, repair.PageHeader+repair.MetaLen))
	for name, tt := range map[string]struct {
		data []byte
		want error
	}{
		"missing": {nil, fs.ErrNotExist},
		"empty":   {[]byte{}, ErrCorrupt},
		"fresh":   {fresh, ErrReadOnly},
		"torn":    {torn, ErrCorrupt},
		"short":   {data[:12<<10], ErrCorrupt},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name+".db")
		want := 0
		if tt.data != nil {
			must(t, os.WriteFile(path, tt.data, 0o640))
			want = 1
		}
		if _, _, err := Open(ctx, Options{Path: path, ReadOnly: true}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != want {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
		if now, err := os.ReadFile(path); want == 1 && (err != nil || !bytes.Equal(now, tt.data)) {
			t.Errorf("%s: the file changed: %v", name, err)
		}
	}
}
