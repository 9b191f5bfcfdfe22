package transport_test

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"limpet/sync/git"
	"limpet/sync/testenv/suite"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

// Small packs that describe a great deal. Each is fetched by a process of its
// own, so that its memory can be seen.

// bombReport is what the child says.
type bombReport struct {
	Kind  git.Kind
	Err   string
	Took  time.Duration
	Peak  int64 // bytes, the largest resident set
	Files int
}

// TestMain lets the test binary be the child: it fetches one remote and reports.
func TestMain(m *testing.M) {
	url := os.Getenv("LIMPET_TEST_FETCH")
	if url == "" {
		os.Exit(gittest.Main(m))
	}
	var out bombReport
	began := time.Now()
	err := func() error {
		packBytes, _ := strconv.ParseInt(os.Getenv("LIMPET_TEST_PACK_BYTES"), 10, 64)
		mirrors, err := git.Open(os.Getenv("LIMPET_TEST_DIR"), git.Options{Limits: pack.Limits{PackBytes: packBytes},
			AllowLocal: []string{strings.TrimPrefix(url, "file://")}})
		if err != nil {
			return err
		}
		defer mirrors.Close()
		r := git.Remote{URL: url}
		ctx := context.Background()
		ref, err := mirrors.Resolve(ctx, r, gitref.Branch(""))
		if err != nil {
			return err
		}
		if _, err := mirrors.Fetch(ctx, r, ref); err != nil {
			return err
		}
		tree, err := mirrors.Tree(ctx, r, ref.Hash, "")
		out.Files = len(tree.Files)
		return err
	}()
	out.Took, out.Kind = time.Since(began), git.KindOf(err)
	if err != nil {
		out.Err = err.Error()
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			out.Peak = kb << 10
		}
	}
	json.NewEncoder(os.Stdout).Encode(out)
}

// explode fetches a pack in a child. commit is the tip that is advertised.
func explode(t *testing.T, commit pack.ID, packBytes int, pack func(io.Writer)) bombReport {
	t.Helper()
	s := gittest.ServeRaw(commit, pack)
	defer s.Close()
	return fetchInChild(t, s.URL+"/bomb.git", packBytes)
}

// fetchInChild fetches a remote in a process of its own, with a limit for its
// pack if packBytes is not 0.
func fetchInChild(t *testing.T, url string, packBytes int) bombReport {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LIMPET_TEST_FETCH="+url, "LIMPET_TEST_DIR="+dir, "LIMPET_TEST_PACK_BYTES="+strconv.Itoa(packBytes),
		"GOMEMLIMIT=", "GOGC=50") // 50 is what limpet sets for itself
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var rep bombReport
	if err := json.Unmarshal(out, &rep); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if left := gittest.Glob(t, dir, "tmp_*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Logf("%s: kind %q in %s, peak %d MiB: %s", t.Name(), rep.Kind, rep.Took.Round(time.Millisecond), rep.Peak>>20, rep.Err)
	if rep.Peak > 256<<20 && !raceEnabled {
		t.Errorf("peak memory %d MiB", rep.Peak>>20)
	}
	return rep
}

// history is a commit and a tree with these entries, as entries of a pack.
func history(files ...pack.TreeEntry) (commit pack.ID, entries [][]byte) {
	tree := pack.TreeText(files)
	text := fmt.Appendf(nil, "tree %s\nauthor A <a@b> 1800000000 +0000\ncommitter A <a@b> 1800000000 +0000\n\nbomb\n",
		pack.IDOf(pack.TreeKind, tree))
	return pack.IDOf(pack.CommitKind, text), [][]byte{gittest.Entry(pack.CommitKind, len(text), nil, text),
		gittest.Entry(pack.TreeKind, len(tree), nil, tree)}
}

func TestBombs(t *testing.T) {
	t.Parallel()
	const gib, mib = 1 << 30, 1 << 20
	t.Run("zeros", func(t *testing.T) {
		huge := gittest.EntryOf(pack.BlobKind, gib, nil, gittest.Zeros(64*mib)) // what follows the header is never looked at
		commit, entries := history(pack.TreeEntry{Mode: pack.ModeFile, Name: "a.json", ID: pack.ID{1}})
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(append(entries, huge)...)) })
		if rep.Kind != git.TooLarge || rep.Took > 2*time.Second || !strings.Contains(rep.Err, "1073741824") {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("a header that lies", func(t *testing.T) {
		huge := gittest.EntryOf(pack.BlobKind, 1000, nil, gittest.Zeros(gib/4))
		commit, entries := history(pack.TreeEntry{Mode: pack.ModeFile, Name: "a.json", ID: pack.ID{1}})
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(append(entries, huge)...)) })
		if rep.Kind != git.Corrupt || rep.Took > 2*time.Second {
			t.Errorf("%+v", rep)
		}
	})
	base := make([]byte, 16*mib)
	id := pack.IDOf(pack.BlobKind, base)
	// copies makes a delta of n copies of the whole base.
	copies := func(n int, tail byte) []byte {
		put := func(v int) (out []byte) {
			for ; v > 0x7f; v >>= 7 {
				out = append(out, byte(v)|0x80)
			}
			return append(out, byte(v))
		}
		d := append(put(len(base)), put(n*len(base)+1)...)
		for range n * len(base) / 0x10000 {
			d = append(d, 0x80) // 64 KiB from the beginning
		}
		return append(d, 1, tail)
	}
	t.Run("one delta makes much", func(t *testing.T) {
		d := copies(64, 'x')
		commit, entries := history(pack.TreeEntry{Mode: pack.ModeFile, Name: "a.json", ID: pack.ID{1}})
		entries = append(entries, gittest.EntryOf(pack.BlobKind, len(base), nil, gittest.Zeros(len(base))),
			gittest.Entry(pack.RefDeltaKind, len(d), id[:], d))
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(entries...)) })
		if rep.Kind != git.TooLarge || rep.Took > 2*time.Second {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("many deltas make much", func(t *testing.T) {
		commit, entries := history(pack.TreeEntry{Mode: pack.ModeFile, Name: "a.json", ID: pack.ID{1}})
		entries = append(entries, gittest.EntryOf(pack.BlobKind, len(base), nil, gittest.Zeros(len(base))))
		for i := range 1000 {
			d := copies(1, byte(i))
			entries = append(entries, gittest.Entry(pack.RefDeltaKind, len(d), id[:], d))
		}
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(entries...)) })
		if rep.Kind != git.TooLarge || rep.Took > 2*time.Second {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("as much as is allowed", func(t *testing.T) {
		var files []pack.TreeEntry
		entries := [][]byte{gittest.EntryOf(pack.BlobKind, len(base), nil, gittest.Zeros(len(base)))}
		// A chain, each link 31 MiB large, and two leaves on each.
		link := make([]byte, 31*mib)
		for i := range 5 {
			for leaf := range 3 {
				d := deltaOfZeros(len(link), len(link), byte(i+1), byte(leaf))
				if i == 0 {
					d = deltaOfZeros(len(base), len(link), byte(i+1), byte(leaf))
				}
				entries = append(entries, gittest.Entry(pack.RefDeltaKind, len(d), id[:], d))
				content := append([]byte{byte(i + 1), byte(leaf)}, link[:len(link)-2]...)
				files = append(files, pack.TreeEntry{Mode: pack.ModeFile, Name: fmt.Sprintf("%d-%d.json", i, leaf),
					ID: pack.IDOf(pack.BlobKind, content)})
			}
			content := append([]byte{byte(i + 1), 0}, link[:len(link)-2]...)
			id = pack.IDOf(pack.BlobKind, content)
		}
		commit, top := history(files...)
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(append(top, entries...)...)) })
		if rep.Err != "" || rep.Files != len(files) {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("more bytes than allowed", func(t *testing.T) {
		commit, _ := history()
		rep := explode(t, commit, 64*mib, func(w io.Writer) {
			io.WriteString(w, "PACK\x00\x00\x00\x02\x00\x00\xff\xff")
			e := gittest.EntryOf(pack.BlobKind, 30*mib, nil, nil)
			for {
				if _, err := w.Write(e); err != nil {
					return
				}
				var z bytes.Buffer // stored blocks: as large on the wire as inflated
				zw, _ := zlib.NewWriterLevel(&z, zlib.NoCompression)
				zw.Write(make([]byte, 30*mib))
				zw.Close()
				if _, err := w.Write(z.Bytes()); err != nil {
					return
				}
			}
		})
		if rep.Kind != git.TooLarge || !strings.Contains(rep.Err, "pack of") {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("many objects", func(t *testing.T) {
		commit, entries := history()
		rep := explode(t, commit, 0, func(w io.Writer) {
			p := gittest.Pack(entries...)
			p[8] = 0x7f
			w.Write(p)
		})
		if rep.Kind != git.TooLarge {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("refs without end", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			out := bufio.NewWriterSize(w, 1<<16)
			io.WriteString(out, "001e# service=git-upload-pack\n0000")
			for i := 0; ; i++ {
				caps := ""
				if i == 0 {
					caps = "\x00shallow"
				}
				line := fmt.Sprintf("%040x refs/%x%s\n", i+1, i, caps)
				if _, err := fmt.Fprintf(out, "%04x%s", len(line)+4, line); err != nil {
					return
				}
			}
		}))
		defer s.Close()
		rep := fetchInChild(t, s.URL+"/x", 0)
		if rep.Kind != git.TooLarge || !strings.Contains(rep.Err, "list of refs") {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("a tree of trees", func(t *testing.T) {
		blob := []byte("x")
		entries := [][]byte{gittest.Entry(pack.BlobKind, 1, nil, blob)}
		id, mode := pack.IDOf(pack.BlobKind, blob), uint32(pack.ModeFile)
		for range 10 {
			var files []pack.TreeEntry
			for i := range 10 {
				files = append(files, pack.TreeEntry{Mode: mode, Name: fmt.Sprint("f", i), ID: id})
			}
			text := pack.TreeText(files)
			entries = append(entries, gittest.Entry(pack.TreeKind, len(text), nil, text))
			id, mode = pack.IDOf(pack.TreeKind, text), pack.ModeTree
		}
		commit, top := history(pack.TreeEntry{Mode: pack.ModeTree, Name: "d", ID: id})
		rep := explode(t, commit, 0, func(w io.Writer) { w.Write(gittest.Pack(append(top, entries...)...)) })
		if rep.Kind != git.TooLarge || !strings.Contains(rep.Err, "files and directories") {
			t.Errorf("%+v", rep)
		}
	})
}

// deltaOfZeros makes size bytes from a base of zeros: two of its own, then zeros.
func deltaOfZeros(base, size int, a, b byte) []byte {
	put := func(v int) (out []byte) {
		for ; v > 0x7f; v >>= 7 {
			out = append(out, byte(v)|0x80)
		}
		return append(out, byte(v))
	}
	d := append(append(put(base), put(size)...), 2, a, b)
	for left := size - 2; left > 0; {
		n := min(left, 0xffff)
		d = append(d, 0x80|0x01|0x10|0x20, 2, byte(n), byte(n>>8)) // from offset 2: zeros in every link
		left -= n
	}
	return d
}

// TestLocalInPieces: a repository on this host is served in the memory of a few of its objects.
func TestLocalInPieces(t *testing.T) {
	t.Parallel()
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	const commits, files = 4, 50
	for i := range commits {
		content := map[string]string{}
		for j := range files {
			content[fmt.Sprintf("%d/%d.json", i, j)] = fmt.Sprint(i, j, strings.Repeat("0", 1<<20))
		}
		o.Commit("more", content)
	}
	if rep := fetchInChild(t, "file://"+o.Bare, 0); rep.Err != "" || rep.Files != commits*files {
		t.Errorf("%+v", rep)
	}
}

// TestManyFiles fetches and lists a repository of 100,000 files, of 2,000 in the fast lane.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	files := suite.Count(2_000, 100_000)
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "large.git")
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\ncommitter A <a@b> 1800000000 +0000\ndata 0\n")
	for i := range files {
		text := fmt.Sprintf(`{"uid":"d%06d","title":"Dashboard %d"}`, i, i)
		fmt.Fprintf(&in, "M 100644 inline team-%03d/d%06d.json\ndata %d\n%s\n", i%500, i, len(text), text)
	}
	gittest.Git(t, o.Bare, in.Bytes(), "fast-import", "--quiet")
	rep := fetchInChild(t, s.URL+"/large.git", 0)
	if rep.Err != "" || rep.Files != files || rep.Took > time.Minute {
		t.Errorf("%+v", rep)
	}
}
