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
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/revlist"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// A repository on this host is served in process: go-git's own file transport starts
// git-upload-pack, and there may be no git. The pack still goes through the same inspection as one
// from the wire.

// localSession serves a bare repository, or the .git of a worktree.
type localSession struct {
	call  *Call
	store *filesystem.Storage
	done  chan struct{} // closed when the encoder has ended; nil when it never began
	pipe  *io.PipeReader
}

func (c *Call) localSession() (*localSession, error) {
	store, err := OpenLocal(c.Addr.Path)
	return &localSession{call: c, store: store}, err
}

// OpenLocal opens a repository through go-git. ErrRepositoryNotFound when there is none.
func OpenLocal(dir string) (*filesystem.Storage, error) {
	dir = gitDir(dir)
	if _, err := os.Stat(filepath.Join(dir, "objects")); errors.Is(err, fs.ErrNotExist) {
		return nil, transport.ErrRepositoryNotFound
	} else if err != nil {
		return nil, err
	}
	for _, name := range []string{"objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil && !isBelow([]string{dir}, filepath.Join(dir, name)) {
			return nil, giterr.New(giterr.Refused, "its directory "+name+" is a link that leads out of the repository",
				"name the repository that it leads to, or clone this one")
		}
	}
	store := filesystem.NewStorage(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(4*cache.MiByte))
	if cfg, err := store.Config(); err == nil && cfg.Raw.Section("extensions").Option("objectformat") == "sha256" {
		return nil, giterr.SHA256
	}
	return store, nil
}

// gitDir returns what has the objects of a repository: its directory, or the .git of a worktree.
func gitDir(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, ".git", "objects")); err == nil {
		return filepath.Join(dir, ".git")
	}
	return dir
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
		var data []byte
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
			data, err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		name, rerr := filepath.Rel(dir, path)
		if id, ok := pack.ParseID(strings.TrimSpace(string(data))); ok && rerr == nil {
			refs[filepath.ToSlash(name)] = id
		}
		return errors.Join(err, rerr)
	})
	return refs, err
}

// UploadPack sends what is wanted, a commit or a tag of one, with as much history as is asked for
// and never more than one commit unasked, and of the trees what those of haves do not hold.
func (s *localSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	ids, commit, err := peel(s.store, req.Wants[0])
	if err != nil {
		return nil, fmt.Errorf("upload-pack: not our ref %s: %w", req.Wants[0], err)
	}
	depth, _ := req.Depth.(packp.DepthCommits)
	var update packp.ShallowUpdate
	var commits, trees, known []pack.ID
	met := map[pack.ID]bool{commit: true}
	level := []pack.ID{commit}
	for left := max(int(depth), 1); len(level) > 0; left-- {
		var next []pack.ID
		for _, id := range level {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c, err := object.GetCommit(s.store, id)
			if err != nil {
				return nil, fmt.Errorf("upload-pack: not our ref %s: %w", id, err)
			}
			commits, trees = append(commits, id), append(trees, c.TreeHash)
			if left == 1 && len(c.ParentHashes) > 0 {
				update.Shallows = append(update.Shallows, id)
				continue
			}
			for _, p := range c.ParentHashes {
				if !met[p] {
					met[p] = true
					next = append(next, p)
				}
			}
		}
		level = next
	}
	for _, have := range req.Haves { // those that the repository does not know are left out
		if c, err := object.GetCommit(s.store, have); err == nil {
			known = append(known, c.TreeHash)
		}
	}
	below, err := revlist.Objects(s.store, trees, known)
	if err != nil {
		return nil, err
	}
	ids = slices.Concat(ids, commits, below)
	for _, id := range req.Shallows {
		if slices.Contains(commits, id) && !slices.Contains(update.Shallows, id) {
			update.Unshallows = append(update.Unshallows, id)
		}
	}
	r, w := io.Pipe()
	s.pipe, s.done = r, make(chan struct{})
	go func() { // Close waits for it
		defer close(s.done)
		w.CloseWithError(pack.EncodeTo(w, len(ids), func(yield func(pack.Packed, error) bool) {
			for _, id := range ids {
				if o, err := s.read(id); !yield(o.Pack(), err) {
					return
				}
			}
		}))
	}()
	res := packp.NewUploadPackResponseWithPackfile(req, counted{r, s.call})
	res.ShallowUpdate = update
	return res, nil
}

// read reads an object of the repository.
func (s *localSession) read(id pack.ID) (whole pack.Object, err error) {
	o, err := s.store.EncodedObject(plumbing.AnyObject, id)
	if err != nil {
		return whole, err
	}
	r, err := o.Reader()
	if err != nil {
		return whole, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return pack.Object{ID: id, Kind: o.Type(), Data: data}, err
}

// Close ends the session and waits for its encoder.
func (s *localSession) Close() error {
	if s.done != nil {
		s.pipe.Close()
		<-s.done
	}
	return s.store.Close()
}

// peel follows tags to what they point to in the end.
func peel(s storer.EncodedObjectStorer, id pack.ID) (tags []pack.ID, target pack.ID, err error) {
	for range pack.MaxTags {
		t, err := object.GetTag(s, id)
		if errors.Is(err, plumbing.ErrObjectNotFound) { // no tag
			return tags, id, s.HasEncodedObject(id)
		}
		if err != nil {
			return tags, id, err
		}
		tags, id = append(tags, id), t.Target
	}
	return tags, id, errors.New("tags of tags have no end")
}
