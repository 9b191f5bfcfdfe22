package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"

	"limpet/sync/auth"
)

// Mirrors is a directory of bare mirrors.
type Mirrors struct {
	dir string
	mu  sync.Mutex
}

// Open uses dir, made when missing, for mirrors.
func Open(dir string, o Options) (*Mirrors, error) {
	return &Mirrors{dir: dir}, os.MkdirAll(dir, 0o700)
}

// Close releases what the mirrors hold open.
func (m *Mirrors) Close() error { return nil }

func (m *Mirrors) repo(r Remote) (*gogit.Repository, auth.Address, error) {
	a, err := auth.ParseAddress(r.URL)
	if err != nil {
		return nil, a, &Error{Kind: Refused, Op: "open", Err: err}
	}
	sum := sha256.Sum256([]byte(a.Key()))
	dir := filepath.Join(m.dir, hex.EncodeToString(sum[:16]))
	repo, err := gogit.PlainOpen(dir)
	if errors.Is(err, gogit.ErrRepositoryNotExists) {
		repo, err = gogit.PlainInit(dir, true)
	}
	return repo, a, err
}

func (r Remote) method() transport.AuthMethod {
	if r.Creds == nil {
		return nil
	}
	if r.Creds.Bearer != "" {
		return &http.TokenAuth{Token: r.Creds.Bearer}
	}
	return &http.BasicAuth{Username: r.Creds.Username, Password: r.Creds.Password}
}

// Resolve asks the remote what branch stands for; "" is its HEAD.
func (m *Mirrors) Resolve(ctx context.Context, r Remote, branch string) (Ref, error) {
	repo, a, err := m.repo(r)
	if err != nil {
		return Ref{}, err
	}
	rem := gogit.NewRemote(repo.Storer, &config.RemoteConfig{Name: "origin", URLs: []string{a.String()}})
	refs, err := rem.ListContext(ctx, &gogit.ListOptions{Auth: r.method()})
	if err != nil {
		return Ref{}, &Error{Kind: Unreachable, Op: "resolve", URL: a.String(), Err: err}
	}
	want := "refs/heads/" + branch
	if branch == "" {
		want = "HEAD"
		for _, ref := range refs {
			if ref.Name() == plumbing.HEAD && ref.Type() == plumbing.SymbolicReference {
				want = ref.Target().String()
			}
		}
	}
	for _, ref := range refs {
		if ref.Name().String() == want {
			return Ref{Name: want, Hash: ref.Hash().String()}, nil
		}
	}
	return Ref{}, &Error{Kind: BranchNotFound, Op: "resolve", URL: a.String(), Err: fmt.Errorf("no branch %q", branch)}
}

// Fetch brings the commit of ref into the mirror.
func (m *Mirrors) Fetch(ctx context.Context, r Remote, ref Ref) (Stats, error) {
	repo, a, err := m.repo(r)
	if err != nil {
		return Stats{}, err
	}
	if _, err := repo.CommitObject(plumbing.NewHash(ref.Hash)); err == nil {
		return Stats{}, nil
	}
	rem := gogit.NewRemote(repo.Storer, &config.RemoteConfig{Name: "origin", URLs: []string{a.String()}})
	o := &gogit.FetchOptions{Auth: r.method(), Tags: gogit.NoTags, Force: true,
		RefSpecs: []config.RefSpec{config.RefSpec("+" + ref.Name + ":" + ref.Name)}}
	full := false
	if _, err := repo.Reference(plumbing.ReferenceName(ref.Name), true); err != nil {
		o.Depth, full = 1, true
	}
	if err := rem.FetchContext(ctx, o); err != nil {
		return Stats{}, &Error{Kind: Unreachable, Op: "fetch", URL: a.String(), Err: err}
	}
	return Stats{Full: full, Requests: 2}, nil
}

func (m *Mirrors) root(r Remote, commit, dir string) (*object.Tree, error) {
	repo, a, err := m.repo(r)
	if err != nil {
		return nil, err
	}
	c, err := repo.CommitObject(plumbing.NewHash(commit))
	if err != nil {
		return nil, &Error{Kind: Corrupt, Op: "read commit", URL: a.String(), Err: errors.Join(ErrUnknownCommit, err)}
	}
	t, err := c.Tree()
	if err == nil && dir != "" {
		t, err = t.Tree(dir)
	}
	return t, err
}

// Tree lists dir at commit.
func (m *Mirrors) Tree(ctx context.Context, r Remote, commit, dir string) (Tree, error) {
	t, err := m.root(r, commit, dir)
	if err != nil {
		return Tree{}, err
	}
	out := Tree{Commit: commit}
	w := object.NewTreeWalker(t, true, nil)
	defer w.Close()
	for {
		name, e, err := w.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Tree{}, err
		}
		if !e.Mode.IsFile() {
			out.Dirs = append(out.Dirs, name)
			continue
		}
		size, err := t.Size(name)
		if err != nil {
			return Tree{}, err
		}
		out.Files = append(out.Files, File{Path: name, Hash: e.Hash.String(), Size: size, Mode: strings.TrimPrefix(e.Mode.String(), "0")})
	}
	sort.Slice(out.Files, func(i, j int) bool { return out.Files[i].Path < out.Files[j].Path })
	sort.Strings(out.Dirs)
	return out, nil
}

// Changes lists what differs between two commits below dir.
func (m *Mirrors) Changes(ctx context.Context, r Remote, from, to, dir string) ([]Change, error) {
	a, err := m.root(r, from, dir)
	if err != nil {
		return nil, err
	}
	b, err := m.root(r, to, dir)
	if err != nil {
		return nil, err
	}
	diff, err := object.DiffTreeWithOptions(ctx, a, b, object.DefaultDiffTreeOptions)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, c := range diff {
		ch := Change{Path: c.To.Name, Hash: c.To.TreeEntry.Hash.String(), FromHash: c.From.TreeEntry.Hash.String()}
		switch {
		case c.From.Name == "":
			ch.Type, ch.FromHash = ChangeAdded, ""
		case c.To.Name == "":
			ch.Type, ch.Path, ch.Hash = ChangeDeleted, c.From.Name, ""
		case c.From.Name != c.To.Name:
			ch.Type, ch.From = ChangeRenamed, c.From.Name
		default:
			ch.Type = ChangeModified
		}
		out = append(out, ch)
	}
	return out, nil
}

// Blob reads a file's content.
func (m *Mirrors) Blob(ctx context.Context, r Remote, hash string, max int64) ([]byte, error) {
	repo, _, err := m.repo(r)
	if err != nil {
		return nil, err
	}
	b, err := repo.BlobObject(plumbing.NewHash(hash))
	if err != nil {
		return nil, err
	}
	if max > 0 && b.Size > max {
		return nil, &TooLargeError{What: "object", Size: b.Size, Limit: max}
	}
	rd, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	data, err := io.ReadAll(rd)
	if err == nil && plumbing.ComputeHash(plumbing.BlobObject, data).String() != hash {
		return nil, &Error{Kind: Corrupt, Op: "read blob", Err: errors.New("hash mismatch")}
	}
	return data, err
}

// Commit reads a commit.
func (m *Mirrors) Commit(ctx context.Context, r Remote, hash string) (CommitInfo, error) {
	repo, _, err := m.repo(r)
	if err != nil {
		return CommitInfo{}, err
	}
	c, err := repo.CommitObject(plumbing.NewHash(hash))
	if err != nil {
		return CommitInfo{}, err
	}
	subject, _, _ := strings.Cut(c.Message, "\n")
	return CommitInfo{Hash: hash, Tree: c.TreeHash.String(), Author: c.Author.String(), When: c.Author.When, Subject: subject}, nil
}
