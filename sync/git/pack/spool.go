package pack

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing/hash"
)

// Spooled is a pack in a temporary file of the mirror.
type Spooled struct {
	*incoming
	file *os.File
	idx  string // temporary index, "" before it was written
}

// Discard removes what was not installed.
func (s *Spooled) Discard() {
	s.file.Close()
	os.Remove(s.file.Name())
	if s.idx != "" {
		os.Remove(s.idx)
	}
}

// Spool reads a pack into a temporary file. The result is to be discarded, also
// when there is an error.
func Spool(dir string, pack io.Reader, l Limits) (*Spooled, error) {
	file, err := os.CreateTemp(filepath.Join(dir, "objects", "pack"), packPrefix)
	if err != nil {
		return nil, err
	}
	s := &Spooled{file: file}
	s.incoming, err = readPack(pack, file, l)
	return s, err
}

// Stock describes what is in a pack.
type Stock struct {
	Objects  int
	Bytes    int64 // of the pack
	Inflated int64 // bytes of all objects
}

// Stock is what is in the pack, the objects that Resolve adds included.
func (s *Spooled) Stock() Stock { return Stock{len(s.entries), s.size, s.made} }

// Objects lists the objects of the pack, whose kinds are known once it was resolved.
func (s *Spooled) Objects() iter.Seq2[ID, Kind] {
	return func(yield func(ID, Kind) bool) {
		for i := range s.entries {
			if !yield(s.entries[i].id, s.entries[i].kind) {
				return
			}
		}
	}
}

// complete adds to a thin pack the objects that it builds on, so that it can be
// read by itself.
func (s *Spooled) complete(thin []Object) error {
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
func appendObject(w io.Writer, at int64, b Object) (entry, error) {
	e := entry{id: b.ID, kind: b.Kind, base: -1, offset: at, size: int64(len(b.Data)), result: int64(len(b.Data))}
	head := []byte{byte(b.Kind)<<4 | byte(e.size&15)}
	for left := e.size >> 4; left > 0; left >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(left&0x7f))
	}
	e.head = uint8(len(head))
	sum := crc32.NewIEEE()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	out.Write(head)
	z := zlib.NewWriter(out)
	z.Write(b.Data)
	if err := z.Close(); err != nil {
		return e, err
	}
	err := out.Flush()
	e.crc = sum.Sum32()
	return e, err
}

// WriteIndex writes the index to a temporary file. It sorts the entries.
func (s *Spooled) WriteIndex(dir string) error {
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

// Publish makes the pack durable and gives pack and index their names.
func (s *Spooled) Publish(dir string) error {
	if err := s.file.Sync(); err != nil {
		return err
	}
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
	return SyncDir(packDir)
}

// Over is a store of the spooled pack, whose index is written, on top of what was there;
// old is nil for nothing. done closes what it has opened.
func (s *Spooled) Over(old *Store, limit int64) (both *Store, done func(), err error) {
	p := &pack{name: s.sum.String(), data: s.file}
	if p.idx, err = os.Open(s.idx); err != nil {
		return nil, nil, err
	}
	if err := p.check(); err != nil {
		p.idx.Close()
		return nil, nil, err
	}
	both = &Store{Packs: []*pack{p}, Limit: limit, cache: newBaseCache()}
	if old != nil {
		both.Packs = append(both.Packs, old.Packs...)
	}
	return both, func() { p.idx.Close() }, nil
}

// Encode is a pack of whole objects.
func Encode(made []Object) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("PACK\x00\x00\x00\x02")
	_ = binary.Write(&out, binary.BigEndian, uint32(len(made)))
	for _, o := range made {
		if _, err := appendObject(&out, int64(out.Len()), o); err != nil {
			return nil, err
		}
	}
	h := hash.New(crypto.SHA1)
	h.Write(out.Bytes())
	return h.Sum(out.Bytes()), nil
}
