package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// ahead writes files before they are planned.
func ahead(t testing.TB, target Target, files tree) *Ahead {
	t.Helper()
	a := NewAhead(t.Context(), target, owner)
	if a == nil {
		t.Fatal("the directory has been written")
	}
	for _, f := range files.files() {
		f.UID = "uid of " + f.Path
		a.Write(f, []byte(files[f.Path]))
	}
	return a
}

// TestAhead: the first write takes files that were written ahead, once each, removes those that it
// does not want or that have another content, and makes the rest. What another writer, a fault or a
// pull that ends before leaves of them is never shown.
func TestAhead(t *testing.T) {
	t.Parallel()
	want := tree{"a.json": "A", "d/b.json": "B", "d/run.sh": "R", "left/c.json": "C", "new.json": "N", "stale.json": "S"}
	before := tree{"a.json": "A", "d/b.json": "B", "d/run.sh": "R", "left/c.json": "C", "stale.json": "old", "x/gone.json": "G",
		"../escape.json": "E"}
	shown := tree{"a.json": "A", "d/b.json": "B", "d/run.sh": "R", "new.json": "N", "stale.json": "S"}
	for name, spoil := range map[string]func(Target, *Ahead){
		"":           func(Target, *Ahead) {},
		"empty":      func(at Target, _ *Ahead) { _ = os.Mkdir(at.String(), 0o755) },
		"failed":     func(_ Target, a *Ahead) { a.failed = true },
		"removed":    func(at Target, a *Ahead) { _ = os.RemoveAll(filepath.Join(filepath.Dir(at.String()), a.stage())) },
		"superseded": func(at Target, _ *Ahead) { mustPut(t, at, "c0", tree{"a.json": "other"}) },
	} {
		target := permit(t)
		a := ahead(t, target, before)
		spoil(target, a)
		d, err := a.Open(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		p, err := d.Plan("c1", "", want.files())
		if err != nil {
			t.Fatal(name, err)
		}
		taken := 0
		err = d.Write(t.Context(), p, func(ctx context.Context, f File) (io.ReadCloser, error) {
			if f.Path == "left/c.json" {
				return nil, ErrLeftOut
			}
			if uid, there := d.Written(f); there {
				taken++
				f.UID = uid
				p.SetUID(f)
				return nil, nil
			}
			return want.read(ctx, f)
		}, func(File) {})
		if usable := name == "" || name == "empty"; err != nil || usable && taken != 3 || !usable && taken != 0 {
			t.Errorf("%q: %d taken, %v", name, taken, err)
		}
		_ = d.Close()
		if err := a.Close(); err != nil {
			t.Error(name, err)
		}
		check(t, target, shown)
		if got := mustPut(t, target, "c1", shown); len(got) > 0 {
			t.Errorf("%q: written again: %v", name, got)
		}
	}
	joined := permit(t)
	if err := os.MkdirAll(joined.String(), 0o755); err != nil {
		t.Fatal(err)
	}
	a := ahead(t, joined, tree{"a.json": "A", "b.json": "B"})
	d, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range (tree{"a.json": "A", "foreign.json": "F"}) {
		if err := os.WriteFile(filepath.Join(joined.String(), name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := d.Plan("c1", "", tree{"a.json": "A", "b.json": "B"}.files())
	if err == nil {
		err = d.Write(t.Context(), p, tree{"b.json": "B"}.read, func(File) {})
	}
	if err := errors.Join(err, d.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	check(t, joined, tree{"a.json": "A", "b.json": "B", "foreign.json": "F"})
	crashed := permit(t)
	ahead(t, crashed, before)
	ahead(t, crashed, before)
	if left, err := os.ReadDir(filepath.Dir(crashed.String())); len(left) != 1 || err != nil {
		t.Errorf("each crash leaves a directory: %v, %v", left, err)
	}
	unused := permit(t)
	if err := ahead(t, unused, before).Close(); err != nil || len(on(t, filepath.Dir(unused.String()))) > 0 {
		t.Error("left behind", err)
	}
	mustPut(t, unused, "c1", want)
	if NewAhead(t.Context(), unused, owner) != nil || NewAhead(t.Context(), unused, "default/other") != nil {
		t.Error("it is for the first write of its owner alone")
	}
}

// TestLeftOutAhead: a file that was written ahead and is left out does not take its directory away from
// one that is written there at the same moment. Files may be asked for before the write has begun.
func TestLeftOutAhead(t *testing.T) {
	t.Parallel()
	target, before, want := permit(t), tree{}, tree{}
	for i := range 300 {
		want[fmt.Sprintf("%d/a.json", i)], before[fmt.Sprintf("%d/b.json", i)] = "A", "B"
	}
	stale := tree{}
	for i := range 300 {
		stale[fmt.Sprintf("%d/c.json", i)] = "C"
	}
	all := maps.Clone(before)
	maps.Copy(all, stale)
	a := ahead(t, target, all)
	d, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all = maps.Clone(want)
	maps.Copy(all, before)
	files := all.files()
	reading, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	readers.Go(func() {
		for i := 0; reading.Err() == nil; i++ {
			d.Written(files[i%len(files)])
		}
	})
	p, err := d.Plan("c1", "", files)
	if err == nil {
		err = d.Write(t.Context(), p, func(ctx context.Context, f File) (io.ReadCloser, error) {
			if before[f.Path] != "" {
				return nil, ErrLeftOut
			}
			return want.read(ctx, f)
		}, func(File) {})
	}
	if err := errors.Join(err, d.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	check(t, target, want)
}
