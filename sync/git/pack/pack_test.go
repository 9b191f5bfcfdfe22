package pack

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"limpet/sync/git/giterr"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// samplePack is a pack that git made, with deltas.
func samplePack(t testing.TB, args ...string) (pack []byte, repo string) {
	t.Helper()
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	files := map[string]string{}
	for i := range 8 {
		files[fmt.Sprintf("d%d/x%d.json", i%3, i)] = gittest.Dashboard(fmt.Sprint(i%2), i, 12)
	}
	o.Commit("one", files)
	files["d1/x1.json"] = gittest.Dashboard("1", 9, 13)
	o.Commit("two", files)
	in := gittest.Git(t, o.Bare, nil, "rev-list", "--objects", "--all", "--no-object-names") + "\n"
	base := filepath.Join(t.TempDir(), "p")
	name := gittest.Git(t, o.Bare, []byte(in), append(append([]string{"pack-objects", "-q"}, args...), base)...)
	data, err := os.ReadFile(base + "-" + name + ".pack")
	if err != nil {
		t.Fatal(err)
	}
	return data, o.Bare
}

// emptyMirror is a directory for packs.
func emptyMirror(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "objects", "pack"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// take reads a pack as a fetch does.
func take(t testing.TB, data []byte, l Limits) (*incoming, []byte, error) {
	t.Helper()
	s, err := Spool(emptyMirror(t), bytes.NewReader(data), l.Or(DefaultLimits), nil, nil)
	defer s.Discard()
	if err != nil {
		return nil, nil, err
	}
	err = s.Resolve(t.Context(), nil, l.Or(DefaultLimits))
	spooled, rerr := os.ReadFile(s.file.Name())
	if rerr != nil {
		t.Fatal(rerr)
	}
	return s.in, spooled, err
}

func TestPackAgainstGit(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"distances": {"--delta-base-offset"}, "names": nil, "no deltas": {"--window=0"},
		"deep": {"--delta-base-offset", "--depth=50", "--window=50"},
	} {
		data, repo := samplePack(t, args...)
		p, spool, err := take(t, data, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(spool, data) {
			t.Fatalf("%s: the spool differs from what came", name)
		}
		want := map[string]string{}
		for line := range strings.Lines(gittest.Git(t, repo, nil, "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)",
			"--batch-all-objects")) {
			id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			want[id] = rest
		}
		got := map[string]string{}
		deltas := 0
		for _, e := range p.entries {
			got[e.id.String()] = fmt.Sprintf("%s %d", e.kind, e.result)
			if e.delta {
				deltas++
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%s: objects differ\n%v\n%v", name, got, want)
		}
		if (deltas == 0) != (name == "no deltas") {
			t.Errorf("%s: %d deltas", name, deltas)
		}
		// Our index is git's, byte for byte.
		var idx bytes.Buffer
		if err := writeIndex(&idx, p.entries, p.sum); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "x.pack")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, t.TempDir(), nil, "index-pack", file)
		theirs, err := os.ReadFile(strings.TrimSuffix(file, ".pack") + ".idx")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(idx.Bytes(), theirs) {
			t.Errorf("%s: the index differs from git's", name)
		}
	}
}

// Every single damaged byte is noticed, and so is every cut.
func TestPackDamage(t *testing.T) {
	t.Parallel()
	data, _ := samplePack(t, "--delta-base-offset")
	for at := range data {
		bad := bytes.Clone(data)
		bad[at] ^= 1 << (at % 8)
		if _, _, err := take(t, bad, Limits{}); err == nil {
			t.Fatalf("a flipped bit in byte %d of %d was not noticed", at, len(data))
		} else if _, large := errors.AsType[*giterr.TooLargeError](err); !large && !errors.Is(err, ErrBadPack) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if _, _, err := take(t, data[:at], Limits{}); !errors.Is(err, ErrBadPack) {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
}

func TestPackLimits(t *testing.T) {
	t.Parallel()
	data, _ := samplePack(t, "--delta-base-offset")
	for name, l := range map[string]Limits{
		"objects": {Objects: 3}, "object": {ObjectBytes: 300}, "inflated": {InflatedBytes: 2000},
	} {
		_, _, err := take(t, data, l)
		if large, ok := errors.AsType[*giterr.TooLargeError](err); !ok || large.Size <= large.Limit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPackHostile(t *testing.T) {
	t.Parallel()
	text := []byte("hello, hello, hello")
	blob := gittest.Entry(BlobKind, len(text), nil, text)
	id := IDOf(BlobKind, text)
	nobody := bytes.Repeat([]byte{7}, 20)
	delta := func(ops ...byte) []byte { return append([]byte{byte(len(text))}, ops...) }
	cases := map[string][]byte{
		"longer than said":    gittest.Pack(gittest.Entry(BlobKind, len(text)-1, nil, text)),
		"shorter than said":   gittest.Pack(gittest.Entry(BlobKind, len(text)+1, nil, text)),
		"unknown type":        gittest.Pack(gittest.Entry(Kind(5), 3, nil, []byte("abc"))),
		"type zero":           gittest.Pack(gittest.Entry(Kind(0), 3, nil, []byte("abc"))),
		"size overflows":      gittest.Pack(append([]byte{0xbf}, bytes.Repeat([]byte{0xff}, 12)...)),
		"base before pack":    gittest.Pack(blob, gittest.Entry(OfsDeltaKind, 4, []byte{0x7f}, delta(2, 2, 'x', 'y'))),
		"base is itself":      gittest.Pack(blob, gittest.Entry(OfsDeltaKind, 4, []byte{0}, delta(2, 2, 'x', 'y'))),
		"base in the middle":  gittest.Pack(blob, gittest.Entry(OfsDeltaKind, 4, []byte{5}, delta(2, 2, 'x', 'y'))),
		"base is missing":     gittest.Pack(gittest.Entry(RefDeltaKind, 4, nobody, delta(2, 2, 'x', 'y'))),
		"wrong base size":     gittest.Pack(blob, gittest.Entry(RefDeltaKind, 5, id[:], []byte{3, 2, 2, 'x', 'y'})),
		"copies too far":      gittest.Pack(blob, gittest.Entry(RefDeltaKind, 5, id[:], delta(9, 0x91, 15, 9))),
		"makes too much":      gittest.Pack(blob, gittest.Entry(RefDeltaKind, 5, id[:], delta(1, 2, 'x', 'y'))),
		"makes too little":    gittest.Pack(blob, gittest.Entry(RefDeltaKind, 5, id[:], delta(3, 2, 'x', 'y'))),
		"reserved operation":  gittest.Pack(blob, gittest.Entry(RefDeltaKind, 3, id[:], delta(1, 0))),
		"operation cut off":   gittest.Pack(blob, gittest.Entry(RefDeltaKind, 3, id[:], delta(1, 0x8f))),
		"delta without sizes": gittest.Pack(blob, gittest.Entry(RefDeltaKind, 1, id[:], []byte{0x80})),
		"empty delta":         gittest.Pack(blob, gittest.Entry(RefDeltaKind, 0, id[:], nil)),
		"not zlib":            gittest.Pack(append([]byte{0x33}, "this is not zlib"...)),
		"version 9":           bytes.Replace(gittest.Pack(blob), []byte{0, 0, 0, 2, 0}, []byte{0, 0, 0, 9, 0}, 1),
		"nothing":             nil,
		"web page":            []byte("<html>welcome to the hotel</html>"),
	}
	for name, data := range cases {
		if _, _, err := take(t, data, Limits{}); !errors.Is(err, ErrBadPack) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, _, err := take(t, gittest.Pack(blob, gittest.Entry(RefDeltaKind, 5, id[:], delta(2, 2, 'x', 'y'))), Limits{}); err != nil ||
		p.entries[1].id != IDOf(BlobKind, []byte("xy")) {
		t.Errorf("a sound pack: %v", err)
	}
}

// A long chain of deltas, with branches all the way, is resolved within the
// memory that is set aside for it.
func TestPackDeepChain(t *testing.T) {
	t.Parallel()
	const size, depth = 1 << 20, 120
	base := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	entries := [][]byte{gittest.Entry(BlobKind, size, nil, base)}
	at := []int{12}
	for i := range depth {
		// Two deltas on each object: one goes on, one is a leaf.
		for leaf := range 2 {
			d := append([]byte{0x80, 0x80, 0x40}, 0x80, 0x80, 0x40) // both sizes are 1 MiB
			d = append(d, 2, byte(i), byte(leaf))
			left := size - 2
			for left > 0 { // copy from the base, at most 0xffffff bytes at once
				n := min(left, 0xffff)
				d = append(d, 0x80|0x10|0x20, byte(n), byte(n>>8))
				left -= n
			}
			here := at[len(at)-1] + len(entries[len(entries)-1])
			back := here - at[len(at)-1]
			if leaf == 1 {
				back = here - at[len(at)-2]
			}
			entries = append(entries, gittest.Entry(OfsDeltaKind, len(d), distance7(back), d))
			at = append(at, here)
		}
		// The chain goes on from the first of the two.
		at = slices.Delete(at, len(at)-1, len(at))
		last := len(entries) - 1
		entries[last-1] = append(entries[last-1], entries[last]...)
		entries = entries[:last]
	}
	data := gittest.Pack(entries...)
	data[10], data[11] = byte((2*depth+1)>>8), byte(2*depth+1)
	sum := sha1.Sum(data[:len(data)-20])
	copy(data[len(data)-20:], sum[:])
	p, _, err := take(t, data, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[ID]bool{}
	for _, e := range p.entries {
		names[e.id] = true
	}
	if len(names) != 2*depth+1 {
		t.Fatalf("%d names of %d objects", len(names), 2*depth+1)
	}
}

// distance7 is the way an ofs-delta says how far back its base is.
func distance7(n int) []byte {
	out := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		out = append([]byte{byte(n&0x7f) | 0x80}, out...)
	}
	return out
}

func FuzzReadPack(f *testing.F) {
	data, _ := samplePack(f, "--delta-base-offset")
	f.Add(data)
	small, _ := samplePack(f)
	f.Add(small[:200])
	f.Add(gittest.Pack(gittest.Entry(BlobKind, 3, nil, []byte("abc"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := Limits{ObjectBytes: 1 << 16, InflatedBytes: 1 << 20, Objects: 1000}
		p, spool, err := take(t, data, l)
		if err != nil {
			if _, large := errors.AsType[*giterr.TooLargeError](err); !large && !errors.Is(err, ErrBadPack) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if int64(len(spool)) < p.size || p.size > int64(len(data)) {
			t.Fatalf("size %d, spool %d, came %d", p.size, len(spool), len(data))
		}
		for _, e := range p.entries {
			if e.id.IsZero() || e.kind > TagKind || e.result > l.ObjectBytes {
				t.Fatalf("entry %+v", e)
			}
		}
	})
}

// TestObjectReader: an object of a file is read as go-git reads it, also one whose bytes are wrong.
func TestObjectReader(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const before = 300 // bytes, for deltas to point into
	var entries [][]byte
	for _, size := range []int{0, 1, 15, 16, 3000, 70_000} {
		data := bytes.Repeat([]byte("lines of text "), size)[:size]
		entries = append(entries, gittest.Entry(BlobKind, size, nil, data), gittest.Entry(BlobKind, size+1, nil, data),
			gittest.Entry(RefDeltaKind, size, bytes.Repeat([]byte{7}, 20), data), gittest.Entry(OfsDeltaKind, size, []byte{5}, data),
			gittest.Entry(OfsDeltaKind, size, []byte{0x80, 0x7f}, data), gittest.Entry(BlobKind, max(size-1, 0), nil, data))
	}
	good, r := 0, &objectReader{buf: bufio.NewReader(nil)}
	for i := range suite.Count(5000, 100_000) {
		file := append(make([]byte, before), entries[i%len(entries)]...)
		if i >= len(entries) {
			file[before+rng.IntN(min(len(file)-before, 40))] ^= byte(1 << rng.IntN(8))
		}
		s := packfile.NewScanner(bytes.NewReader(file))
		want, wantErr := s.SeekObjectHeader(before)
		h, err := r.header(bytes.NewReader(file), before)
		if (err == nil) != (wantErr == nil) || err == nil && h != *want {
			t.Fatalf("%x: %+v, %v, want %+v, %v", file[before:][:10], h, err, want, wantErr)
		}
		if err != nil || h.Length > 1<<20 {
			continue
		}
		var plain bytes.Buffer
		n, _, wantErr := s.NextObject(&plain)
		if wantErr == nil && n != want.Length {
			wantErr = errShort
		}
		content := plain.Bytes()
		if wantErr != nil {
			content = nil
		}
		got, err := r.inflate(h)
		if (err == nil) != (wantErr == nil) || !bytes.Equal(got, content) {
			t.Fatalf("%x: %d bytes, %v, want %d, %v", file[before:][:10], len(got), err, len(content), wantErr)
		}
		if err == nil {
			good++
		}
	}
	if good < 30 {
		t.Errorf("%d of them can be read", good)
	}
}

// TestPatch: a delta makes, or is refused, what go-git says.
func TestPatch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	made := 0
	for range suite.Count(3000, 100_000) {
		base := bytes.Repeat([]byte("some lines of text\n"), 1+rng.IntN(200))
		next := slices.Concat(base[rng.IntN(len(base)+1):], []byte{byte(rng.IntN(256))}, base)
		delta := packfile.DiffDelta(base, next)
		if rng.IntN(2) == 0 {
			delta[rng.IntN(len(delta))] ^= byte(1 << rng.IntN(8))
		}
		want, wantErr := packfile.PatchDelta(base, delta)
		size, err := deltaSize(delta)
		if err != nil || size > 1<<20 {
			continue
		}
		got := make([]byte, size)
		if err = patch(got, base, delta); err == nil && (wantErr != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%x makes %d bytes, want %d, %v", delta, len(got), len(want), wantErr)
		}
		if err != nil && wantErr == nil && len(want) == len(got) {
			t.Fatalf("%x is refused", delta)
		}
		if err == nil {
			made++
		}
	}
	if made < 1000 {
		t.Errorf("%d of them can be made", made)
	}
}
