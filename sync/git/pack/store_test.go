package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"limpet/sync/testenv/gittest"

	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
)

// add puts a pack into a mirror as a fetch does.
func add(ctx context.Context, t *testing.T, dir string, entries ...[]byte) {
	t.Helper()
	old := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, nil))
	defer old.Close()
	s, err := Spool(dir, bytes.NewReader(gittest.Pack(entries...)), DefaultLimits, nil, nil)
	defer s.Discard()
	for _, step := range []func() error{
		func() error { return err },
		func() error { return s.Resolve(ctx, old, DefaultLimits) },
		func() error { return s.WriteIndex(dir) },
		func() error { return s.Publish(dir) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// readable checks that a mirror has objects, each with its content.
func readable(t *testing.T, dir string, blobs [][]byte) {
	t.Helper()
	s := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, nil))
	defer s.Close()
	for _, b := range blobs {
		if _, got, err := s.Read(IDOf(BlobKind, b), s.Limit); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%.20q is read as %.20q, %v", b, got, err)
		}
	}
}

// whole is a blob as an entry of a pack, and delta is one that builds on another by name and copies
// none of it.
func whole(b []byte) []byte { return gittest.Entry(BlobKind, len(b), nil, b) }

func delta(base, b []byte) []byte {
	id := IDOf(BlobKind, base)
	d := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(base))), uint64(len(b)))
	d = append(append(d, byte(len(b))), b...)
	return gittest.Entry(RefDeltaKind, len(d), id[:], d)
}

// TestMergeOfFilesThatWentBack: files that change from one text to another and back, with a delta
// each time, are read after the packs were put together, where each text is a delta of the other.
func TestMergeOfFilesThatWentBack(t *testing.T) {
	t.Parallel()
	dir := emptyMirror(t)
	var blobs, first, there, back [][]byte
	for i := range 20 {
		a, b := fmt.Appendf(nil, "one text of file %d", i), fmt.Appendf(nil, "another text of file %d", i)
		blobs = append(blobs, a, b)
		first, there, back = append(first, whole(a)), append(there, delta(a, b)), append(back, delta(b, a))
	}
	for _, entries := range [][][]byte{first, there, back} {
		add(t.Context(), t, dir, entries...)
	}
	readable(t, dir, blobs)
	if err := Consolidate(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	readable(t, dir, blobs)
}

// TestMergeBesideALargePack: one that has most of the bytes stays as it is, until the others have as
// many. A store that is opened after another shares its packs, also when that one is closed while
// they are read.
func TestMergeBesideALargePack(t *testing.T) {
	t.Parallel()
	dir, r := emptyMirror(t), rand.NewChaCha8([32]byte{})
	blob := func(n int) []byte {
		b := make([]byte, n)
		r.Read(b)
		return b
	}
	large := blob(20_000)
	blobs := [][]byte{large}
	add(t.Context(), t, dir, whole(large))
	for i, want := range []int{2, 2, 1} {
		former := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, nil))
		for range 3 {
			b := blob(2_000 + 1_000*i)
			blobs = append(blobs, b)
			add(t.Context(), t, dir, whole(b))
		}
		s := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, former))
		if at := s.indexOf(former.Packs[0].name); len(s.Packs) != len(former.Packs)+3 || s.Packs[at] != former.Packs[0] {
			t.Errorf("%d packs after %d, which are not shared", len(s.Packs), len(former.Packs))
		}
		file, err := files.open(former.Packs[0])
		if former.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Stat(); err != nil {
			t.Errorf("a file that is read was closed: %v", err)
		}
		files.done(former.Packs[0])
		s.Close()
		if err := Consolidate(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		readable(t, dir, blobs)
		if n := len(gittest.Glob(t, dir, "objects/pack/*.pack")); n != want {
			t.Errorf("%d packs, want %d", n, want)
		}
	}
}

// TestFirstOffset: of what is in a pack more than once the first is read, also behind 2 GiB.
func TestFirstOffset(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{id: ID{1}, offset: 12}, {id: ID{1}, offset: 5 << 30}, {id: ID{1, 1}, offset: 7 << 30},
		{id: ID{2}, offset: 3 << 30}, {id: ID{2}, offset: 4 << 30}, {id: ID{3}, offset: math.MaxInt32},
	}
	var file bytes.Buffer
	if err := writeIndex(&file, entries, ID{}); err != nil {
		t.Fatal(err)
	}
	p := &pack{idx: idxfile.NewMemoryIndex()}
	if err := idxfile.NewDecoder(&file).Decode(p.idx); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[ID]int64{{1}: 12, {1, 1}: 7 << 30, {2}: 3 << 30, {3}: math.MaxInt32} {
		if at, err := p.offset(id); err != nil || at != want {
			t.Errorf("%s is at %d, %v, want %d", id, at, err, want)
		}
	}
	p.idx.Offset64 = p.idx.Offset64[:8]
	for _, id := range []ID{{}, {1, 0, 1}, {2}, {3, 1}, {4}} {
		if at, err := p.offset(id); err == nil {
			t.Errorf("%s is at %d", id, at)
		}
	}
}

// measured notes the most memory that is in use when it is asked, which Resolve does before each
// delta.
type measured struct {
	context.Context
	most *uint64
}

func (m measured) Err() error {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	*m.most = max(*m.most, s.HeapAlloc)
	return nil
}

// addWithin is add, for which no more than so much memory is to be in use. No other test may run
// meanwhile.
func addWithin(t *testing.T, limit uint64, dir string, entries ...[]byte) {
	t.Helper()
	before, most := uint64(0), uint64(0)
	measured{most: &before}.Err()
	add(measured{t.Context(), &most}, t, dir, entries...)
	if used := most - min(before, most); used > limit {
		t.Errorf("%d MiB are in use, want at most %d", used>>20, limit>>20)
	}
}

// TestThinPackMemory: of the many large objects that a pack builds on, one at a time is in memory.
func TestThinPackMemory(t *testing.T) {
	dir := emptyMirror(t)
	var blobs, old, thin [][]byte
	for i := range 24 {
		base, next := bytes.Repeat(fmt.Appendf(nil, "text %3d", i), 1<<17), fmt.Appendf(nil, "next %d", i)
		old, thin = append(old, whole(base)), append(thin, delta(base, next))
		blobs = append(blobs, next)
	}
	add(t.Context(), t, dir, old...)
	addWithin(t, 8<<20, dir, thin...)
	readable(t, dir, blobs)
}

// TestChainMemory: so is no more of a chain than is set aside for it, however large the buffers of
// its objects are.
func TestChainMemory(t *testing.T) {
	const size = 1<<20 + 1
	entries := [][]byte{whole(make([]byte, size))}
	end := 12 + len(entries[0])
	// on makes an object that differs from one before it in its first bytes, and returns where it
	// begins.
	on := func(base int) int {
		d := binary.AppendUvarint(binary.AppendUvarint(nil, size), size)
		d = binary.BigEndian.AppendUint32(append(d, 4), uint32(end))
		for left := size - 4; left > 0; left -= min(left, 0x8000) {
			d = append(d, 0xb0, byte(min(left, 0x8000)), byte(min(left, 0x8000)>>8))
		}
		at := end
		entries = append(entries, gittest.Entry(OfsDeltaKind, len(d), distance7(at-base), d))
		end += len(entries[len(entries)-1])
		return at
	}
	for i, base := 0, 12; i < 26; i++ { // each object is needed again after the rest of the chain
		next, again := on(base), on(base)
		on(again)
		on(again)
		base = next
	}
	addWithin(t, heldBytes+8<<20, emptyMirror(t), entries...)
}

// TestBaseCacheMemory: the cache counts what its objects take, which may be twice their length.
func TestBaseCacheMemory(t *testing.T) {
	t.Parallel()
	var c baseCache
	for i := range 20 {
		c.put(baseKey{offset: int64(i)}, BlobKind, make([]byte, largestBase, 2*largestBase))
		n := 0
		for _, b := range c.items {
			n += cap(b.data)
		}
		if n > cacheBytes || n == 0 {
			t.Fatalf("%d MiB are held, want at most %d", n>>20, cacheBytes>>20)
		}
	}
}

// TestMemoryOfManyMirrors: what the reading of mirrors leaves in memory has one bound, however many of
// them stay open.
func TestMemoryOfManyMirrors(t *testing.T) {
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var open []*Store
	before := used()
	for i := range 50 {
		dir, small := emptyMirror(t), fmt.Appendf(nil, "blob of mirror %d", i)
		large := bytes.Repeat(small, 900_000/len(small))
		add(t.Context(), t, dir, whole(large), delta(large, small))
		s := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, nil))
		if _, got, err := s.Read(IDOf(BlobKind, small), s.Limit); err != nil || !bytes.Equal(got, small) {
			t.Fatalf("read %q, %v", got, err)
		}
		open = append(open, s)
	}
	if now := used(); now > before+cacheBytes+8<<20 {
		t.Errorf("%d MiB are in use, want at most %d", (now-before)>>20, (cacheBytes+8<<20)>>20)
	}
	for _, s := range open {
		s.Close()
	}
	open = nil
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for now, until := used(), time.Now().Add(20*time.Second); now > before+4<<20; now = used() {
		if <-tick.C; time.Now().After(until) {
			t.Fatalf("%d MiB are in use after the end of all", (now-before)>>20)
		}
	}
}
