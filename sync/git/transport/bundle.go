package transport

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/bundle"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
)

// A directory of bundles is served in process as the repository that the newest of them holds: the one with the newest
// commit, and of several with the same the one that was written last. A file that is no valid bundle is passed over:
// it may be half copied. A bundle is read again only when its file has changed.

// BundleSuffix ends the names of the files of bundles.
const BundleSuffix = ".bundle"

// bundleMemory holds the bundles of a directory by name, as they were read last. It is immutable.
type bundleMemory map[string]checkedBundle

type checkedBundle struct {
	dirFile
	bundle.File
	err error // why it is not valid
}

// bundleSession serves a bundle.
type bundleSession struct {
	call *Call
	root *os.Root
	file *os.File
	head bundle.File
	refs *packp.AdvRefs
}

func (c *Call) bundleSession() (*bundleSession, error) {
	root, err := OpenDir(c.client.Options.AllowLocal, c.Addr.Path)
	if err != nil {
		return nil, err
	}
	return &bundleSession{call: c, root: root}, nil
}

// AdvertisedReferencesContext lists the refs of the newest bundle.
func (s *bundleSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	c := s.call
	names, err := fs.Glob(s.root.FS(), "*"+BundleSuffix)
	if err != nil {
		return nil, err
	}
	c.client.mu.Lock()
	old := c.client.bundles[c.Addr.Path]
	c.client.mu.Unlock()
	now, newest := bundleMemory{}, ""
	for _, name := range names {
		b, err := s.check(name, old[name])
		if err != nil {
			return nil, err
		}
		now[name] = b
		if b.err == nil && (newest == "" || newer(b, now[newest])) {
			newest = name
		}
	}
	c.client.mu.Lock()
	c.client.bundles[c.Addr.Path] = now
	c.client.mu.Unlock()
	if newest == "" {
		why := error(giterr.New(giterr.NotFound, "the directory has no file *"+BundleSuffix,
			"copy a bundle into it; a disk that is not mounted looks like this"))
		for _, name := range slices.Sorted(maps.Keys(now)) {
			why = now[name].err
		}
		return nil, why
	}
	if s.file, err = s.root.Open(newest); err != nil {
		return nil, changing(err)
	}
	if info, err := s.file.Stat(); err != nil || inodeOf(info) != now[newest].inode {
		return nil, cmp.Or(err, s.call.moved())
	}
	s.head = now[newest].File
	s.refs = advertise(s.head)
	return s.refs, nil
}

// advertise returns the refs of a bundle as a server lists them.
func advertise(b bundle.File) *packp.AdvRefs {
	adv := packp.NewAdvRefs()
	for _, name := range slices.Sorted(maps.Keys(b.Refs)) {
		id := b.Refs[name]
		if name == "HEAD" {
			continue
		}
		adv.References[name] = id
		for range pack.MaxTags {
			if target, annotated := b.Tags[id]; annotated {
				id, adv.Peeled[name] = target, target
			}
		}
		if id == b.Refs["HEAD"] {
			adv.Capabilities.Add(capability.SymRef, "HEAD:"+name)
		}
	}
	return adv
}

func newer(a, b checkedBundle) bool {
	return cmp.Or(a.Newest(a.changed).Compare(b.Newest(b.changed)), a.changed.Compare(b.changed)) > 0
}

// check reads a bundle, unless it is as it was. The error is one of the call; that of the file is in the result.
func (s *bundleSession) check(name string, known checkedBundle) (checkedBundle, error) {
	s.call.progress(leastProgress)
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return checkedBundle{err: errChanging}, nil
	}
	if err != nil {
		return checkedBundle{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || known.is(info) {
		return known, err
	}
	if !info.Mode().IsRegular() {
		return checkedBundle{err: giterr.New(giterr.Corrupt, "it is no file", "")}, nil
	}
	b := checkedBundle{dirFile: dirFile{size: info.Size(), changed: info.ModTime(), inode: inodeOf(info), read: time.Now()}}
	if b.File, b.err = bundle.Check(s.call.Ctx, f, s.call.Limits); s.call.Ctx.Err() != nil {
		return b, context.Cause(s.call.Ctx)
	}
	if b.err != nil && (known.err == nil || known.size != b.size) {
		s.call.client.Options.Logger.Warn("bundle is not valid and passed over", "dir", s.call.Addr.Path, "file", name, "err", b.err)
	}
	return b, nil
}

// UploadPack sends the pack of the bundle, whatever the mirror has.
func (s *bundleSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if !slices.Contains(slices.Concat(refIDs(s.refs.References), refIDs(s.refs.Peeled)), req.Wants[0]) {
		return nil, s.call.moved()
	}
	if _, err := s.file.Seek(s.head.Pack, io.SeekStart); err != nil {
		return nil, err
	}
	s.call.Bases = slices.Concat(s.head.Bases, s.head.Ends)
	return packp.NewUploadPackResponseWithPackfile(req, counted{io.NopCloser(s.file), s.call}), nil
}

// Close ends the session.
func (s *bundleSession) Close() error {
	if s.file != nil {
		s.file.Close()
	}
	return s.root.Close()
}

func refIDs(refs map[string]pack.ID) []pack.ID { return slices.Collect(maps.Values(refs)) }
