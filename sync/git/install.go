package git

import (
	"bufio"
	"compress/zlib"
	"context"
	"crypto"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/hash"
)

// spooled is a pack in a temporary file of the mirror.
type spooled struct {
	*incoming
	file *os.File
	idx  string // temporary index, "" before it was written
}

// discard removes what was not installed.
func (s *spooled) discard() {
	s.file.Close()
	os.Remove(s.file.Name())
	if s.idx != "" {
		os.Remove(s.idx)
	}
}

// spool reads a pack into a temporary file. The result is to be discarded, also
// when there is an error.
func (f *fetch) spool(dir string, pack io.Reader) (*spooled, error) {
	file, err := os.CreateTemp(filepath.Join(dir, "objects", "pack"), packPrefix)
	if err != nil {
		return nil, err
	}
	s := &spooled{file: file}
	if s.incoming, err = readPack(pack, file, f.limits); err != nil {
		return s, err
	}
	return s, nil
}

// install makes the spooled pack part of the mirror in dir: deltas resolved,
// all that it names present, durable, index and refs written. The order of the
// files is such that a power loss leaves the mirror as it was or as it will be.
func (f *fetch) install(dir string, old *store, got download) error {
	s, ends := got.pack, got.ends
	var outside func(objectID) (kind, []byte, error)
	if old != nil {
		outside = func(id objectID) (kind, []byte, error) { return old.read(id, f.limits.ObjectBytes) }
	}
	thin, err := resolveDeltas(f.ctx, s.incoming, s.file, f.limits, outside)
	if err != nil {
		return err
	}
	f.stats.Objects += len(s.entries)
	f.stats.Inflated += s.made
	if f.first == 0 {
		f.first = s.size
	}
	if len(thin) > 0 {
		if err := s.complete(thin); err != nil {
			return err
		}
	}
	if err := s.writeIndex(dir); err != nil {
		return err
	}
	if err := f.whole(old, got); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := setShallow(dir, ends); err != nil {
		return err
	}
	if len(s.entries) > 0 {
		if err := s.publish(dir); err != nil {
			return err
		}
	}
	refs, err := readRefs(dir)
	if err != nil {
		return err
	}
	if !f.fallback { // the first URL may have what a fallback has not
		for name := range refs {
			if _, still := got.refs[name]; !still && !strings.HasPrefix(name, ownPrefix) {
				delete(refs, name)
				delete(refs, tagNote(name))
			}
		}
	}
	f.note(refs)
	if err := writeRefs(dir, refs); err != nil {
		return err
	}
	f.mirror.changed()
	return syncDir(dir)
}

// setShallow writes the ends of history, before the commits are there that have
// no parents: a server that does not hear of them leaves out what we lack.
func setShallow(dir string, ends []objectID) error {
	if old, err := readShallow(dir); err == nil && slices.Equal(old, ends) {
		return nil
	}
	if err := writeShallow(dir, ends); err != nil {
		return err
	}
	return syncDir(dir)
}

// complete adds to a thin pack the objects that it builds on, so that it can be
// read by itself.
func (s *spooled) complete(thin []object) error {
	at := s.size - 20
	if err := s.file.Truncate(at); err != nil {
		return err
	}
	if _, err := s.file.Seek(at, io.SeekStart); err != nil {
		return err
	}
	for _, b := range thin {
		e, err := appendObject(s.file, at, b)
		if err != nil {
			return err
		}
		s.entries = append(s.entries, e)
		if at, err = s.file.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
	}
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(s.entries)))
	if _, err := s.file.WriteAt(count[:], 8); err != nil {
		return err
	}
	h := hash.New(crypto.SHA1)
	if _, err := io.Copy(h, io.NewSectionReader(s.file, 0, at)); err != nil {
		return err
	}
	h.Sum(s.sum[:0])
	s.size = at + 20
	_, err := s.file.Write(s.sum[:])
	return err
}

// appendObject writes an object whole, as an entry of a pack.
func appendObject(w io.Writer, at int64, b object) (entry, error) {
	e := entry{id: b.id, kind: b.kind, base: -1, offset: at, size: int64(len(b.data)), result: int64(len(b.data))}
	head := []byte{byte(b.kind)<<4 | byte(e.size&15)}
	for left := e.size >> 4; left > 0; left >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(left&0x7f))
	}
	e.head = uint8(len(head))
	sum := crc32.NewIEEE()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	out.Write(head)
	z := zlib.NewWriter(out)
	z.Write(b.data)
	if err := z.Close(); err != nil {
		return e, err
	}
	err := out.Flush()
	e.crc = sum.Sum32()
	return e, err
}

// writeIndex writes the index to a temporary file. It sorts the entries.
func (s *spooled) writeIndex(dir string) error {
	f, err := os.CreateTemp(filepath.Join(dir, "objects", "pack"), packPrefix)
	if err != nil {
		return err
	}
	s.idx = f.Name()
	err = writeIndex(f, s.entries, s.sum)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// publish gives pack and index their names.
func (s *spooled) publish(dir string) error {
	packDir := filepath.Join(dir, "objects", "pack")
	base := filepath.Join(packDir, "pack-"+s.sum.String())
	if err := os.Chmod(s.file.Name(), 0o400); err != nil {
		return err
	}
	if err := os.Rename(s.file.Name(), base+".pack"); err != nil {
		return err
	}
	if err := os.Rename(s.idx, base+".idx"); err != nil {
		return err
	}
	return syncDir(packDir)
}

// whole checks that the wanted commit is there and that everything which the
// new objects name is there too, in the pack or in the mirror. Errors wrap
// errNotWhole.
func (f *fetch) whole(old *store, got download) error {
	s, ends := got.pack, got.ends
	p := &pack{name: s.sum.String(), data: s.file}
	var err error
	if p.idx, err = os.Open(s.idx); err != nil {
		return err
	}
	defer p.idx.Close()
	if err := p.check(); err != nil {
		return err
	}
	both := &store{packs: []*pack{p}, limit: f.limits.ObjectBytes, cache: newBaseCache()}
	if old != nil {
		both.packs = append(both.packs, old.packs...)
	}
	need := func(id objectID, by string) error {
		there, err := both.has(id)
		if err == nil && !there {
			err = fmt.Errorf("%w: %s, which %s names", errNotWhole, id, by)
		}
		return err
	}
	data, err := both.readKind(f.id, commitKind, f.limits.ObjectBytes)
	if errors.Is(err, errMissing) {
		return fmt.Errorf("%w: commit %s", errNotWhole, f.id)
	}
	if err != nil {
		return err
	}
	if _, err := parseCommit(data); err != nil {
		return err
	}
	if !f.tag.IsZero() {
		if err := both.tagged(f.tag, f.id); err != nil {
			return err
		}
	}
	for _, id := range got.more {
		names, err := f.commitNames(both, id, ends)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotWhole, err)
		}
		for _, parent := range names {
			if err := need(parent, id.String()); err != nil {
				return err
			}
		}
	}
	for i := range s.entries {
		e := &s.entries[i]
		if i&0x3ff == 0 && f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		var names []objectID
		switch e.kind {
		case commitKind:
			names, err = f.commitNames(both, e.id, ends)
		case treeKind:
			names, err = treeNames(both, e.id)
		default:
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range names {
			if err := need(id, e.id.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitNames are tree and parents; at the end of history the parents are left out.
func (f *fetch) commitNames(s *store, id objectID, ends []objectID) ([]objectID, error) {
	data, err := s.readKind(id, commitKind, s.limit)
	if err != nil {
		return nil, err
	}
	c, err := parseCommit(data)
	if err != nil {
		return nil, nil // nobody can use it; it is an error when it is the wanted one
	}
	if slices.Contains(ends, id) {
		return []objectID{c.tree}, nil
	}
	return append(c.parents, c.tree), nil
}

// treeNames are the entries but submodules; a malformed tree names nothing and
// is refused when it is listed.
func treeNames(s *store, id objectID) ([]objectID, error) {
	data, err := s.readKind(id, treeKind, s.limit)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(data)
	if err != nil {
		return nil, nil
	}
	var names []objectID
	for _, e := range entries {
		if e.mode != modeSubmodule {
			names = append(names, e.id)
		}
	}
	return names, nil
}
