package archive_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"limpet/sync/source/archive"
)

// text is of some size, and compresses as text does.
func text(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "panel %d: sum(rate(requests_total{job=%q}[5m]))\n", r.IntN(1000), fmt.Sprint("site-", r.IntN(40)))
	}
	return b.String()[:size]
}

// TestPieces: an archive that copies pieces of the one before has the bytes of one that is made
// anew, on any number of processors, and whatever has happened to the one before.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	files := map[string]entry{"large.txt": file(text(r, 3<<20)), "z/exactly": file(text(r, 1<<20))}
	for i := range 400 {
		files[fmt.Sprintf("d%d/f%d.json", i%7, i)] = file(text(r, 1+r.IntN(30_000)))
	}
	var before archive.Pieces
	first, _ := packed(t, commit(t, files), archive.Options{Pieces: &before})
	files["d3/f10.json"] = file(text(r, 50_000))
	delete(files, "d5/f12.json")
	files["d1/new.json"] = file("new")
	tree := commit(t, files)
	want, d := packed(t, tree, archive.Options{})

	// again packs the tree with pieces of an archive before, and returns how many were in that one.
	again := func(old []byte, pieces archive.Pieces) (data []byte, known int) {
		pieces.Archive = bytes.NewReader(old)
		was := pieces.List
		data, _ = packed(t, tree, archive.Options{Pieces: &pieces})
		for _, p := range pieces.List {
			if slices.ContainsFunc(was, func(q archive.Piece) bool { return q == p }) {
				known++
			}
		}
		return data, known
	}
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, n := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(n)
		if _, made := packed(t, tree, archive.Options{}); made != d {
			t.Errorf("%d processors: %+v, want %+v", n, made, d)
		}
		if data, known := again(first, before); !bytes.Equal(data, want) || known < len(before.List)*2/3 {
			t.Errorf("%d processors: %d of %d pieces are known, same bytes: %v", n, known, len(before.List), bytes.Equal(data, want))
		}
	}
	runtime.GOMAXPROCS(procs)

	damaged := bytes.Clone(first)
	for i := 10; i < len(damaged); i += 20_000 {
		damaged[i] ^= 1
	}
	cut := before
	cut.List = slices.Clone(before.List)
	cut.List[0].Size = 1 << 40
	old := before
	old.Version = "tar.gz/1"
	for name, was := range map[string]struct {
		data   []byte
		pieces archive.Pieces
	}{"damaged": {damaged, before}, "cut off": {first[:len(first)/2], before}, "sizes": {first, cut}, "no sizes": {first, sumsOf(before)},
		"of another format": {first, old}} {
		if data, _ := again(was.data, was.pieces); !bytes.Equal(data, want) {
			t.Errorf("%s: the bytes are others", name)
		}
	}

	for _, size := range []int64{1 << 40, -1, math.MinInt64} { // whatever it says, no more is read than pieces have
		var long endless
		one := archive.Pieces{Version: before.Version, List: slices.Clone(before.List[:1]), Archive: &long}
		one.List[0].Size = size
		if data, _ := packed(t, tree, archive.Options{Pieces: &one}); !bytes.Equal(data, want) || long.read.Load() > 4<<20 {
			t.Errorf("size %d: %d bytes are read, same bytes: %v", size, long.read.Load(), bytes.Equal(data, want))
		}
	}

	// It does copy: what the index vouches for is taken.
	forged := before
	forged.List = slices.Clone(before.List)
	other := bytes.Clone(first)
	other[10+forged.List[0].Size/2] ^= 1
	forged.List[0].CRC = crc32.ChecksumIEEE(other[10 : 10+forged.List[0].Size])
	forged.Archive = bytes.NewReader(other)
	var out bytes.Buffer
	if _, err := archive.Write(t.Context(), &out, tree, archive.Options{Pieces: &forged}); err != nil || bytes.Equal(out.Bytes(), want) {
		t.Errorf("no piece was copied: %v", err)
	}
	body, err := json.Marshal(before)
	var read archive.Pieces
	if err != nil || json.Unmarshal(body, &read) != nil || !slices.Equal(read.List, before.List) {
		t.Errorf("the index does not come back: %v", err)
	}
	gzip := exec.Command("gzip", "-t")
	gzip.Stdin = bytes.NewReader(want)
	if out, err := gzip.CombinedOutput(); err != nil {
		t.Errorf("gzip -t: %v: %s", err, out)
	}
	best := exec.Command("gzip", "-6", "-n")
	best.Stdin = bytes.NewReader(plainOf(t, want))
	if one, err := best.Output(); err != nil || len(want) > len(one)*105/100 {
		t.Errorf("%d bytes, and gzip -6 makes %d: %v", len(want), len(one), err)
	}
}

// sumsOf returns pieces with their sums alone.
func sumsOf(p archive.Pieces) archive.Pieces {
	out := archive.Pieces{Version: p.Version}
	for _, one := range p.List {
		out.List = append(out.List, archive.Piece{Sum: one.Sum})
	}
	return out
}

// endless is a file that has more than memory can hold; it fails in time.
type endless struct{ read atomic.Int64 }

func (e *endless) ReadAt(p []byte, _ int64) (int, error) {
	if e.read.Add(int64(len(p))) > 64<<20 {
		return 0, errors.New("too much")
	}
	return len(p), nil
}

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// full is a disk with space for some bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// TestFullDisk: what no file can keep is not compressed.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 100, 5000} {
		var from endless
		_, err := archive.Pack(t.Context(), &full{left}, func(add func(string, int64, io.Reader) error) error {
			return add("a", 256<<20, io.LimitReader(&from, 256<<20))
		})
		if !errors.Is(err, syscall.ENOSPC) || from.read.Load() > 32<<20 {
			t.Errorf("space for %d bytes: %v after %d", left, err, from.read.Load())
		}
	}
}
