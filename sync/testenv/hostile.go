package testenv

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" // #nosec: what Git names its objects by
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// HostileGit serves repositories that no host should serve, each at a path of its
// own: see Hostile.
type HostileGit struct {
	URL string

	sound   *GitServer
	mu      sync.Mutex // guards strays
	strays  []string
	answers map[string]func(io.Writer) // packs, by path
	commits map[string]string          // what main stands for, by path
}

// What a HostileGit serves.
const (
	HostileBlob      = "blob.git"      // a blob of 1 GiB
	HostileLie       = "lie.git"       // a blob that inflates to more than it says
	HostileDelta     = "delta.git"     // a delta that makes 1 GiB
	HostileDeltas    = "deltas.git"    // 1,000 deltas that make 16 MiB each
	HostileObjects   = "objects.git"   // two thousand million objects
	HostileTrees     = "trees.git"     // ten thousand million files, in eleven trees
	HostileRefs      = "refs.git"      // a list of refs without an end
	HostileNames     = "names.git"     // good.json among names that lead elsewhere
	HostilePortal    = "portal.git"    // the page of a captive portal
	HostileElsewhere = "elsewhere.git" // a redirect to another host
	HostileCut       = "cut.git"       // a sound pack without its second half
	HostileFlipped   = "flipped.git"   // a sound pack with one bit changed
	HostileSlow      = "slow.git"      // a sound pack in drops: half an hour for 256 KiB
)

// packEntry is an object of a pack: its stream is given as it goes over the wire.
func packEntry(kind byte, size int, base, stream []byte) []byte {
	head := []byte{kind<<4 | byte(size&15)}
	for left := size >> 4; left > 0; left >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(left&0x7f))
	}
	return append(append(head, base...), stream...)
}

func deflate(data []byte, times int) []byte {
	var b bytes.Buffer
	z, _ := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	for range times {
		z.Write(data)
	}
	z.Close()
	return b.Bytes()
}

func packOf(entries ...[]byte) []byte {
	n := len(entries)
	out := append([]byte("PACK\x00\x00\x00\x02"), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	out = append(out, bytes.Join(entries, nil)...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// gitObject is an object as an entry, and its name.
func gitObject(kind byte, name, data string) (entry, id []byte) {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", name, len(data), data))
	return packEntry(kind, len(data), nil, deflate([]byte(data), 1)), sum[:]
}

// treeLine is an entry of a tree.
func treeLine(mode, name string, id []byte) string { return mode + " " + name + "\x00" + string(id) }

// Hostile starts such a server. The repository in sound is that of which it sends
// damaged packs.
func Hostile(t testing.TB, sound string) *HostileGit {
	t.Helper()
	h := &HostileGit{sound: Git(t, GitOptions{}), answers: map[string]func(io.Writer){}, commits: map[string]string{}}
	for _, path := range []string{HostileCut, HostileFlipped} {
		h.sound.Serve(path, sound)
	}
	const mib = 1 << 20
	zeros := make([]byte, mib)
	base := make([]byte, 16*mib)
	baseSum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(base)), base...))
	baseEntry := packEntry(3, len(base), nil, deflate(base, 1))
	varint := func(v int) (out []byte) {
		for ; v > 0x7f; v >>= 7 {
			out = append(out, byte(v)|0x80)
		}
		return append(out, byte(v))
	}
	copies := func(n int, tail byte) []byte { // a delta of n times the base and a byte
		d := append(varint(len(base)), varint(n*len(base)+1)...)
		d = append(d, bytes.Repeat([]byte{0x80}, n*len(base)/0x10000)...)
		d = append(d, 1, tail)
		return packEntry(7, len(d), baseSum[:], deflate(d, 1))
	}
	blob, blobID := gitObject(3, "blob", `{"title":"x","uid":"good"}`)
	one := treeLine("100644", "a.json", blobID)
	many := [][]byte{baseEntry}
	for i := range 1000 {
		many = append(many, copies(1, byte(i)))
	}
	noise := make([]byte, 256<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	h.repository(HostileSlow, one, blob, packEntry(3, len(noise), nil, deflate(noise, 1)))
	h.drops(HostileSlow, 8, 50*time.Millisecond)
	for path, entry := range map[string][][]byte{
		HostileBlob:   {packEntry(3, 1024*mib, nil, deflate(zeros, 1024))},
		HostileLie:    {packEntry(3, 1000, nil, deflate(zeros, 256))},
		HostileDelta:  {baseEntry, copies(64, 'x')},
		HostileDeltas: many,
	} {
		h.repository(path, one, append(entry, blob)...)
	}
	h.repository(HostileObjects, one, blob)
	h.answers[HostileObjects] = func(w io.Writer) { io.WriteString(w, "PACK\x00\x00\x00\x02\x7f\xff\xff\xff") }

	nested, entries := one, [][]byte{blob}
	for range 10 {
		entry, id := gitObject(2, "tree", nested)
		entries, nested = append(entries, entry), ""
		for i := range 10 {
			nested += treeLine("40000", fmt.Sprint("d", i), id)
		}
	}
	h.repository(HostileTrees, nested, entries...)

	link, linkID := gitObject(3, "blob", "/etc/passwd")
	var names strings.Builder
	for _, name := range []string{"..", ".", ".git", ".GIT", "git~1", "", "...", "/etc/passwd.json", "a/b.json", `a\b.json`, "CON.json",
		"\x1b[2J.json", "a\nb.json", "bad\xff.json", strings.Repeat("n", 5000) + ".json", "\u202elive.json"} {
		names.WriteString(treeLine("100644", name, blobID))
	}
	names.WriteString(treeLine("100644", "good.json", blobID) + treeLine("120000", "link.json", linkID) +
		treeLine("160000", "module", linkID) +
		treeLine("100644", "twice.json", blobID) + treeLine("100644", "twice.json", blobID))
	h.repository(HostileNames, names.String(), blob, link)

	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.strays = append(h.strays, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	elsewhere, err := url.Parse(other.URL)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Host = "localhost:" + elsewhere.Port() // another name
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, elsewhere.String()) }))
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// Strays are the requests that the host of HostileElsewhere has had.
func (h *HostileGit) Strays() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.strays
}

// repository adds one whose main is a commit of this tree, with these objects.
func (h *HostileGit) repository(path, tree string, entries ...[]byte) {
	top, id := gitObject(2, "tree", tree)
	commit, commitID := gitObject(1, "commit",
		fmt.Sprintf("tree %x\nauthor A <a@b> 1800000000 +0000\ncommitter A <a@b> 1800000000 +0000\n\nhostile\n", id))
	data := packOf(append([][]byte{commit, top}, entries...)...)
	h.commits[path] = fmt.Sprintf("%x", commitID)
	h.answers[path] = func(w io.Writer) { w.Write(data) }
}

// drops has a pack sent so many bytes at a time, with a pause between them.
func (h *HostileGit) drops(path string, size int, pause time.Duration) {
	var pack bytes.Buffer
	h.answers[path](&pack)
	h.answers[path] = func(w io.Writer) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for drop := range slices.Chunk(pack.Bytes(), size) {
			if _, err := w.Write(drop); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			<-tick.C
		}
	}
}

func (h *HostileGit) serve(w http.ResponseWriter, r *http.Request, elsewhere string) {
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	switch path {
	case HostilePortal:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<html><title>Welcome to the \x1b[31mhotel</title>")
		return
	case HostileElsewhere:
		http.Redirect(w, r, elsewhere+r.URL.String(), http.StatusFound)
		return
	case HostileRefs:
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+pkt(strings.Repeat("1", 40)+" HEAD\x00shallow\n"))
		lines := []byte(strings.Repeat(pkt(strings.Repeat("2", 40)+" refs/heads/"+strings.Repeat("x", 900)+"\n"), 64))
		for {
			if _, err := w.Write(lines); err != nil {
				return
			}
		}
	case HostileCut, HostileFlipped:
		if r.Method == http.MethodGet {
			h.sound.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		h.sound.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		if path == HostileCut {
			body = body[:len(body)/2]
		} else {
			body[len(body)*2/3] ^= 0x10
		}
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.Write(body)
		return
	}
	commit, known := h.commits[path]
	switch {
	case !known:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+
			pkt(commit+" HEAD\x00shallow ofs-delta symref=HEAD:refs/heads/main\n")+pkt(commit+" refs/heads/main\n")+"0000")
	default:
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		io.WriteString(w, pkt("shallow "+commit)+"0000"+pkt("NAK\n"))
		h.answers[path](w)
	}
}
