package git

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// theirs is what git says of two commits, in our terms.
func theirs(t testing.TB, bare, from, to, dir string) []string {
	t.Helper()
	rev := func(c string) string {
		if dir == "" {
			return c
		}
		return c + ":" + dir
	}
	out := gittest.Git(t, bare, nil, "diff-tree", "-r", "-M100%", "-z", "--raw", rev(from), rev(to))
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	var all []string
	for i := 0; i < len(fields) && fields[i] != ""; {
		head := strings.Fields(fields[i]) // :mode mode hash hash type
		switch head[4][0] {
		case 'R':
			all = append(all, fmt.Sprintf("renamed %s %s %s %s", fields[i+1], fields[i+2], head[2], head[3]))
			i++
		case 'A':
			all = append(all, fmt.Sprintf("added  %s  %s", fields[i+1], head[3]))
		case 'D':
			all = append(all, fmt.Sprintf("deleted  %s %s ", fields[i+1], head[2]))
		default:
			all = append(all, fmt.Sprintf("modified  %s %s %s", fields[i+1], head[2], head[3]))
		}
		i += 2
	}
	slices.Sort(all)
	return all
}

// ours is the same from Changes, with hashes cut as git's raw output has them. What Changes says of
// directories and refused entries is held against both trees.
func ours(t testing.TB, m *Mirrors, r Remote, from, to, dir string) []string {
	t.Helper()
	changes, err := m.Changes(t.Context(), r, from, to, dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	agree(t, m, r, from, to, dir, changes)
	for _, c := range changes.Files {
		all = append(all, fmt.Sprintf("%s %s %s %s %s", c.Type, c.From, c.Path, c.FromHash, c.Hash))
	}
	slices.Sort(all)
	return all
}

func agree(t testing.TB, m *Mirrors, r Remote, from, to, dir string, c Comparison) {
	t.Helper()
	var trees [2]Tree
	for i, commit := range []string{from, to} {
		var err error
		if trees[i], err = m.Tree(t.Context(), r, commit, dir); err != nil && KindOf(err) != PathNotFound {
			t.Fatal(err)
		}
	}
	if differ := !slices.Equal(trees[0].Dirs, trees[1].Dirs); differ != c.Dirs {
		t.Errorf("Dirs = %v, but the trees have %q and %q", c.Dirs, trees[0].Dirs, trees[1].Dirs)
	}
	for _, f := range trees[1].Files {
		at := slices.IndexFunc(c.Files, func(c Change) bool { return c.Path == f.Path })
		if at >= 0 && c.Files[at].Mode != f.Mode {
			t.Errorf("%s: mode %q, in the tree %q", f.Path, c.Files[at].Mode, f.Mode)
		}
	}
	before := slices.Clone(trees[0].Refused)
	gone := slices.DeleteFunc(trees[0].Refused, func(before Refusal) bool {
		return slices.ContainsFunc(trees[1].Refused, func(after Refusal) bool { return after.Path == before.Path })
	})
	come := slices.DeleteFunc(slices.Clone(trees[1].Refused), func(after Refusal) bool {
		return slices.ContainsFunc(before, func(b Refusal) bool { return after.Path == b.Path })
	})
	if (c.Refused != "") != (len(come) > 0) {
		t.Errorf("Refused = %q, but come are %v", c.Refused, come)
	}
	if (c.Unrefused != "") != (len(gone) > 0) {
		t.Errorf("Unrefused = %q, but gone are %v", c.Unrefused, gone)
	}
}

// state is a tree as a map; write makes a commit of it by fast-import.
type state map[string]string

func importStates(t testing.TB, o *gittest.Origin, states []state) []string {
	t.Helper()
	var in strings.Builder
	for i, s := range states {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Carl <carl@example.com> %d +0000\ndata 4\nstep\ndeleteall\n", 1800000000+i)
		for _, path := range slices.Sorted(maps.Keys(s)) {
			mode, text := "100644", s[path]
			if rest, exec := strings.CutPrefix(text, "#!"); exec {
				mode, text = "100755", rest
			}
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, path, len(text), text)
		}
	}
	gittest.Git(t, o.Bare, []byte(in.String()), "fast-import", "--quiet", "--force")
	return strings.Fields(gittest.Git(t, o.Bare, nil, "rev-list", "--reverse", "main"))
}

// edit changes a random part of a tree.
func edit(rnd *rand.Rand, old state, serial int) state {
	s := maps.Clone(old)
	paths := slices.Sorted(maps.Keys(s))
	for range 1 + rnd.IntN(6) {
		if len(paths) == 0 {
			break
		}
		p := paths[rnd.IntN(len(paths))]
		text, there := s[p]
		if !there {
			continue
		}
		dir, name, _ := strings.Cut(p, "/")
		switch rnd.IntN(8) {
		case 0:
			delete(s, p)
		case 1:
			s[p] = touch(rnd, text, 1)
		case 2: // to another directory
			delete(s, p)
			s[fmt.Sprintf("moved-%d/%s", rnd.IntN(3), name)] = text
		case 3: // to another directory, with changes
			delete(s, p)
			s[fmt.Sprintf("%s/sub-%d/%s", dir, rnd.IntN(3), name)] = touch(rnd, text, 4)
		case 4: // another name, with many changes
			delete(s, p)
			s[fmt.Sprintf("%s/new-%d.json", dir, serial)] = touch(rnd, text, rnd.IntN(25))
		case 5:
			s[fmt.Sprintf("team-%d/fresh-%d.json", rnd.IntN(4), serial)] = gittest.Dashboard(fmt.Sprint("n", serial), serial, 5+rnd.IntN(20))
		case 6: // the whole directory
			for q, text := range s {
				if rest, below := strings.CutPrefix(q, dir+"/"); below {
					delete(s, q)
					s[fmt.Sprintf("dir-%d/%s", serial, rest)] = text
				}
			}
		case 7: // a copy, and the original deleted or not
			s[fmt.Sprintf("team-1/copy-%d.json", serial)] = text
			if rnd.IntN(2) == 0 {
				delete(s, p)
			}
		}
	}
	return s
}

// touch changes n lines of a text.
func touch(rnd *rand.Rand, text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	for range n {
		lines[rnd.IntN(len(lines))] = fmt.Sprintf("    \"line %d\"\n", rnd.IntN(1000))
	}
	return strings.Join(lines, "")
}

func TestChangesAgainstGit(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	rnd := rand.New(rand.NewPCG(1, 2026))
	now := state{}
	for i := range 24 {
		now[fmt.Sprintf("team-%d/board-%d.json", i%4, i)] = gittest.Dashboard(fmt.Sprint("b", i), i, 4+i%20)
	}
	states := []state{now}
	for i := range suite.Count(60, 120) {
		now = edit(rnd, now, i)
		states = append(states, now)
	}
	ids := importStates(t, o, states)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	for _, id := range []string{ids[0], ids[len(ids)-1]} { // the first alone, then all after it
		if _, err := m.Fetch(t.Context(), r, Ref{Name: "refs/heads/main", Hash: id}); err != nil {
			t.Fatal(err)
		}
	}
	renames := 0
	for i := 1; i < len(ids); i++ {
		want, got := theirs(t, o.Bare, ids[i-1], ids[i], ""), ours(t, m, r, ids[i-1], ids[i], "")
		if !slices.Equal(got, want) {
			t.Errorf("step %d:\n ours  %s\n git's %s", i, strings.Join(got, "\n       "), strings.Join(want, "\n       "))
		}
		for _, line := range got {
			if strings.HasPrefix(line, "renamed") {
				renames++
			}
		}
	}
	if renames < len(states)/8 {
		t.Errorf("only %d renames", renames)
	}
	if got := ours(t, m, r, ids[7], ids[7], ""); len(got) != 0 {
		t.Errorf("a commit differs from itself: %v", got)
	}
	fsck(t, m, r)
}

func TestChangesOfKinds(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	long := gittest.Dashboard("long", 1, 40)
	a := state{"d/a.json": "a\n", "d/exec.sh": "run\n", "d/swap": "was a file\n", "d/was/dir.json": "x\n", "keep/.keep": "",
		"crlf.txt": strings.ReplaceAll(long, "\n", "\r\n"),
		"bin":      "\x00" + strings.Repeat("binary", 40), "small": "tiny", "long.json": long, "other/long.json": long}
	b := state{"d/a.json": "b\n", "d/exec.sh": "#!run\n", "d/swap/inside.json": "now a directory\n", "d/was": "x\n", "kept/.keep": "",
		"lf.txt": long,
		"bin2":   "\x00" + strings.Repeat("binary", 39) + "tail", "small2": "tinx", "moved/long.json": long, "other/long.json": long}
	ids := importStates(t, o, []state{a, b, {}, a})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	for _, id := range []string{ids[0], ids[3]} {
		if _, err := m.Fetch(t.Context(), r, Ref{Name: "refs/heads/main", Hash: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 3}, {0, 3}} {
		want, got := theirs(t, o.Bare, ids[c[0]], ids[c[1]], ""), ours(t, m, r, ids[c[0]], ids[c[1]], "")
		if !slices.Equal(got, want) {
			t.Errorf("%d to %d:\n ours  %s\n git's %s", c[0], c[1], strings.Join(got, "\n       "), strings.Join(want, "\n       "))
		}
	}
	if want, got := theirs(t, o.Bare, ids[0], ids[1], "d"), ours(t, m, r, ids[0], ids[1], "d"); !slices.Equal(got, want) {
		t.Errorf("below d:\n ours  %s\n git's %s", got, want)
	}
	if got := ours(t, m, r, ids[0], ids[2], "d"); len(got) != 4 || !strings.HasPrefix(got[0], "deleted") {
		t.Errorf("a directory that is gone: %s", got)
	}
	if got := ours(t, m, r, ids[2], ids[3], "d"); len(got) != 4 || !strings.HasPrefix(got[0], "added") {
		t.Errorf("a directory that is new: %s", got)
	}
}

// What is refused in listings is absent in differences.
func TestChangesOfRefused(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	first := o.Commit("one", map[string]string{"a.json": "1", "Twin.json": "t", "twin.json": "u"})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	o.Git("rm", "-q", "--cached", "a.json")
	o.Write(map[string]string{"a.json": "", "nul.json": "x", "Twin.json": ""})
	o.Git("update-index", "--add", "--cacheinfo", "120000,"+o.Git("hash-object", "-w", "/dev/null")+",a.json")
	o.Git("add", "nul.json")
	o.Git("rm", "-q", "--cached", "Twin.json")
	o.Git("commit", "-q", "-m", "two")
	o.Git("push", "-q", "origin", "HEAD")
	ref, _ := syncRef(t, m, r, "")
	changes, err := m.Changes(t.Context(), r, first, ref.Hash, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	agree(t, m, r, first, ref.Hash, "", changes)
	for _, c := range changes.Files {
		got = append(got, c.Type+" "+c.Path)
	}
	// The link takes the file's place: the file is gone. The twin that was
	// refused beside Twin.json may be used now.
	if !slices.Equal(got, []string{"deleted Twin.json", "deleted a.json", "added twin.json"}) {
		t.Errorf("%q", got)
	}
}
