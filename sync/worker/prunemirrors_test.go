package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
)

// TestPruneMirrors: a mirror goes when no Repository uses it and it has rested long enough, and never while the cache
// of Repositories is incomplete.
func TestPruneMirrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repo.Add(t, "a.json")
	dir := t.TempDir()
	all, err := git.Open(dir, git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	used := git.Remote{URL: r.url, AllowInsecure: true}
	ref, err := all.Resolve(t.Context(), used, gitref.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Fetch(t.Context(), used, ref); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(dir, strings.Repeat("a", 32))
	if err := os.Mkdir(unused, 0o700); err != nil {
		t.Fatal(err)
	}
	left := func(want int, when string) {
		t.Helper()
		dirs, err := filepath.Glob(filepath.Join(dir, strings.Repeat("?", 32)))
		if err != nil || len(dirs) != want {
			t.Fatalf("%s: mirrors %q, want %d (%v)", when, dirs, want, err)
		}
	}
	p := MirrorPruner{Repos: r.client.Informer(api.Repositories, r.namespace, kube.InformerOptions{}), Mirrors: all, Store: r.store,
		Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	p.runOnce(ctx, 0)
	left(2, "before the watch has synced")
	r.repository(nil, nil)
	done := make(chan error, 1)
	go func() { done <- p.Repos.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if err := p.Repos.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	p.runOnce(ctx, time.Hour)
	left(2, "before one has rested")
	p.runOnce(ctx, 0)
	left(1, "afterwards")
	if _, err := os.Stat(unused); err == nil {
		t.Error("the one that is used is gone")
	}
}
