package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	call  *call
	store *filesystem.Storage
	done  chan struct{} // closed when the encoder has ended; nil when it never began
	pipe  *io.PipeReader
}

func (c *call) localSession() (session, error) {
	store, err := openLocal(c.addr.Path)
	if err != nil {
		return nil, err
	}
	return &localSession{call: c, store: store}, nil
}

// openLocal opens a repository through go-git. ErrRepositoryNotFound when
// there is none.
func openLocal(dir string) (*filesystem.Storage, error) {
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
	iter, err := s.store.IterReferences()
	if err != nil {
		return nil, err
	}
	err = iter.ForEach(func(ref *plumbing.Reference) error {
		if ref.Type() == plumbing.HashReference && strings.HasPrefix(ref.Name().String(), "refs/") {
			adv.References[ref.Name().String()] = ref.Hash()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(adv.References) == 0 {
		return nil, transport.ErrEmptyRemoteRepository
	}
	if head, err := s.store.Reference(plumbing.HEAD); err == nil && head.Type() == plumbing.SymbolicReference {
		adv.Capabilities.Add(capability.SymRef, "HEAD:"+head.Target().String())
	}
	return adv, nil
}

// UploadPack sends the one commit that is wanted, always as if at depth 1, and
// of its tree what the trees of haves do not hold.
func (s *localSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	ids, err := s.missing(ctx, req.Wants[0], req.Haves)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	s.pipe, s.done = r, make(chan struct{})
	go func() { // Close waits for it
		defer close(s.done)
		_, err := packfile.NewEncoder(w, s.store, false).Encode(ids, 10)
		w.CloseWithError(err)
	}()
	res := packp.NewUploadPackResponseWithPackfile(req, counted{r, s.call})
	res.Shallows = []plumbing.Hash{req.Wants[0]}
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

// missing lists the commit and every tree and blob below it, without what the
// trees of haves hold. Haves that the repository does not know are left out.
func (s *localSession) missing(ctx context.Context, commit objectID, haves []objectID) ([]objectID, error) {
	seen := make(map[objectID]bool)
	var ids []objectID
	var walk func(tree objectID, depth int) error
	walk = func(tree objectID, depth int) error {
		if seen[tree] {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if depth > maxLocalDepth {
			return &TooLargeError{Count: true, What: "depth of directories", Size: int64(depth), Limit: maxLocalDepth}
		}
		seen[tree] = true
		ids = append(ids, tree)
		data, err := rawObject(s.store, tree, plumbing.TreeObject)
		if err != nil {
			return err
		}
		entries, err := parseTree(data)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.mode == modeTree:
				err = walk(e.id, depth+1)
			case e.mode != modeSubmodule && !seen[e.id]:
				seen[e.id] = true
				ids = append(ids, e.id)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, have := range haves {
		if tree, err := treeOf(s.store, have); err == nil {
			if err := walk(tree, 0); err != nil && ctx.Err() != nil {
				return nil, err
			}
		}
	}
	ids = []objectID{commit}
	tree, err := treeOf(s.store, commit)
	if err == nil {
		err = walk(tree, 0)
	}
	return ids, err
}

// maxLocalDepth only keeps the walk from running away; the limit of the remote
// is applied when the tree is read.
const maxLocalDepth = 1000

func treeOf(s storer.EncodedObjectStorer, commit objectID) (objectID, error) {
	data, err := rawObject(s, commit, plumbing.CommitObject)
	if err != nil {
		return objectID{}, fmt.Errorf("upload-pack: not our ref %s: %w", commit, err)
	}
	c, err := parseCommit(data)
	return c.tree, err
}

func rawObject(s storer.EncodedObjectStorer, id objectID, k kind) ([]byte, error) {
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
