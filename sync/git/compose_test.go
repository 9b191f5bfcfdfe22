package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// grafana is who the commits of these tests are by.
var grafana = Person{"Grafana", "noreply@grafana.com"}

func making(message string) CommitOptions {
	return CommitOptions{Author: grafana, Committer: grafana, Message: message, When: time.Unix(1800000000, 0)}
}

// leaf is what a model of a tree has at a path.
type leaf struct{ mode, id string }

// model is a tree as a list of files, which is what git makes a tree of.
type model map[string]leaf

func (m model) dir(path string) bool {
	for p := range m {
		if strings.HasPrefix(p, path+"/") {
			return true
		}
	}
	return false
}

// blocked says that something above a path is no directory: a submodule, or a file.
func (m model) blocked(path string) (by string) {
	for at := range path {
		if path[at] == '/' {
			if l, there := m[path[:at]]; there {
				return l.mode
			}
		}
	}
	return ""
}

func (m model) twin(path string) bool {
	for p := range m {
		for at := range len(p) + 1 {
			if (at == len(p) || p[at] == '/') && p[:at] != path && fold(p[:at]) == fold(path) {
				return true
			}
		}
	}
	return false
}

var errOther = errors.New("other")

// do makes an edit of the model, with the kind of error that is to come of it.
func (m model) do(e Edit) error {
	path, dir := strings.CutSuffix(e.Path, "/")
	to := strings.TrimSuffix(e.To, "/")
	l, file := m[path]
	switch {
	case m.blocked(path) == "160000":
		return errOther
	case e.Blob != nil:
		switch {
		case m.blocked(path) != "":
			return fs.ErrExist
		case m.dir(path):
			return fs.ErrExist
		case l.mode == "160000":
			return errOther
		case !file && m.above(path):
			return fs.ErrExist
		}
		mode := "100644"
		if l.mode == "100755" {
			mode = l.mode
		}
		m[path] = leaf{mode, e.Blob.ID.String()}
		return nil
	case !file && !m.dir(path):
		return fs.ErrNotExist
	case l.mode == "160000", file == dir:
		return errOther
	}
	moved := model{}
	for p, l := range m {
		if p == path || strings.HasPrefix(p, path+"/") {
			moved[p[len(path):]] = l
		}
	}
	if e.To != "" {
		_, there := m[to]
		switch {
		case strings.HasSuffix(e.To, "/") != dir, dir && strings.HasPrefix(e.To, e.Path):
			return errOther
		case m.blocked(to) == "160000":
			return errOther
		case there, m.dir(to), m.blocked(to) != "", m.above(to):
			return fs.ErrExist
		}
	}
	for p, l := range moved {
		delete(m, path+p)
		if e.To != "" {
			moved[p] = l
		}
	}
	if e.To != "" {
		for p, l := range moved {
			m[to+p] = l
		}
	}
	return nil
}

// above says that a path, or the first directory above it that is new, would be taken
// for another name.
func (m model) above(path string) bool {
	for at := range len(path) + 1 {
		if at == len(path) || path[at] == '/' {
			if _, there := m[path[:at]]; !there && !m.dir(path[:at]) {
				return m.twin(path[:at])
			}
		}
	}
	return false
}

// tree has git make the tree of the model, in the repository at dir.
func (m model) tree(t testing.TB, dir string) string {
	t.Helper()
	var in strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&in, "%s %s\t%s\n", m[p].mode, m[p].id, p)
	}
	index := "GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")
	gittest.GitWith(t, dir, []byte(in.String()), []string{index}, "update-index", "--index-info")
	return gittest.GitWith(t, dir, nil, []string{index}, "write-tree", "--missing-ok")
}

// TestComposeAgreesWithGit makes random changes in random trees. What comes of each edit
// is held against a list of files, and each tree against what git makes of that list.
func TestComposeAgreesWithGit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	gittest.Git(t, root, nil, "init", "-q", "--bare", "-b", "main", "site.git")
	bare := filepath.Join(root, "site.git")
	rng := rand.New(rand.NewPCG(5, 5))
	// Names that sort in another way as files than as directories, twins, and strange ones.
	names := []string{"a", "a.json", "a-b", "a0", "b", "B", "c", "ü", "with blank"}
	path := func() string {
		parts := []string{names[rng.IntN(len(names))]}
		for range rng.IntN(3) {
			parts = append(parts, names[rng.IntN(len(names))])
		}
		return strings.Join(parts, "/")
	}
	m := openMirrors(t, Options{AllowLocal: []string{root}})
	r := Remote{URL: bare}
	tally := map[string]int{}
	for round := range suite.Count(8, 20) {
		now := model{}
		for i := range rng.IntN(30) {
			p := path()
			_, there := now[p]
			if there || now.dir(p) || now.blocked(p) != "" || now.above(p) {
				continue
			}
			text := gittest.Git(t, bare, []byte(fmt.Sprint("text ", round, i%7)), "hash-object", "-w", "--stdin")
			now[p] = []leaf{{"100644", text}, {"100644", text}, {"100755", text}, {"120000", text}, {"160000", strings.Repeat("1", 40)}}[rng.IntN(5)]
		}
		base := gittest.Git(t, bare, nil, "commit-tree", "-m", fmt.Sprint("base ", round), now.tree(t, bare))
		gittest.Git(t, bare, nil, "update-ref", "refs/heads/main", base)
		var edits []Edit
		var wants []error
		for range 1 + rng.IntN(6) {
			e := Edit{Path: path()}
			if all := slices.Sorted(maps.Keys(now)); len(all) > 0 && rng.IntN(4) > 0 {
				e.Path = all[rng.IntN(len(all))]
				for rng.IntN(2) == 0 && strings.Contains(e.Path, "/") {
					e.Path = e.Path[:strings.LastIndexByte(e.Path, '/')] + "/"
					if rng.IntN(3) > 0 {
						break
					}
					e.Path = strings.TrimSuffix(e.Path, "/")
				}
			}
			switch rng.IntN(3) {
			case 0:
				e.To = path()
				if strings.HasSuffix(e.Path, "/") != (rng.IntN(9) == 0) {
					e.To += "/"
				}
			case 1:
				if !strings.HasSuffix(e.Path, "/") {
					e.Blob = NewBlob(fmt.Appendf(nil, "new %d", rng.IntN(5)))
				}
			}
			edits, wants = append(edits, e), append(wants, now.do(e))
		}
		ref, _ := syncRef(t, m, r, "main")
		c, err := m.Compose(t.Context(), r, ref.Hash, edits)
		if err != nil {
			t.Fatalf("%+v: %v", edits, err)
		}
		for i, want := range wants {
			got := c.Outcomes[i]
			kind := "done"
			switch {
			case want == nil && got == nil:
			case want == nil || got == nil:
				t.Fatalf("round %d: edit %+v: %v, want %v\n%+v", round, edits[i], got, want, edits)
			default:
				if kind = want.Error(); errors.Is(got, fs.ErrExist) != (want == fs.ErrExist) ||
					errors.Is(got, fs.ErrNotExist) != (want == fs.ErrNotExist) {
					t.Fatalf("round %d: edit %+v: %v, want %v", round, edits[i], got, want)
				}
			}
			tally[kind]++
		}
		want := now.tree(t, bare)
		if got := c.tree.String(); got != want {
			t.Fatalf("round %d: tree %s, want %s: %s\n%+v\n%s", round, got, want, gittest.Git(t, bare, nil, "ls-tree", "-r", want), edits,
				fmt.Sprint(c.made))
		}
		if before := gittest.Git(t, bare, nil, "rev-parse", base+"^{tree}"); c.Empty() != (before == want) {
			t.Fatalf("round %d: Empty %t", round, c.Empty())
		}
		w := gittest.Must[*NewCommit](t)(c.Commit(making("change")))
		if err := m.Push(t.Context(), r, "refs/heads/main", base, w); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if head := gittest.Git(t, bare, nil, "rev-parse", "main"); head != w.Hash {
			t.Fatalf("round %d: the branch is at %s, want %s", round, head, w.Hash)
		}
		// Nothing is sent that the base has at the same place.
		news := strings.Fields(gittest.Git(t, bare, nil, "diff-tree", "-r", "-t", "--no-renames", "--diff-filter=AMT", "--format=%T %H", base,
			w.Hash))
		for _, o := range w.made[1:] {
			if id := o.ID.String(); id != want && !slices.ContainsFunc(news, func(s string) bool { return s == id }) &&
				!slices.ContainsFunc(c.made, func(m pack.Packed) bool { return m.Kind == pack.BlobKind && m.ID == o.ID }) {
				t.Errorf("round %d: %s %s is sent and is not new", round, o.Kind, id)
			}
		}
	}
	gittest.Git(t, bare, nil, "fsck", "--full", "--strict")
	t.Logf("%v", tally)
	for _, kind := range []string{"done", fs.ErrExist.Error(), fs.ErrNotExist.Error(), "other"} {
		if tally[kind] < 3 {
			t.Errorf("%q came %d times only", kind, tally[kind])
		}
	}
}

// TestComposeRefuses: what may not be written is refused as a whole, and what cannot
// be read is not written over.
func TestComposeRefuses(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	head := o.Commit("first", map[string]string{"a/x.json": "1"})
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	syncRef(t, m, r, "main")
	for _, path := range []string{"", "/", "/a", "../x", "a/../x", ".git/config", "a/.GIT/x", "a//b", "nul", "\x1b", "a\\b", "git~1/x",
		strings.Repeat("d/", 40) + "x", strings.Repeat("long-", 300)} {
		for _, e := range []Edit{{Path: path}, {Path: path, Blob: NewBlob([]byte("x"))}, {Path: "a/x.json", To: path}} {
			if path == "" && e.To == path && e.Path != path {
				continue // no move
			}
			_, err := m.Compose(t.Context(), r, head, []Edit{e})
			gittest.ErrorIs(t, err, Refused, "cannot be written to")
		}
	}
	_, err := m.Compose(t.Context(), r, strings.Repeat("1", 40), nil)
	if !errors.Is(err, ErrUnknownCommit) {
		t.Errorf("unknown commit: %v", err)
	}
	small := r
	small.Limits = pack.Limits{ObjectBytes: 1000}
	_, err = m.Compose(t.Context(), small, head, []Edit{{Path: "big", Blob: NewBlob(make([]byte, 1001))}})
	gittest.ErrorIs(t, err, TooLarge)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Compose(ctx, r, head, []Edit{{Path: "a/x.json"}})
	gittest.ErrorIs(t, err, Cancelled)

	// A tree that is cut short stays as it is, and all else can be written.
	broken := []byte("100644 x.json\x00short")
	top := pack.TreeText([]pack.TreeEntry{{Mode: pack.ModeTree, Name: "broken", ID: pack.IDOf(pack.TreeKind, broken)},
		{Mode: pack.ModeFile, Name: "y.json", ID: pack.ID{1}}})
	editor := &treeEditor{limits: pack.DefaultLimits, seen: map[pack.ID]bool{}, read: func(id pack.ID) ([]byte, error) {
		return map[pack.ID][]byte{pack.IDOf(pack.TreeKind, broken): broken, pack.IDOf(pack.TreeKind, top): top}[id], nil
	}}
	tree := &dirNode{id: pack.IDOf(pack.TreeKind, top)}
	if err := editor.edit(tree, Edit{Path: "broken/x.json"}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a broken directory: %v", err)
	}
	if err := editor.edit(tree, Edit{Path: "y.json"}); err != nil {
		t.Error(err)
	}
	gittest.Must[pack.ID](t)(editor.write(tree))
	if len(editor.made) != 1 || editor.made[0].ID != pack.IDOf(pack.TreeKind, top[:len("40000 broken")+1+20]) {
		t.Errorf("made %v", editor.made)
	}
}

// testSigner signs as a key would, in form only.
type testSigner struct {
	err     error
	answer  string
	payload []byte
}

func (s *testSigner) Sign(payload []byte) ([]byte, error) {
	s.payload = payload
	return []byte(s.answer), s.err
}

// TestCommitText holds what a commit says, as git reads it.
func TestCommitText(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	gittest.Git(t, o.Bare, nil, "config", "http.receivepack", "true")
	gittest.Git(t, o.Bare, nil, "config", "receive.fsckObjects", "true")
	head := o.Commit("first", map[string]string{"a.json": "1", "b.json": "2"})
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	syncRef(t, m, r, "main")
	c := gittest.Must[*Composition](t)(m.Compose(t.Context(), r, head, []Edit{{Path: "a.json"}}))
	armor := "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n\nend\n-----END SSH SIGNATURE-----\n"
	signer := &testSigner{answer: armor}
	mk := CommitOptions{Author: Person{"  Ann <script> ", "ann@example.com"}, Committer: grafana,
		When: time.Date(2026, 11, 22, 20, 0, 0, 5, time.FixedZone("", 3600)), Message: "x"}
	if _, err := c.Commit(mk); err == nil {
		t.Error("a name with < in it was taken")
	}
	mk.Author.Name, mk.Message, mk.Signer = "  Ann,\nAuthor. ", "\r\n\r\nDelete a.json  \r\n\r\n  because\t\r\n\r\n", signer
	w := gittest.Must[*NewCommit](t)(c.Commit(mk))
	again := gittest.Must[*NewCommit](t)(c.Commit(mk))
	if w.Hash != again.Hash {
		t.Error("the same commit has two names")
	}
	if err := m.Push(t.Context(), r, "refs/heads/main", head, w); err != nil {
		t.Fatal(err)
	}
	raw := gittest.Git(t, o.Bare, nil, "cat-file", "commit", w.Hash)
	want := "tree " + c.tree.String() + "\nparent " + head +
		"\nauthor Ann, Author <ann@example.com> 1795374000 +0000\ncommitter Grafana <noreply@grafana.com> 1795374000 +0000\n" +
		"gpgsig -----BEGIN SSH SIGNATURE-----\n U1NIU0lH\n \n end\n -----END SSH SIGNATURE-----\n\nDelete a.json\n\n  because"
	if raw != want {
		t.Errorf("commit\n%s\nwant\n%s", raw, want)
	}
	if signed := gittest.Must[signedObject](t)(splitSignedCommit([]byte(raw + "\n"))); string(signed.text) != string(signer.payload) ||
		string(signed.signature) != armor {
		t.Errorf("what is read as signed is not what was signed:\n%s\n%s", signed.text, signer.payload)
	}
	if body := gittest.Git(t, o.Bare, nil, "log", "-1", "--format=%s|%b", w.Hash); body != "Delete a.json|  because" {
		t.Errorf("message %q", body)
	}
	for name, change := range map[string]func(*CommitOptions){
		"no name":         func(m *CommitOptions) { m.Author.Name = " . " },
		"no mail":         func(m *CommitOptions) { m.Committer.Mail = "" },
		"no message":      func(m *CommitOptions) { m.Message = " \n\t\n" },
		"a zero byte":     func(m *CommitOptions) { m.Message = "a\x00b" },
		"no text":         func(m *CommitOptions) { m.Message = "a\xff" },
		"a long one":      func(m *CommitOptions) { m.Message = strings.Repeat("x", maxMessage+1) },
		"before 1970":     func(m *CommitOptions) { m.When = time.Unix(-5, 0) },
		"a key that errs": func(m *CommitOptions) { m.Signer = &testSigner{err: errors.New("locked")} },
		"no signature":    func(m *CommitOptions) { m.Signer = &testSigner{answer: "hello"} },
		"no signature 2":  func(m *CommitOptions) { m.Signer = &testSigner{} },
	} {
		bad := mk
		change(&bad)
		if _, err := c.Commit(bad); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
