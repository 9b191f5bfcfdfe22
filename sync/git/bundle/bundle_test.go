package bundle

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

var (
	hexA = strings.Repeat("ab", 20)
	hexB = strings.Repeat("cd", 20)
)

func TestReadHeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text        string
		kind        giterr.Kind // "" = it is read
		refs, bases int
	}{
		"whole":            {v2 + "\n" + hexA + " refs/heads/main\n" + hexA + " HEAD\n\nPACK", "", 2, 0},
		"thin":             {v2 + "\n-" + hexB + " a subject\n-" + hexA + "\n" + hexA + " refs/heads/main\n\n", "", 1, 2},
		"version 3":        {v3 + "\n@object-format=sha1\n" + hexA + " refs/heads/main\n\n", "", 1, 0},
		"sha256":           {v3 + "\n@object-format=sha256\n" + hexA + " refs/heads/main\n\n", giterr.Refused, 0, 0},
		"filter":           {v3 + "\n@object-format=sha1\n@filter=blob:none\n" + hexA + " refs/heads/main\n\n", giterr.Refused, 0, 0},
		"capability of v2": {v2 + "\n@object-format=sha1\n\n", giterr.Corrupt, 0, 0},
		"version 4":        {"# v4 git bundle\n\n", giterr.Corrupt, 0, 0},
		"a pack":           {"PACK\x00\x00\x00\x02", giterr.Corrupt, 0, 0},
		"empty":            {"", giterr.Corrupt, 0, 0},
		"no name":          {v2 + "\n" + hexA + "\n\n", giterr.Corrupt, 0, 0},
		"short hash":       {v2 + "\nabcd refs/heads/main\n\n", giterr.Corrupt, 0, 0},
		"no end":           {v2 + "\n" + hexA + " refs/heads/main\n", giterr.Corrupt, 0, 0},
		"long line":        {v2 + "\n" + hexA + " refs/heads/" + strings.Repeat("x", LineBytes) + "\n\n", giterr.Corrupt, 0, 0},
		"many refs":        {v2 + "\n" + strings.Repeat(hexA+" refs/heads/main\n", 5000) + "\n", giterr.TooLarge, 0, 0},
	} {
		h, size, err := ReadHeader(t.Context(), bufio.NewReaderSize(strings.NewReader(c.text), LineBytes), 100_000)
		if e, large := err.(*giterr.TooLargeError); large {
			err = giterr.Wrap(giterr.TooLarge, e, "")
		}
		if kind := giterr.KindOf(err); kind != c.kind {
			t.Errorf("%s: %v, want kind %q", name, err, c.kind)
		} else if err == nil && (len(h.Refs) != c.refs || len(h.Bases) != c.bases || int(size) != len(strings.TrimSuffix(c.text, "PACK"))) {
			t.Errorf("%s: %+v %d", name, h, size)
		}
	}
}

// TestHostileBundle: counts and sizes that a bundle claims cost nothing, also with a checksum that
// fits.
func TestHostileBundle(t *testing.T) {
	t.Parallel()
	head := v2 + "\n" + hexA + " refs/heads/main\n\n"
	sealed := func(body []byte) []byte {
		sum := sha1.Sum(body)
		return slices.Concat([]byte(head), body, sum[:])
	}
	count := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), 0xffffffff)
	small := pack.Limits{PackBytes: 1000}.Or(pack.DefaultLimits)
	for name, c := range map[string]struct {
		data   []byte
		limits pack.Limits
		valid  bool
	}{
		"4 billion objects": {sealed(count), pack.DefaultLimits, false},
		"no pack":           {[]byte(head), pack.DefaultLimits, false},
		"no objects":        {sealed([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")), pack.DefaultLimits, true},
		"not a pack":        {sealed([]byte("nonsense")), pack.DefaultLimits, false},
		"too large":         {sealed(slices.Concat(count, make([]byte, 2000))), small, false},
		"huge object": {slices.Concat([]byte(head), gittest.Pack(gittest.EntryOf(pack.CommitKind, math.MaxInt32, nil, gittest.Zeros(1<<20)))),
			pack.DefaultLimits, true}, // it is refused where the pack is read
		"lying size": {slices.Concat([]byte(head), gittest.Pack(gittest.EntryOf(pack.CommitKind, 10, nil, gittest.Zeros(1<<20)))),
			pack.DefaultLimits, false},
	} {
		path := filepath.Join(t.TempDir(), "x.bundle")
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		f := gittest.Must[*os.File](t)(os.Open(path))
		if _, err := Check(t.Context(), f, c.limits); (err == nil) != c.valid {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

// FuzzReadHeader: what is read can be written, and is then read as the same.
func FuzzReadHeader(f *testing.F) {
	for _, text := range []string{v2 + "\n" + hexA + " HEAD\n\n", v3 + "\n@object-format=sha1\n-" + hexB + " x\n" + hexA + " refs/tags/v1\n\nPACK",
		v2 + "\n-\n", "# v2 git bundle", v3 + "\n@\n\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, size, err := ReadHeader(t.Context(), bufio.NewReaderSize(bytes.NewReader(data), LineBytes), 1<<20)
		if err != nil {
			return
		}
		if size > int64(len(data)) {
			t.Fatalf("%d bytes of %d", size, len(data))
		}
		var out bytes.Buffer
		if err := h.write(&out); err != nil {
			t.Fatal(err)
		}
		again, _, err := ReadHeader(t.Context(), bufio.NewReaderSize(&out, LineBytes), 1<<20)
		if err != nil || !maps.Equal(again.Refs, h.Refs) || !slices.Equal(again.Bases, h.Bases) {
			t.Fatalf("%+v %v, want %+v", again, err, h)
		}
	})
}
