package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"limpet/state"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/status"
)

// unread collects the files that a pull cannot use. Such a file stays a warning of its Repository.
// The next pull of another commit would not come across it, so the state file keeps the list of
// such files, and each incremental pull reads them again. It is a resources.Recorder, which also
// shows the results.
type unread struct {
	progress *jobs.Progress
	before   state.Unread      // the list of the last pull
	tree     map[string]string // blobs of the commit by path; nil until the tree is read
	leftOut  string            // see state.Unread

	mu    sync.Mutex // guards the fields below
	files map[string]state.UnreadFile
	quota int64 // files and directories that are left out for the quota
}

// newUnread reads the list of the last pull of a Repository.
func newUnread(ctx context.Context, store *state.Store, r repository, progress *jobs.Progress) (*unread, error) {
	u := &unread{progress: progress}
	if store == nil {
		return u, nil
	}
	before, err := store.Unread(ctx, r.namespace(), r.name(), r.uid())
	if err != nil {
		return nil, fmt.Errorf("read the list of unread files: %w", err)
	}
	u.before = *before
	return u, nil
}

// Record implements resources.Recorder.
func (u *unread) Record(ctx context.Context, res resources.Result) {
	u.progress.Record(ctx, res)
	hash, there := u.tree[res.Path]
	if res.Warning == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if errors.As(res.Warning, new(*resources.QuotaError)) {
		u.quota++
	}
	if !there {
		return
	}
	why := res.Warning
	if parse, is := errors.AsType[*resources.ParseError](why); is {
		why = parse.Err // without the path
	}
	u.files[res.Path] = state.UnreadFile{Path: res.Path, Hash: hash, Reason: text.Redact(text.Line(why.Error(), maxReason))}
}

// TooManyErrors implements resources.Recorder.
func (u *unread) TooManyErrors() error { return u.progress.TooManyErrors() }

// none reports that nothing was left out so far.
func (u *unread) none() bool { return len(u.files) == 0 && u.leftOut == "" }

// warn records a warning about the whole tree.
func (u *unread) warn(ctx context.Context, text string) {
	u.leftOut = strings.TrimPrefix(u.leftOut+"; "+text, "; ")
	u.progress.Record(ctx, resources.Result{Action: resources.Ignored, Warning: &resources.SkippedError{Reason: text}})
}

// maxReason bounds the reason of one file. Unit: bytes.
const maxReason = 300

// see notes the tree of the commit, and warns of the entries that are left out. Files that are no
// resources do not count where they are ignored as well: harmless describes those.
func (u *unread) see(ctx context.Context, t git.Tree, ignoresOthers bool) (harmless string) {
	if ignoresOthers {
		var others git.Tree
		t.Refused = slices.DeleteFunc(slices.Clone(t.Refused), func(f git.Refusal) bool {
			ignored := f.ByMode() && !repopath.IsResourceFile(f.Path)
			if ignored {
				others.Refused = append(others.Refused, f)
			}
			return ignored
		})
		harmless = leftOut(others)
	}
	if left := leftOut(t); left != "" {
		u.warn(ctx, left)
	}
	u.files, u.tree = map[string]state.UnreadFile{}, make(map[string]string, len(t.Files)+len(t.Dirs))
	for _, dir := range t.Dirs {
		u.tree[dir+"/"] = ""
	}
	for _, f := range t.Files {
		u.tree[f.Path] = f.Hash
	}
	return harmless
}

// leftOut counts the entries of a tree that no pull uses by their kind; "" = none. What is hidden
// would be left out anyway, unless its name is why it is refused.
func leftOut(t git.Tree) string {
	hidden := func(path string) bool { return repopath.IsHidden(repopath.CheckPath(path)) }
	n, counts := t.More, map[string]int{}
	var parts, paths []string
	for _, f := range t.Refused {
		if hidden(repopath.Parent(f.Path)) || f.ByMode() && hidden(f.Path) {
			continue
		}
		n++
		if counts[f.Kind]++; len(paths) < 3 {
			paths = append(paths, f.Path)
		}
	}
	if n == 0 {
		return ""
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, text.Plural(counts[kind], kind))
	}
	if t.More > 0 {
		parts = append(parts, text.Plural(t.More, "other"))
	}
	if n > len(paths) {
		paths = append(paths, "…")
	}
	said := fmt.Sprintf("%d entries were left out", n)
	if n == 1 {
		said = "1 entry was left out"
	}
	return fmt.Sprintf("%s: %s (%s)", said, strings.Join(parts, ", "), strings.Join(paths, ", "))
}

// again adds the files that the last pull could not use to the changes.
func (u *unread) again(diff []git.Change) []git.Change {
	changed := map[string]bool{}
	for _, c := range diff {
		changed[c.Path] = true
	}
	for _, f := range u.before.Files {
		if hash := u.tree[f.Path]; hash != "" && !changed[f.Path] {
			diff = append(diff, git.Change{Type: git.ChangeAdded, Path: f.Path, Hash: hash})
		}
	}
	return diff
}

// usedAgain returns a file that the last pull could not use and that this one has used, "" for
// none. The object that it had before may have another name, which only a full pull finds.
func (u *unread) usedAgain() string {
	for _, f := range u.before.Files {
		if _, unused := u.files[f.Path]; !unused && u.tree[f.Path] != "" {
			return f.Path
		}
	}
	return ""
}

// keep stores the list, after a pull of a commit. It comes before the status, which moves the commit
// on. A list that cannot be stored makes the next pull a full one.
func (u *unread) keep(ctx context.Context, store *state.Store, r repository, commit string) error {
	if u.tree == nil { // nothing was pulled
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), status.EndTime)
	defer cancel()
	list := &state.Unread{UID: r.uid(), Ref: commit, LeftOut: u.leftOut}
	paths := slices.Sorted(maps.Keys(u.files))
	for _, path := range paths[:min(len(paths), state.MaxUnread)] {
		list.Files = append(list.Files, u.files[path])
	}
	list.More = len(paths) - len(list.Files)
	return store.PutUnread(ctx, r.namespace(), r.name(), list)
}
