package testenv

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/gittest"
)

// Branch is the branch of a generated repository, and Directory the one in
// it that holds the dashboards.
const (
	Branch    = "main"
	Directory = "grafana"
)

// epoch is the time of the first commit. Commits follow in minutes, so that the
// same calls give the same hashes.
var epoch = time.Date(2025, 3, 1, 8, 0, 0, 0, time.UTC)

// Repository is a bare repository on disk and a model of what its branch holds.
// It is not safe for concurrent use.
type Repository struct {
	Dir string // the bare repository

	files   map[string][]byte    // tree of the branch
	boards  map[string]Dashboard // dashboards among them, by path
	past    []state              // after each commit, the last one being now
	commits int                  // made so far, over all histories
	rand    *rand.Rand
}

// state is the model after a commit.
type state struct {
	files  map[string][]byte
	boards map[string]Dashboard
}

// Change is one step of a commit. Data nil and From empty deletes the path.
type Change struct {
	Path string
	Data []byte
	From string // the path is renamed from here; Data, if any, replaces the contents
}

// Repo makes a repository with the given number of commits and dashboards, the
// same bytes and hashes for the same numbers: nested folders below Directory, a few
// files that are no dashboards, one dashboard in ten in the form of an API
// object. The first fifth of the commits adds the dashboards, the others edit.
func Repo(t testing.TB, commits, dashboards int) *Repository {
	t.Helper()
	r := EmptyRepo(t)
	in := &bytes.Buffer{}
	add := max(commits/5, 1)
	made := 0
	for i := range commits {
		var changes []Change
		if i == 0 {
			changes = append(changes,
				Change{Path: "README.md", Data: []byte("# Dashboards\n\nKept by the operations team.\n")},
				Change{Path: ".github/workflows/check.yml", Data: []byte("on: push\njobs: {}\n")},
				Change{Path: Directory + "/CODEOWNERS", Data: []byte("* @operations\n")})
		}
		for ; made < dashboards && (made*add < dashboards*(i+1) || i == commits-1); made++ {
			changes = append(changes, r.draw(made))
		}
		if len(changes) == 0 {
			changes = append(changes, r.edit(r.any()))
		}
		r.stream(in, changes, fmt.Sprintf("Change %d of the dashboards", i+1), "")
	}
	r.Import(t, in)
	r.Git(t, "repack", "-adfq", "--window=10")
	return r
}

// EmptyRepo makes a bare repository without a commit, whose HEAD names Branch.
func EmptyRepo(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{Dir: filepath.Join(t.TempDir(), "repo.git"), files: map[string][]byte{},
		boards: map[string]Dashboard{}, rand: rand.New(rand.NewPCG(7, 7))}
	gittest.Init(t, r.Dir, true, "")
	return r
}

// Dashboards returns the dashboards of the branch, sorted by path.
func (r *Repository) Dashboards() []Dashboard {
	return slices.SortedFunc(maps.Values(r.boards), func(a, b Dashboard) int { return strings.Compare(a.Path, b.Path) })
}

// Folders returns the directories below Directory that hold dashboards, with
// their parents below Directory, sorted. Paths are from the root of the repository.
func (r *Repository) Folders() []string {
	found := map[string]bool{}
	for path := range r.boards {
		for dir := filepath.ToSlash(filepath.Dir(path)); dir != Directory && dir != "."; dir = filepath.ToSlash(filepath.Dir(dir)) {
			found[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Head returns the hash of the branch.
func (r *Repository) Head(t testing.TB) string {
	t.Helper()
	return gittest.Ref(t, r.Dir, "refs/heads/"+Branch)
}

// Commit adds one commit to the branch and returns its hash.
func (r *Repository) Commit(t testing.TB, message string, changes ...Change) string {
	t.Helper()
	in, parent := &bytes.Buffer{}, ""
	if len(r.past) > 0 {
		parent = "refs/heads/" + Branch + "^0"
	}
	r.stream(in, changes, message, parent)
	r.Import(t, in)
	return r.Head(t)
}

// Edit commits a small edit of each dashboard and returns the hash.
func (r *Repository) Edit(t testing.TB, paths ...string) string {
	t.Helper()
	var changes []Change
	for _, p := range paths {
		changes = append(changes, r.edit(r.board(t, p)))
	}
	return r.Commit(t, "Tune "+strings.Join(paths, ", "), changes...)
}

// Add commits a new dashboard at path and returns it.
func (r *Repository) Add(t testing.TB, path string) Dashboard {
	t.Helper()
	d := Dashboard{Path: path, UID: fmt.Sprintf("added-%d", r.commits), Title: fmt.Sprintf("Added %d", r.commits),
		seed: uint64(1e6 + r.commits)}
	r.boards[path] = d
	r.Commit(t, "Add "+path, Change{Path: path, Data: d.JSON()})
	return d
}

// Rename commits a move without a change of contents and returns the hash.
func (r *Repository) Rename(t testing.TB, from, to string) string {
	t.Helper()
	d := r.board(t, from)
	delete(r.boards, from)
	d.Path = to
	r.boards[to] = d
	return r.Commit(t, "Move "+from+" to "+to, Change{Path: to, From: from})
}

// Delete commits the removal of files and returns the hash.
func (r *Repository) Delete(t testing.TB, paths ...string) string {
	t.Helper()
	var changes []Change
	for _, p := range paths {
		delete(r.boards, p)
		changes = append(changes, Change{Path: p})
	}
	return r.Commit(t, "Remove "+strings.Join(paths, ", "), changes...)
}

// ForcePush drops the last n commits and makes another one in their place, on
// which the given changes are applied. The old commits stay unreachable.
func (r *Repository) ForcePush(t testing.TB, n int, changes ...Change) string {
	t.Helper()
	if n <= 0 || n >= len(r.past) {
		t.Fatalf("cannot drop %d of %d commits", n, len(r.past))
	}
	r.Git(t, "update-ref", "refs/heads/"+Branch, fmt.Sprintf("refs/heads/%s~%d", Branch, n))
	r.past = r.past[:len(r.past)-n]
	now := r.past[len(r.past)-1]
	r.files, r.boards = maps.Clone(now.files), maps.Clone(now.boards)
	return r.Commit(t, "Rewrite", changes...)
}

// draw invents dashboard i and returns the change that adds it.
func (r *Repository) draw(i int) Change {
	seed := rand.New(rand.NewPCG(uint64(i), 3))
	team, area := words[i%7], words[7+i%11]
	dir := []string{Directory, Directory + "/" + team, Directory + "/" + team + "/" + area, Directory + "/" + team + "/" + area + "/deep"}[i%4]
	d := Dashboard{UID: fmt.Sprintf("board-%04d", i), Title: fmt.Sprintf("%s %d", title(seed), i), k8s: i%10 == 9, seed: uint64(i)}
	d.Path = fmt.Sprintf("%s/%s-%04d.json", dir, strings.ReplaceAll(strings.ToLower(title(seed)), " ", "-"), i)
	r.boards[d.Path] = d
	return Change{Path: d.Path, Data: d.JSON()}
}

func (r *Repository) edit(d Dashboard) Change {
	d.version++
	r.boards[d.Path] = d
	return Change{Path: d.Path, Data: d.JSON()}
}

func (r *Repository) any() Dashboard {
	paths := slices.Sorted(maps.Keys(r.boards))
	return r.boards[paths[r.rand.IntN(len(paths))]]
}

func (r *Repository) board(t testing.TB, path string) Dashboard {
	t.Helper()
	d, ok := r.boards[path]
	if !ok {
		t.Fatalf("no dashboard at %s", path)
	}
	return d
}

// stream writes one commit in the language of git fast-import and follows it in
// the model. The first commit of a stream names its parent; the others have the
// one before them.
func (r *Repository) stream(w io.Writer, changes []Change, message, parent string) {
	when := epoch.Add(time.Duration(r.commits) * time.Minute).Unix()
	fmt.Fprintf(w, "commit refs/heads/%s\ncommitter Ops <ops@example.com> %d +0000\ndata %d\n%s\n", Branch, when, len(message), message)
	if parent != "" {
		fmt.Fprintf(w, "from %s\n", parent)
	}
	for _, c := range changes {
		switch {
		case c.From != "":
			fmt.Fprintf(w, "R %s %s\n", quote(c.From), quote(c.Path))
			if c.Data == nil {
				c.Data = r.files[c.From]
			}
			delete(r.files, c.From)
			r.put(w, c)
		case c.Data != nil:
			r.put(w, c)
		default:
			fmt.Fprintf(w, "D %s\n", quote(c.Path))
			delete(r.files, c.Path)
		}
	}
	fmt.Fprintln(w)
	r.commits++
	r.past = append(r.past, state{maps.Clone(r.files), maps.Clone(r.boards)})
}

func (r *Repository) put(w io.Writer, c Change) {
	fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", quote(c.Path), len(c.Data), c.Data)
	r.files[c.Path] = c.Data
}

// quote writes a path as fast-import reads it.
func quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// Import reads commits in the language of git fast-import, past the model.
func (r *Repository) Import(t testing.TB, in io.Reader) {
	t.Helper()
	cmd := r.command("fast-import", "--quiet", "--force")
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
}

// Git runs git in the bare repository and returns what it prints, without
// blanks at the ends.
func (r *Repository) Git(t testing.TB, args ...string) string {
	t.Helper()
	out, err := r.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// command is git without the configuration of the person who runs the tests.
func (r *Repository) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = append(append(os.Environ(), gittest.Quick...), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=Ops", "GIT_AUTHOR_EMAIL=ops@example.com", "GIT_COMMITTER_NAME=Ops", "GIT_COMMITTER_EMAIL=ops@example.com")
	return cmd
}
