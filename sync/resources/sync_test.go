package resources

import (
	"fmt"
	"limpet/sync/api/repopath"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var folderTarget = Target{Repository: "repo", Root: "repo", RootTitle: "Dashboards", Kinds: kinds}

func id(dir string) string { return FolderID("repo", dir) }

// TestRuns is the story of one repository: what each run writes, exactly.
func TestRuns(t *testing.T) {
	t.Parallel()
	type step struct {
		name   string
		tree   repo
		writes []string // sorted
		warns  map[string]string
	}
	base := repo{"a/cpu.json": dashboard("cpu", "CPU"), "a/b/mem.json": dashboard("mem", "Mem"), "top.json": dashboard("top", "Top"),
		"README.md": "hello"}
	with := func(r repo, changes ...string) repo {
		r = maps.Clone(r)
		for i := 0; i < len(changes); i += 2 {
			if changes[i+1] == "" {
				delete(r, changes[i])
			} else {
				r[changes[i]] = changes[i+1]
			}
		}
		return r
	}
	changed := with(base, "a/cpu.json", dashboard("cpu", "CPU 2"))
	moved := with(changed, "a/cpu.json", "", "c/cpu.json", changed["a/cpu.json"])
	movedEdited := with(moved, "c/cpu.json", "", "d/cpu.json", dashboard("cpu", "CPU 3"))
	newUID := with(movedEdited, "top.json", dashboard("top2", "Top"))
	swapped := with(newUID, "top.json", newUID["d/cpu.json"], "d/cpu.json", newUID["top.json"])
	named := with(swapped, "a/_folder.json", folderFile("team-a", "Team A"))
	retitled := with(named, "a/_folder.json", folderFile("team-a", "The A Team"))
	dirMoved := with(retitled, "a/_folder.json", "", "a/b/mem.json", "", "e/_folder.json", retitled["a/_folder.json"], "e/b/mem.json",
		retitled["a/b/mem.json"])
	unnamed := with(dirMoved, "e/_folder.json", "")
	broken := with(unnamed, "e/b/mem.json", "{")
	repaired := with(broken, "e/b/mem.json", unnamed["e/b/mem.json"])
	duplicate := with(repaired, "e/copy.json", dashboard("mem", "Copy"))
	emptied := with(repaired, "e/b/mem.json", "")
	steps := []step{
		{"first", base, []string{
			"POST dashboards cpu", "POST dashboards mem", "POST dashboards top",
			"POST folders " + id("a"), "POST folders " + id("a/b"), "POST folders repo"}, nil},
		{"nothing new", base, nil, nil},
		{"content", changed, []string{"PUT dashboards cpu"}, nil},
		{"moved to a new folder", moved, []string{"POST folders " + id("c"), "PUT dashboards cpu"}, nil},
		{"moved and edited", movedEdited, []string{"DELETE folders " + id("c"), "POST folders " + id("d"), "PUT dashboards cpu"}, nil},
		{"another uid", newUID, []string{"DELETE dashboards top", "POST dashboards top2"}, nil},
		{"two files swap their uids", swapped, []string{"PUT dashboards cpu", "PUT dashboards top2"}, nil},
		{"a folder gets a uid", named, []string{"DELETE folders " + id("a"), "POST folders team-a", "PUT folders " + id("a/b")}, nil},
		{"and another title", retitled, []string{"PUT folders team-a"}, nil},
		{"and another directory", dirMoved, []string{
			"DELETE folders " + id("a/b"), "POST folders " + id("e/b"), "PUT dashboards mem", "PUT folders team-a"}, nil},
		{"and no uid any more", unnamed, []string{"DELETE folders team-a", "POST folders " + id("e"), "PUT folders " + id("e/b")}, nil},
		{"broken file", broken, nil, map[string]string{"e/b/mem.json": "mem.json:1:1: not JSON"}},
		{"repaired file", repaired, nil, nil},
		{"second file of one uid", duplicate, nil, map[string]string{"e/copy.json": "e/b/mem.json"}},
		{"last file of a directory", emptied, []string{"DELETE dashboards mem", "DELETE folders " + id("e"), "DELETE folders " + id("e/b")}, nil},
	}
	for _, mode := range []string{"full", "incremental"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := newModel()
			var old repo
			for i, s := range steps {
				live := m.live()
				p := s.tree.full(folderTarget, live)
				if mode == "incremental" && i > 0 {
					p = s.tree.increment(folderTarget, old, live)
				}
				l := m.run(t, s.tree, p)
				_, writes := m.take()
				slices.Sort(writes)
				slices.Sort(s.writes)
				if !slices.Equal(writes, s.writes) {
					t.Fatalf("%s:\n got %q\nwant %q", s.name, writes, s.writes)
				}
				warns := l.warnings()
				if len(warns) != len(s.warns) {
					t.Errorf("%s: warnings %q, want %q", s.name, warns, s.warns)
				}
				for p, want := range s.warns {
					if !strings.Contains(warns[p], want) || strings.Contains(warns[p], "ERROR") {
						t.Errorf("%s: %s: %q, want %q", s.name, p, warns[p], want)
					}
				}
				old = s.tree
			}
		})
	}
}

// randomTree changes a tree in a few random ways. uids may meet in two files.
func randomTree(rng *rand.Rand, r repo, clash bool) repo {
	r = maps.Clone(r)
	dirs := []string{"", "a/", "a/b/", "a/b/c/", "x y/", "Z_/", "a.b/"}
	dir := func() string { return dirs[rng.IntN(len(dirs))] }
	paths := slices.Sorted(maps.Keys(r))
	for range 1 + rng.IntN(6) {
		var some string
		if len(paths) > 0 {
			some = paths[rng.IntN(len(paths))]
		}
		uid := fmt.Sprintf("u%d", rng.IntN(1<<30))
		if clash {
			uid = fmt.Sprintf("u%d", rng.IntN(12))
		}
		content, was := r[some]
		switch rng.IntN(8) {
		case 0, 1, 2:
			r[dir()+fmt.Sprintf("f%d.json", rng.IntN(20))] = dashboard(uid, fmt.Sprint(rng.IntN(9)))
		case 3:
			delete(r, some)
		case 4:
			if was && !repopath.IsFolderFile(some) {
				delete(r, some)
				r[dir()+repopath.Base(some)] = content
			}
		case 5:
			if was && !repopath.IsFolderFile(some) {
				r[some] = strings.Replace(content, `"title":"`, `"title":"x`, 1)
			}
		case 6:
			d := dirs[1+rng.IntN(len(dirs)-1)]
			r[d+repopath.FolderFile] = folderFile(fmt.Sprintf("folder%d", rng.IntN(5)), fmt.Sprint(rng.IntN(3)))
		case 7:
			if clash {
				r[dir()+fmt.Sprintf("f%d.json", rng.IntN(20))] = []string{"", "{", `{"a":1}`}[rng.IntN(3)]
			} else {
				r[dir()+"notes.txt"] = uid
			}
		}
	}
	return r
}

// expected is what a tree of valid files with names of their own has to become.
func expected(r repo, target Target) map[string]string {
	out := map[string]string{}
	tree := r.tree()
	ids := map[string]string{"": target.Root}
	if target.Root != "" {
		out["folders/"+target.Root] = fmt.Sprintf("%s %.8s in %q %q", "", "", "", target.RootTitle)
	}
	taken := map[string]bool{target.Root: true}
	for _, dir := range Directories(tree) {
		id, title, hash := FolderID(target.Repository, dir), repopath.Base(dir), ""
		if content, named := r[dir+repopath.FolderFile]; named {
			meta := ParseFolderFile(dir, r.hash(dir+repopath.FolderFile), []byte(content))
			if !taken[meta.UID] {
				id, title, hash = meta.UID, meta.Title, meta.Hash
			}
		}
		taken[id] = true
		ids[dir] = id
		out["folders/"+id] = fmt.Sprintf("%s %.8s in %q %q", dir, hash, ids[repopath.Parent(strings.TrimSuffix(dir, "/"))], title)
	}
	for _, f := range tree.Files {
		if !repopath.IsResourceFile(f.Path) || repopath.IsFolderFile(f.Path) {
			continue
		}
		o, err := Parse(file(f.Path), []byte(r[f.Path]))
		if err != nil {
			continue
		}
		out["dashboards/"+o.Name] = fmt.Sprintf("%s %.8s in %q %q", f.Path, f.Hash, ids[repopath.Parent(f.Path)], "")
	}
	return out
}

// folderClash reports whether two folder files of a tree have one uid. Who wins
// then depends on what the server had.
func folderClash(r repo) bool {
	seen := map[string]bool{}
	for p, content := range r {
		if repopath.IsFolderFile(p) {
			uid := ParseFolderFile(p, "", []byte(content)).UID
			if seen[uid] {
				return true
			}
			seen[uid] = true
		}
	}
	return false
}

// TestRandomTrees walks through random trees: after each run the server is what the tree says,
// whether the run was full or incremental, and another run has nothing to do.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		target := folderTarget
		if seed%3 == 0 {
			target.Root = ""
		}
		m := newModel()
		tree := repo{}
		for i := range 12 {
			next := randomTree(rng, tree, false)
			for folderClash(next) {
				next = randomTree(rng, tree, false)
			}
			live := m.live()
			p := next.full(target, live)
			if i > 0 && rng.IntN(2) == 0 {
				p = next.increment(target, tree, live)
			}
			checkOrder(t, p)
			l := m.run(t, next, p)
			if w := l.warnings(); len(w) > 0 {
				t.Fatalf("seed=%d step %d: warnings %q", seed, i, w)
			}
			if got, want := m.state(), expected(next, target); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed=%d step %d:\n got %v\nwant %v\ncalls %q", seed, i, got, want, m.calls)
			}
			if again := next.full(target, m.live()); !again.Empty() {
				t.Fatalf("seed=%d step %d: a second run would do %+v", seed, i, again)
			}
			m.take()
			m.run(t, next, next.increment(target, tree, m.live()))
			if _, writes := m.take(); len(writes) > 0 {
				t.Fatalf("seed=%d step %d: the same changes once more write %q", seed, i, writes)
			}
			tree = next
		}
	}
}

// TestHostileTrees does the same with broken files and uids that clash: the
// valid files with a uid of their own are right, and runs come to rest.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := newModel()
		tree := repo{}
		for i := range 10 {
			tree = randomTree(rng, tree, true)
			p := tree.full(folderTarget, m.live())
			checkOrder(t, p)
			m.run(t, tree, p)
			count := map[string]int{}
			for p, content := range tree {
				if o, err := Parse(file(p), []byte(content)); err == nil && !repopath.IsFolderFile(p) {
					count[o.Name]++
				}
			}
			state := m.state()
			for p, content := range tree {
				o, err := Parse(file(p), []byte(content))
				if err != nil || repopath.IsFolderFile(p) {
					continue
				}
				have := state["dashboards/"+o.Name]
				if count[o.Name] == 1 && !strings.HasPrefix(have, p+" "+tree.hash(p)[:8]) && !heldByBroken(tree, have) {
					t.Fatalf("seed=%d step %d: %s is %q, want it from %s", seed, i, o.Name, have, p)
				}
			}
			// A folder that a clash kept may go in the run after.
			m.run(t, tree, tree.full(folderTarget, m.live()))
			m.take()
			m.run(t, tree, tree.full(folderTarget, m.live()))
			if _, writes := m.take(); len(writes) > 0 {
				t.Fatalf("seed=%d step %d: the third run writes %q", seed, i, writes)
			}
		}
	}
}

// heldByBroken reports whether an object stays with a file that is broken now.
func heldByBroken(tree repo, state string) bool {
	p, _, _ := strings.Cut(state, ".json ")
	content, there := tree[p+".json"]
	if !there {
		return false
	}
	_, err := Parse(file(p+".json"), []byte(content))
	return err != nil
}

// checkOrder checks the invariants of a plan's order.
func checkOrder(t *testing.T, p *Plan) {
	t.Helper()
	for _, list := range [][]Change{p.DeleteFolders, p.LateFolders} {
		for i, c := range list {
			for _, later := range list[i+1:] {
				if later.Existing.Folder == c.Existing.Name {
					t.Fatalf("folder %q is deleted before %q in it", c.Path, later.Path)
				}
			}
		}
	}
	for i, c := range p.WriteFolders {
		for _, later := range p.WriteFolders[i+1:] {
			if strings.HasPrefix(c.Path, later.Path) {
				t.Fatalf("folder %q is written before %q above it", c.Path, later.Path)
			}
		}
	}
	created := false
	for _, c := range p.WriteFiles {
		if created && c.Action != Created {
			t.Fatalf("%s is updated after a creation", c.Path)
		}
		created = created || c.Action == Created
	}
	early := map[string]bool{}
	for _, c := range p.DeleteFolders {
		early[c.Existing.Name] = true
	}
	for _, c := range slices.Concat(p.WriteFiles, p.WriteFolders, p.LateFolders) {
		if c.Existing != nil && early[c.Existing.Folder] {
			t.Fatalf("folder %q is deleted before %q has left it", c.Existing.Folder, c.Path)
		}
	}
}
