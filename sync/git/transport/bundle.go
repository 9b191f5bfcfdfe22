package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/fileid"
	"limpet/sync/git/bundle"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
)

// A directory of bundles is served in process as the repository that the newest of them holds: the
// one with the newest commit, of several with the same time the one that contains the others, else
// the one that was written last; one that builds on it is newer, whatever a clock said. What it
// builds on may be in the others. A file that is no valid bundle is passed over: it may be half
// copied. A bundle is read again only when its file has changed.

// BundleSuffix ends the names of the files of bundles.
const BundleSuffix = ".bundle"

// bundleMemory holds the bundles of a directory by name, as they were read last. It is immutable.
type bundleMemory map[string]checkedBundle

// mostIDs bounds how many commits and tags are kept of all bundles of a directory.
const mostIDs = 500_000

type checkedBundle struct {
	at   dirFile
	file bundle.File // without its refs, of which those of the newest are read again for each list
	name string
	tip  pack.ID   // a commit that a ref leads to
	tips []pack.ID // Heads and the targets of those that are annotated tags, sorted
	err  error     // why it is not valid
}

// ids returns how many commits and tags are kept of the bundle.
func (b checkedBundle) ids() int {
	return len(b.tips) + len(b.file.Bases) + len(b.file.Ends) + 2*len(b.file.Tags)
}

// leads reports whether a ref of the bundle leads to one of some commits.
func (b checkedBundle) leads(ids []pack.ID) bool {
	return slices.ContainsFunc(ids, func(id pack.ID) bool {
		_, found := slices.BinarySearchFunc(b.tips, id, compareIDs)
		return found
	})
}

func compareIDs(a, b pack.ID) int { return bytes.Compare(a[:], b[:]) }

// contains reports whether the bundle has the newest commit of another one of the same time, and
// not the other way round.
func (b checkedBundle) contains(other checkedBundle) bool {
	return b.file.Last.Equal(other.file.Last) && other.leads(b.file.Newest) && !b.leads(other.file.Newest)
}

// bundleSession serves the bundles of a directory.
type bundleSession struct {
	call  *Call
	root  *os.Root
	file  *os.File
	valid []checkedBundle // the newest last
	refs  *packp.AdvRefs  // of the newest
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
	ids := 0
	for _, name := range names {
		b, err := s.check(name, old[name])
		if err != nil {
			return nil, err
		}
		now[name] = b
		if b.err != nil {
			why = b.err
			continue
		}
		if ids += b.ids(); ids > mostIDs {
			return nil, &giterr.TooLargeError{Count: true, What: "number of refs and bases of all bundles",
				Size: int64(ids), Limit: mostIDs}
		}
		s.valid = append(s.valid, b)
	}
	if len(s.valid) == 0 {
		return nil, why
	}
	slices.SortFunc(s.valid, older)
	last := len(s.valid) - 1
	for range last {
		newest := s.valid[last]
		i := last - 1
		for ; i >= 0 && c.Ctx.Err() == nil; i-- {
			b := s.valid[i]
			if newest.leads(b.file.Bases) || newest.leads(b.file.Ends) || b.contains(newest) {
				s.valid = append(slices.Delete(s.valid, i, i+1), b)
				break
			}
		}
		if c.Ctx.Err() != nil {
			return nil, context.Cause(c.Ctx)
		}
		if i < 0 {
			break
		}
	}
	newest, written := s.valid[last], slices.MaxFunc(s.valid, func(a, b checkedBundle) int {
		return cmp.Compare(a.at.stamp.MTime, b.at.stamp.MTime)
	})
	if written.at.stamp.MTime > newest.at.stamp.MTime && old[written.name].at.stamp != written.at.stamp {
		c.client.Options.Logger.Warn("bundle is passed over: another one has a newer commit", "dir", c.Addr.Path, "file", written.name,
			"newer", newest.name)
	}
	c.Older = nil
	for _, b := range s.valid[:last] {
		if !b.tip.IsZero() {
			c.Older = append(c.Older, b.tip) // one brings them all
		}
	}
	s.refs, err = s.list(newest)
	return s.refs, err
}

// list returns the refs of a bundle as a server lists them.
func (s *bundleSession) list(b checkedBundle) (*packp.AdvRefs, error) {
	f, err := s.open(b)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, _, err := bundle.ReadHeader(s.call.Ctx, bufio.NewReaderSize(f, bundle.LineBytes), b.file.Pack)
	if err != nil {
		return nil, err
	}
	adv := packp.NewAdvRefs()
	adv.References = head.Refs
	main, detached := head.Refs["HEAD"]
	delete(head.Refs, "HEAD")
	var mains []string
	for name, id := range head.Refs {
		for range pack.MaxTags {
			if target, annotated := b.file.Tags[id]; annotated {
				id, adv.Peeled[name] = target, target
			}
		}
		if detached && id == main {
			mains = append(mains, name)
		}
	}
	slices.Sort(mains)
	for _, name := range mains {
		adv.Capabilities.Add(capability.SymRef, "HEAD:"+name)
	}
	return adv, nil
}

// open opens a bundle that was checked.
func (s *bundleSession) open(b checkedBundle) (*os.File, error) {
	f, err := s.root.OpenFile(b.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, changing(err)
	}
	if info, err := f.Stat(); err != nil || fileid.Of(info) != b.at.stamp {
		f.Close()
		return nil, cmp.Or(err, s.call.moved())
	}
	return f, nil
}

var errNoBundle = giterr.New(giterr.Corrupt, "it is no file", "")

func older(a, b checkedBundle) int {
	inA, inB := time.Unix(0, a.at.stamp.MTime), time.Unix(0, b.at.stamp.MTime)
	return cmp.Or(a.file.Time(inA).Compare(b.file.Time(inB)), inA.Compare(inB))
}

// check reads a bundle, unless it is as it was. The error is one of the call; that of the file is
// in the result.
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
	if err != nil || known.at.is(info) {
		return known, err
	}
	if !info.Mode().IsRegular() {
		return checkedBundle{err: errNoBundle}, nil
	}
	b := checkedBundle{name: name, at: dirFile{stamp: fileid.Of(info), read: time.Now()}}
	if b.file, b.err = bundle.Check(s.call.Ctx, f, s.call.Limits); s.call.Ctx.Err() != nil {
		return b, context.Cause(s.call.Ctx)
	}
	if b.err != nil && (known.err == nil || known.at.stamp.Size != b.at.stamp.Size) {
		s.call.client.Options.Logger.Warn("bundle is not valid and passed over", "dir", s.call.Addr.Path, "file", name, "err", b.err)
	}
	if b.err != nil {
		b.file = bundle.File{}
		return b, nil
	}
	var targets []pack.ID
	for _, id := range b.file.Heads {
		for range pack.MaxTags {
			if target, annotated := b.file.Tags[id]; annotated {
				id, targets = target, append(targets, target)
			}
		}
	}
	b.tips, b.file.Heads = slices.Concat(targets, b.file.Heads), nil
	if len(b.tips) > 0 {
		b.tip = b.tips[0]
	}
	slices.SortFunc(b.tips, compareIDs)
	return b, nil
}

// UploadPack sends the pack of a bundle that leads to the wanted commit: the newest of those that
// build on nothing or on what the mirror is known to have, else any.
func (s *bundleSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (res *packp.UploadPackResponse, err error) {
	lacks := func(id pack.ID) bool { return !slices.Contains(req.Haves, id) }
	var from *checkedBundle
	for i, b := range s.valid {
		leads := b.leads(req.Wants) || i == len(s.valid)-1 && advertises(s.refs, req.Wants)
		if leads && (from == nil || !slices.ContainsFunc(b.file.Bases, lacks)) {
			from = &s.valid[i]
		}
	}
	if from == nil {
		return nil, s.call.moved()
	}
	if s.file, err = s.open(*from); err != nil {
		return nil, err
	}
	if _, err := s.file.Seek(from.file.Pack, io.SeekStart); err != nil {
		return nil, err
	}
	s.call.Bases = slices.Concat(from.file.Bases, from.file.Ends)
	return packp.NewUploadPackResponseWithPackfile(req, counted{io.NopCloser(s.file), s.call}), nil
}

// Close ends the session.
func (s *bundleSession) Close() error {
	if s.file != nil {
		s.file.Close()
	}
	return s.root.Close()
}

// advertises reports whether a ref, or the tag that it is, leads to one of some commits.
func advertises(refs *packp.AdvRefs, ids []pack.ID) bool {
	for _, leads := range []map[string]pack.ID{refs.References, refs.Peeled} {
		for _, id := range leads {
			if slices.Contains(ids, id) {
				return true
			}
		}
	}
	return false
}
