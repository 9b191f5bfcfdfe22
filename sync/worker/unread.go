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
	"limpet/sync/resources"
	"limpet/sync/text"
)

// A file that could not be used stays a warning of its Repository. The next pull of another commit
// would not come across it, so the state file keeps the list of such files, and each incremental
// pull reads them again.

// unread collects the files that a pull cannot use.
type unread struct {
	before  state.Unread      // the list of the last pull
	tree    map[string]string // blobs of the commit by path; nil until the tree is read
	leftOut string            // see state.Unread
	known   bool              // before is of what the directory of the Repository has

	mu    sync.Mutex // guards files
	files map[string]state.UnreadFile
}

func (r *pull) record(ctx context.Context, res resources.Result) {
	if r.preview != nil {
		r.preview.Record(ctx, res)
		return
	}
	r.Progress.Record(ctx, res)
	hash, there := r.unread.tree[res.Path]
	if res.Warning == nil || !there {
		return
	}
	why := res.Warning
	if parse, is := errors.AsType[*resources.ParseError](why); is {
		why = parse.Err // without the path
	}
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	r.unread.files[res.Path] = state.UnreadFile{Path: res.Path, Hash: hash, Reason: text.Redact(text.Line(why.Error(), maxReason))}
}

// warn records a warning about the whole tree.
func (r *pull) warn(ctx context.Context, text string) {
	r.unread.leftOut = strings.TrimPrefix(r.unread.leftOut+"; "+text, "; ")
	r.Progress.Record(ctx, resources.Result{Action: resources.Ignored, Warning: &resources.SkippedError{Reason: text}})
}

// maxReason bounds the reason of one file. Unit: bytes.
const maxReason = 300

// seen notes the tree of the commit, and warns of the entries that are left out.
func (r *pull) seen(ctx context.Context, t git.Tree) {
	if !r.sink || r.strict() { // where other files are ignored as well
		var harmless git.Tree
		t.Refused = slices.DeleteFunc(slices.Clone(t.Refused), func(f git.Refusal) bool {
			ignored := f.ByMode() && !repopath.IsResourceFile(f.Path)
			if ignored {
				harmless.Refused = append(harmless.Refused, f)
			}
			return ignored
		})
		if left := leftOut(harmless); left != "" {
			r.log.Info(left, "step", "read")
		}
	}
	if left := leftOut(t); left != "" {
		r.warn(ctx, left)
	}
	r.unread.files, r.unread.tree = map[string]state.UnreadFile{}, make(map[string]string, len(t.Files)+len(t.Dirs))
	for _, dir := range t.Dirs {
		r.unread.tree[dir+"/"] = ""
	}
	for _, f := range t.Files {
		r.unread.tree[f.Path] = f.Hash
	}
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
func (r *pull) again(diff []git.Change) []git.Change {
	changed := map[string]bool{}
	for _, c := range diff {
		changed[c.Path] = true
	}
	for _, f := range r.unread.before.Files {
		if hash := r.unread.tree[f.Path]; hash != "" && !changed[f.Path] {
			diff = append(diff, git.Change{Type: git.ChangeAdded, Path: f.Path, Hash: hash})
		}
	}
	return diff
}

// usedAgain returns a file that the last pull could not use and that this one has used, "" for
// none. The object that it had before may have another name, which only a full pull finds.
func (r *pull) usedAgain() string {
	for _, f := range r.unread.before.Files {
		if _, unused := r.unread.files[f.Path]; !unused && r.unread.tree[f.Path] != "" {
			return f.Path
		}
	}
	return ""
}

// keepUnread stores the list. It comes before the status, which moves the commit on. A list that
// cannot be stored makes the next pull a full one.
func (r *pull) keepUnread(ctx context.Context) {
	if r.unread.tree == nil { // nothing was pulled
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	u := &state.Unread{UID: string(r.Repo.GetUID()), Ref: r.at.Ref.Hash, LeftOut: r.unread.leftOut}
	paths := slices.Sorted(maps.Keys(r.unread.files))
	for _, path := range paths[:min(len(paths), state.MaxUnread)] {
		u.Files = append(u.Files, r.unread.files[path])
	}
	u.More = len(paths) - len(u.Files)
	if err := r.o.Store.PutUnread(ctx, r.Namespace, r.target.Repository, u); err != nil {
		r.log.Warn("list of unread files not kept", "step", "status", "err", err)
	}
}
