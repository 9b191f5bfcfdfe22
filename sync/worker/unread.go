package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"limpet/state"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// A file that could not be used stays a warning of its Repository. The next pull of another commit would not come
// across it, so the state file keeps the list of such files, and each incremental pull reads them again.

// unread collects the files that a pull cannot use.
type unread struct {
	before  state.Unread      // the list of the last pull
	tree    map[string]string // blobs of the commit by path; nil until the tree is read
	leftOut string            // see state.Unread
	known   bool              // before is of what the directory of the Repository has

	mu    sync.Mutex                  // guards files
	files map[string]state.UnreadFile // nil until there is one
}

// record reports a result.
func (r *pull) record(ctx context.Context, res resources.Result) {
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
	if r.unread.files == nil {
		r.unread.files = map[string]state.UnreadFile{}
	}
	r.unread.files[res.Path] = state.UnreadFile{Path: res.Path, Hash: hash, Reason: text.Redact(text.Line(why.Error(), maxReason))}
}

// tell records a warning about the whole tree.
func (r *pull) tell(ctx context.Context, text string) {
	r.unread.leftOut += text
	r.Progress.Record(ctx, resources.Result{Action: resources.Ignored, Warning: &resources.SkippedError{Reason: text}})
}

// maxReason bounds the reason of one file. Unit: bytes.
const maxReason = 300

// seen notes the tree of the commit.
func (r *pull) seen(t git.Tree) {
	r.unread.tree = make(map[string]string, len(t.Files)+len(t.Dirs))
	for _, dir := range t.Dirs {
		r.unread.tree[dir+"/"] = ""
	}
	for _, f := range t.Files {
		r.unread.tree[f.Path] = f.Hash
	}
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

// keepUnread stores the list. It comes before the status, which moves the commit on. A list that cannot be stored makes
// the next pull a full one.
func (r *pull) keepUnread(ctx context.Context) {
	if r.unread.tree == nil { // nothing was pulled
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	u := &state.Unread{UID: string(r.Repo.GetUID()), Ref: r.ref.Hash, LeftOut: r.unread.leftOut}
	for _, path := range slices.Sorted(maps.Keys(r.unread.files)) {
		if len(u.Files) == state.MaxUnread {
			u.More++
			continue
		}
		u.Files = append(u.Files, r.unread.files[path])
	}
	if err := r.o.Store.PutUnread(ctx, r.Namespace, r.target.Repository, u); err != nil {
		r.log.Warn("list of unread files not kept", "step", "status", "err", err)
	}
}
