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
// commit, of several with the same time the one that contains the others, else the one that was written last; one that builds
// on it is newer, whatever a clock said.
// What it builds on may be in the others. A file that is no valid bundle is passed over: it may be half copied. A bundle is
// read again only when its file has changed.

// BundleSuffix ends the names of the files of bundles.
const BundleSuffix = ".bundle"

// bundleMemory holds the bundles of a directory by name, as they were read last. It is immutable.
type bundleMemory map[string]checkedBundle

// passOver forgets all refs of a bundle but its tips.
func (m bundleMemory) passOver(b checkedBundle) {
	if b.refs = nil; b.name != "" {
		m[b.name] = b
	}
}

// mostTips is how many commits are kept of a bundle that is passed over. Only of the newest bundle all refs are kept.
const mostTips = 1000

type checkedBundle struct {
	dirFile
	bundle.File // without Refs and Tags
	name        string
	refs        *packp.AdvRefs // nil: only tips are kept
	tips        []pack.ID      // to which its refs lead, the first mostTips
	err         error          // why it is not valid
}

// leads reports whether a ref of the bundle leads to one of some commits.
func (b checkedBundle) leads(ids []pack.ID) bool {
	tips := b.tips
	if b.refs != nil {
		tips = refIDs(b.refs)
	}
	return slices.ContainsFunc(tips, func(id pack.ID) bool { return slices.Contains(ids, id) })
}

// contains reports whether the bundle has the newest commit of another one of the same time, and not the other way round.
func (b checkedBundle) contains(other checkedBundle) bool {
	return b.Last.Equal(other.Last) && other.leads(b.Newest) && !b.leads(other.Newest)
}

// bundleSession serves the bundles of a directory.
type bundleSession struct {
	call  *Call
	root  *os.Root
	file  *os.File
	valid []checkedBundle // the newest last
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
	now, why := bundleMemory{}, error(giterr.New(giterr.NotFound, "the directory has no file *"+BundleSuffix,
		"copy a bundle into it; a disk that is not mounted looks like this"))
	defer func() { // also after an error: the next look goes on from there
		c.client.mu.Lock()
		defer c.client.mu.Unlock()
		c.client.bundles[c.Addr.Path] = now
	}()
	first := checkedBundle{} // the newest so far
	for _, name := range names {
		b, err := s.check(name, old[name])
		switch {
		case err != nil:
			return nil, err
		case b.err != nil:
			why = b.err
		case first.name == "" || older(first, b) < 0:
			now.passOver(first)
			first = b
		default:
			b.refs = nil
		}
		now[name] = b
	}
	for _, name := range names {
		if b := now[name]; b.err == nil {
			s.valid = append(s.valid, b)
		}
	}
	if len(s.valid) == 0 {
		return nil, why
	}
	slices.SortFunc(s.valid, older)
	last := len(s.valid) - 1
	for range last {
		for i, b := range slices.Backward(s.valid[:last]) {
			if newest := s.valid[last]; newest.leads(b.Bases) || newest.leads(b.Ends) || b.contains(newest) {
				s.valid = append(slices.Delete(s.valid, i, i+1), b)
				break
			}
		}
	}
	if s.valid[last].refs == nil { // another one than by its time
		now.passOver(first)
		b, err := s.check(s.valid[last].name, checkedBundle{})
		if err = cmp.Or(err, b.err); err != nil {
			return nil, err
		}
		s.valid[last], now[b.name] = b, b
	}
	newest, written := s.valid[last], slices.MaxFunc(s.valid, func(a, b checkedBundle) int { return a.changed.Compare(b.changed) })
	if written.changed.After(newest.changed) && old[written.name].inode != written.inode {
		c.client.Options.Logger.Warn("bundle is passed over: another one has a newer commit", "dir", c.Addr.Path, "file", written.name,
			"newer", newest.name)
	}
	c.Older = nil
	for _, b := range s.valid[:last] {
		c.Older = append(c.Older, b.tips[:min(1, len(b.tips))]...) // one brings them all
	}
	return newest.refs, nil
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

var errNoBundle = giterr.New(giterr.Corrupt, "it is no file", "")

func older(a, b checkedBundle) int {
	return cmp.Or(a.Time(a.changed).Compare(b.Time(b.changed)), a.changed.Compare(b.changed))
}

// check reads a bundle, unless it is as it was. The error is one of the call; that of the file is in the result.
func (s *bundleSession) check(name string, known checkedBundle) (checkedBundle, error) {
	s.call.progress(leastProgress)
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return checkedBundle{err: errChanging}, nil
	}
	if err != nil {
		if info, _ := s.root.Lstat(name); info != nil && !info.Mode().IsRegular() { // a link that leads out of the directory, a socket
			return checkedBundle{err: errNoBundle}, nil
		}
		return checkedBundle{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || known.is(info) {
		return known, err
	}
	if !info.Mode().IsRegular() {
		return checkedBundle{err: errNoBundle}, nil
	}
	b := checkedBundle{name: name, dirFile: dirFile{size: info.Size(), changed: info.ModTime(), inode: inodeOf(info), read: time.Now()}}
	if b.File, b.err = bundle.Check(s.call.Ctx, f, s.call.Limits); s.call.Ctx.Err() != nil {
		return b, context.Cause(s.call.Ctx)
	}
	if b.err != nil && (known.err == nil || known.size != b.size) {
		s.call.client.Options.Logger.Warn("bundle is not valid and passed over", "dir", s.call.Addr.Path, "file", name, "err", b.err)
	}
	b.refs = advertise(b.File)
	b.Refs, b.Tags = nil, nil
	b.tips = refIDs(b.refs)
	b.tips = slices.Clone(b.tips[:min(len(b.tips), mostTips)])
	return b, nil
}

// UploadPack sends the pack of a bundle that leads to the wanted commit: the newest of those that build on nothing or on what
// the mirror is known to have, else any.
func (s *bundleSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (res *packp.UploadPackResponse, err error) {
	lacks := func(id pack.ID) bool { return !slices.Contains(req.Haves, id) }
	var from *checkedBundle
	for i, b := range s.valid {
		if b.leads(req.Wants) && (from == nil || !slices.ContainsFunc(b.Bases, lacks)) {
			from = &s.valid[i]
		}
	}
	if from == nil {
		return nil, s.call.moved()
	}
	if s.file, err = s.root.Open(from.name); err != nil {
		return nil, changing(err)
	}
	if info, err := s.file.Stat(); err != nil || inodeOf(info) != from.inode {
		return nil, cmp.Or(err, s.call.moved())
	}
	if _, err := s.file.Seek(from.Pack, io.SeekStart); err != nil {
		return nil, err
	}
	s.call.Bases = slices.Concat(from.Bases, from.Ends)
	return packp.NewUploadPackResponseWithPackfile(req, counted{io.NopCloser(s.file), s.call}), nil
}

// Close ends the session.
func (s *bundleSession) Close() error {
	if s.file != nil {
		s.file.Close()
	}
	return s.root.Close()
}

// refIDs returns what refs lead to, the targets of annotated tags first.
func refIDs(refs *packp.AdvRefs) []pack.ID {
	return slices.AppendSeq(slices.Collect(maps.Values(refs.Peeled)), maps.Values(refs.References))
}
