package git

import (
	"context"
	"fmt"
	"path/filepath"

	"limpet/sync/git/lfs"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
)

// Large brings files that Git LFS keeps, and Pointer stands for one in a tree.
type (
	Large   = lfs.Pull
	Pointer = lfs.Pointer
)

// MaxPointer is the size up to which a file may be a pointer, in bytes.
const MaxPointer = lfs.MaxPointer

// ParsePointer reports whether the content of a File of Git LFS is a pointer, and reads it.
func ParsePointer(data []byte) (Pointer, bool, error) { return lfs.ParsePointer(data) }

// largeDir is the directory of the cache of Git LFS.
const largeDir = "lfs"

// Large begins a pull's share of what Git LFS keeps for the files of a commit. It makes no request.
func (m *Mirrors) Large(r Remote, ref Ref) *Large { return m.large.Pull(m.largeOf(r, ref)) }

// LargeWithin is the share of a submodule. What it takes counts with what l takes, and they fetch in
// turn. Close it too.
func (m *Mirrors) LargeWithin(l *Large, sub Submodule) *Large {
	return l.Within(m.largeOf(sub.Remote, Ref{Hash: sub.Commit}))
}

// largeOf is the Source of a commit, and the directory of its repository in the cache.
func (m *Mirrors) largeOf(r Remote, ref Ref) (lfs.Source, string) {
	return lfsSource{m, r, ref}, filepath.Base(m.dirOf(r))
}

// lfsSource is the lfs.Source of the files of a commit.
type lfsSource struct {
	m      *Mirrors
	remote Remote
	ref    Ref
}

func (s lfsSource) Ask(ctx context.Context, op string, do func(*transport.Call, bool) error) (int, error) {
	f := &failover{m: s.m, op: op, remote: s.remote, first: max(s.remote.server(s.ref.Via), 0), quiet: true}
	f.do = func(c *call) error { return do(c.exchange, !c.fallback) }
	return f.run(ctx)
}

func (s lfsSource) Begin(ctx context.Context, op string, server int) (*transport.Call, error) {
	c, err := s.m.beginAt(ctx, op, s.remote, server)
	if err != nil {
		return nil, err
	}
	return c.exchange, nil
}

func (s lfsSource) Ref() string { return s.ref.Name }

func (s lfsSource) Meter() *transfer.Meter { return s.remote.Meter }

func (s lfsSource) Limits() pack.Limits { return s.remote.Limits.Or(s.m.client.Options.Limits) }

func (s lfsSource) ServerURL(ctx context.Context) (string, error) {
	data, err := s.m.rootFile(ctx, s.remote, s.ref.Hash, ".lfsconfig")
	if err != nil || data == nil {
		return "", err
	}
	cfg, err := parseConfig(data)
	if err != nil {
		return "", &Error{Kind: Refused, Err: fmt.Errorf(".lfsconfig of the repository: %w", err)}
	}
	return cfg.Section("lfs").Option("url"), nil
}

// rootFile reads a file of configuration in the root of a commit; nil for none.
func (m *Mirrors) rootFile(ctx context.Context, r Remote, commit, name string) ([]byte, error) {
	var data []byte
	err := m.read(ctx, "read "+name, r, func(v *reading) error {
		_, c, err := v.commit(commit)
		if err != nil {
			return err
		}
		entries, _, err := v.directory(c.Tree, "")
		if err != nil {
			return err
		}
		data = nil
		for _, e := range entries {
			if e.Name == name && e.Mode != pack.ModeTree {
				data, err = v.store.ReadKind(e.ID, pack.BlobKind, min(maxConfig, v.limits.ObjectBytes))
			}
		}
		return err
	})
	return data, err
}
