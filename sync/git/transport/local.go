package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// A repository on this host is served in process: go-git's own file transport
// starts git-upload-pack, and there may be no git. The pack still goes through
// the same inspection as one from the wire.

// localSession serves a bare repository, or the .git of a worktree.
type localSession struct {
	call  *Call
	store *filesystem.Storage
	done  chan struct{} // closed when the encoder has ended; nil when it never began
	pipe  *io.PipeReader
}

func (c *Call) localSession() (session, error) {
	store, err := OpenLocal(c.Addr.Path)
	if err != nil {
		return nil, err
	}
	return &localSession{call: c, store: store}, nil
}

// OpenLocal opens a repository through go-git. ErrRepositoryNotFound when
// there is none.
func OpenLocal(dir string) (*filesystem.Storage, error) {
	if _, err := os.Stat(filepath.Join(dir, ".git", "objects")); err == nil {
		dir = filepath.Join(dir, ".git")
	}
	if _, err := os.Stat(filepath.Join(dir, "objects")); errors.Is(err, fs.ErrNotExist) {
		return nil, transport.ErrRepositoryNotFound
	} else if err != nil {
		return nil, err
	}
	return filesystem.NewStorage(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(4*cache.MiByte)), nil
}

// AdvertisedReferencesContext lists the refs of the repository.
func (s *localSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	adv := packp.NewAdvRefs()
	for _, name := range []capability.Capability{capability.OFSDelta, capability.Shallow} {
		adv.Capabilities.Set(name)
	}
	refs, err := LocalRefs(s.store.Filesystem().Root())
	if err != nil {
		return nil, err
	}
	for name, id := range refs {
		adv.References[name] = id
		if strings.HasPrefix(name, "refs/tags/") {
			if tags, target, err := peel(s.store, id); err == nil && len(tags) > 0 {
				adv.Peeled[name] = target
			}
		}
	}
	if len(adv.References) == 0 {
		return nil, transport.ErrEmptyRemoteRepository
	}
	if head, err := s.store.Reference(plumbing.HEAD); err == nil && head.Type() == plumbing.SymbolicReference {
		adv.Capabilities.Add(capability.SymRef, "HEAD:"+head.Target().String())
	}
	return adv, nil
}

// LocalRefs are the refs of a repository on this host. go-git takes the lock files of
// those who are about to change one for refs as well.
func LocalRefs(dir string) (map[string]pack.ID, error) {
	refs, err := pack.ReadRefs(dir)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(filepath.Join(dir, "refs"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".lock") {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if id, ok := pack.ParseID(strings.TrimSpace(string(data))); ok {
			refs[filepath.ToSlash(name)] = id
		}
		return nil
	})
	return refs, err
}

// UploadPack sends what is wanted, a commit or a tag of one, with as much history as
// is asked for and never more than one commit unasked, and of the trees what those
// of haves do not hold.
func (s *localSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	tags, commit, err := peel(s.store, req.Wants[0])
	if err != nil {
		return nil, fmt.Errorf("upload-pack: not our ref %s: %w", req.Wants[0], err)
	}
	depth, _ := req.Depth.(packp.DepthCommits)
	commits, ends, err := s.history(ctx, commit, max(int(depth), 1))
	if err != nil {
		return nil, err
	}
	ids, err := s.missing(ctx, commits, req.Haves)
	if err != nil {
		return nil, err
	}
	ids = append(ids, tags...)
	r, w := io.Pipe()
	s.pipe, s.done = r, make(chan struct{})
	go func() { // Close waits for it
		defer close(s.done)
		_, err := packfile.NewEncoder(w, s.store, false).Encode(ids, 10)
		w.CloseWithError(err)
	}()
	res := packp.NewUploadPackResponseWithPackfile(req, counted{r, s.call})
	res.Shallows = ends
	for _, id := range req.Shallows {
		if slices.Contains(commits, id) && !slices.Contains(ends, id) {
			res.Unshallows = append(res.Unshallows, id)
		}
	}
	return res, nil
}

// Close ends the session and waits for its encoder.
func (s *localSession) Close() error {
	if s.done != nil {
		s.pipe.Close()
		<-s.done
	}
	return s.store.Close()
}

// history lists the commits that are at most depth steps away, and those among them
// whose parents are not.
func (s *localSession) history(ctx context.Context, tip pack.ID, depth int) (commits, ends []pack.ID, err error) {
	met := map[pack.ID]bool{tip: true}
	for level := []pack.ID{tip}; len(level) > 0; depth-- {
		var next []pack.ID
		for _, id := range level {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			c, err := commitOf(s.store, id)
			if err != nil {
				return nil, nil, err
			}
			commits = append(commits, id)
			if depth == 1 && len(c.Parents) > 0 {
				ends = append(ends, id)
				continue
			}
			for _, p := range c.Parents {
				if !met[p] {
					met[p] = true
					next = append(next, p)
				}
			}
		}
		level = next
	}
	return commits, ends, nil
}

// peel follows tags to what they point to in the end.
func peel(s storer.EncodedObjectStorer, id pack.ID) (tags []pack.ID, target pack.ID, err error) {
	for range pack.MaxTags {
		o, err := s.EncodedObject(plumbing.AnyObject, id)
		if err != nil || o.Type() != pack.TagKind {
			return tags, id, err
		}
		data, err := RawObject(s, id, pack.TagKind)
		if err != nil {
			return tags, id, err
		}
		tags = append(tags, id)
		if id, err = pack.ParseTag(data); err != nil {
			return tags, id, err
		}
	}
	return tags, id, errors.New("tags of tags have no end")
}

// missing lists the commits and every tree and blob below them, without what the
// trees of haves hold. Haves that the repository does not know are left out.
func (s *localSession) missing(ctx context.Context, commits, haves []pack.ID) ([]pack.ID, error) {
	seen := make(map[pack.ID]bool)
	var ids []pack.ID
	var walk func(tree pack.ID, depth int) error
	walk = func(tree pack.ID, depth int) error {
		if seen[tree] {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if depth > maxLocalDepth {
			return &giterr.TooLargeError{Count: true, What: "depth of directories", Size: int64(depth), Limit: maxLocalDepth}
		}
		seen[tree] = true
		ids = append(ids, tree)
		data, err := RawObject(s.store, tree, plumbing.TreeObject)
		if err != nil {
			return err
		}
		entries, err := pack.ParseTree(data)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.Mode == pack.ModeTree:
				err = walk(e.ID, depth+1)
			case e.Mode != pack.ModeSubmodule && !seen[e.ID]:
				seen[e.ID] = true
				ids = append(ids, e.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, have := range haves {
		if tree, err := TreeOf(s.store, have); err == nil {
			if err := walk(tree, 0); err != nil && ctx.Err() != nil {
				return nil, err
			}
		}
	}
	ids = slices.Clone(commits)
	for _, commit := range commits {
		tree, err := TreeOf(s.store, commit)
		if err == nil {
			err = walk(tree, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// maxLocalDepth only keeps the walk from running away; the limit of the remote
// is applied when the tree is read.
const maxLocalDepth = 1000

func TreeOf(s storer.EncodedObjectStorer, id pack.ID) (pack.ID, error) {
	c, err := commitOf(s, id)
	return c.Tree, err
}

func commitOf(s storer.EncodedObjectStorer, id pack.ID) (pack.Commit, error) {
	data, err := RawObject(s, id, pack.CommitKind)
	if err != nil {
		return pack.Commit{}, fmt.Errorf("upload-pack: not our ref %s: %w", id, err)
	}
	return pack.ParseCommit(data)
}

func RawObject(s storer.EncodedObjectStorer, id pack.ID, k pack.Kind) ([]byte, error) {
	o, err := s.EncodedObject(k, id)
	if err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
