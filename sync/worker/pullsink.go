package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// A pull of a Repository with a directory annotation writes the tree to that directory instead of
// the API: the embedded API has no Grafana behind it, but there may be one on the host.

// Files in a directory are counted under a group of our own.
const (
	sinkGroup = "limpet"
	sinkKind  = "File"
)

// sinkOf returns the directory of the Repository, and whether it has one.
func (p *Pull) sinkOf(repo *unstructured.Unstructured) (sink.Target, bool, error) {
	dir, named := repo.GetAnnotations()[api.AnnoSinkDir]
	if !named {
		return sink.Target{}, false, nil
	}
	t, err := sink.Permit(dir, p.o.SinkPrefixes)
	if err != nil {
		return t, true, fmt.Errorf("annotation %s of repository %s: %w", api.AnnoSinkDir, repo.GetName(), err)
	}
	return t, true, nil
}

func (r *pull) writeSink(ctx context.Context, target sink.Target) error {
	tree, err := r.gitTree(ctx)
	if err != nil {
		return err
	}
	open := sink.Open
	if r.preview != nil {
		open = sink.Look
	}
	dir, err := open(ctx, target, r.owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	return r.writeTree(ctx, target, dir, tree)
}

// owner returns the name of the Repository in the manifest of its directory.
func (r *pull) owner() string { return r.Namespace + "/" + r.target.Repository }

func (r *pull) writeTree(ctx context.Context, target sink.Target, dir *sink.Dir, tree git.Tree) error {
	r.Progress.SetMessage(ctx, "compare with "+target.String())
	files, bad, err := r.sinkFiles(ctx, dir, tree)
	if err != nil {
		return err
	}
	dir.KeepEdits, dir.Exec = keepsEdits(r.Repo) && !r.corrects(), api.Annotation(r.Repo, api.AnnoSinkExec) != ""
	plan, err := dir.Plan(r.at.Ref.Hash, r.sourceHash(r.Repo, r.Repository), files)
	if err != nil {
		return err
	}
	have := len(files)
	if over := have - int(r.status.maxResources); r.status.maxResources > 0 && over > 0 {
		for _, f := range plan.LeaveOut(over) {
			have--
			delete(bad, f.Path)
			r.leftOut.Add(1)
			r.leaveOut(ctx, f.Path, &resources.QuotaError{Path: f.Path, Max: r.status.maxResources})
		}
	}
	if r.keepAll && len(plan.Removed) > 0 {
		return errNotNow
	}
	if err := r.guard(len(plan.Removed), dir.Files()); err != nil {
		return err
	}
	if others := plan.Foreign(); others != "" {
		r.log.Warn("unmanaged files left in place", "step", "apply", "dir", target.String(), "files", others)
	}
	message := ""
	if plan.Empty() && len(r.unread.files) == 0 && r.unread.leftOut == "" && len(bad) == 0 {
		message = "no changes to sync"
	}
	if r.preview != nil {
		r.preview.sink(ctx, r, plan, bad)
		r.remark(message)
		return nil
	}
	r.Progress.SetTotal(ctx, len(plan.Added)+len(plan.Changed)+len(plan.Removed))
	r.Progress.SetMessage(ctx, "write "+target.String())
	r.content.FetchFiles(ctx, slices.Concat(plan.Added, plan.Changed))
	if err := r.fillSink(ctx, dir, plan, bad); err != nil {
		return err
	}
	r.counted = stats{sinkFiles: int64(have)}
	r.remark(message)
	return nil
}

// remark sets the message of the end, "" for the usual one, with the number of hidden files.
func (r *pull) remark(message string) {
	if r.hidden > 0 {
		message = cmp.Or(message, r.Progress.Outcome(nil).Message) + "; " + text.Plural(r.hidden, "hidden file") + " left out"
	}
	if message != "" {
		r.Progress.SetFinalMessage(message)
	}
}

// sinkFiles returns the files of the tree to write, and why Grafana would not load some of them: a
// strict directory does not get these. What the directory has is judged by the list of unread files
// where that is known; a large file always is.
func (r *pull) sinkFiles(ctx context.Context, dir *sink.Dir, tree git.Tree) ([]sink.File, map[string]error, error) {
	var files, fresh []sink.File
	var check []checkout.Blob
	strict, bad, before := r.strict(), map[string]error{}, map[string]state.UnreadFile{}
	known := r.unread.known && dir.UIDs() != nil
	for _, f := range r.unread.before.Files {
		before[f.Path] = f
	}
	for _, f := range tree.Files {
		if strict && !repopath.IsResourceFile(f.Path) || !r.sinkable(ctx, f) {
			continue
		}
		file, warning, err := r.content.SinkFile(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		if warning != nil {
			r.leaveOut(ctx, f.Path, warning)
			continue
		}
		has, old := dir.Has(file), before[f.Path]
		if !has {
			fresh = append(fresh, file)
		} else {
			file.UID = dir.UIDs()[f.Path]
		}
		files = append(files, file)
		switch _, large := checkout.PointerOf(file); {
		case !strict && !isJSON(f.Path):
		case !has || !known && !large:
			check = append(check, checkout.Blob{Path: f.Path, Hash: f.Hash})
		case old.Hash == f.Hash && file.UID == "": // else what was wrong was its twin
			bad[f.Path] = &resources.ParseError{Path: f.Path, Err: errors.New(old.Reason)}
		}
	}
	r.content.FetchFiles(ctx, fresh)
	for _, f := range fresh {
		last, has := dir.Last(f.Path)
		if !has {
			continue // git cannot write the tree either
		}
		if warning := r.content.Missing(ctx, f); warning != nil {
			files[slices.Index(files, f)] = last
			check = slices.DeleteFunc(check, func(w checkout.Blob) bool { return w.Path == f.Path })
			r.leaveOut(ctx, f.Path, warning)
		}
	}
	var mu sync.Mutex // guards bad and uids
	uids := map[string]string{}
	err := r.content.ReadEach(ctx, check, func(i int, data []byte, err error) {
		uid := ""
		if err == nil {
			uid, err = r.judge(strict, check[i], data)
		}
		mu.Lock()
		defer mu.Unlock()
		if uids[check[i].Path] = uid; err != nil {
			bad[check[i].Path] = err
		}
	})
	owners := map[string]string{} // the file of each uid: the first by path
	for i := range files {
		f := &files[i]
		if uid, judged := uids[f.Path]; judged {
			f.UID = uid
		}
		if f.UID == "" {
			continue
		}
		if first := owners[f.UID]; first != "" {
			bad[f.Path] = &resources.DuplicateError{Object: resources.Identity{Kind: "Dashboard", Name: f.UID}, Path: f.Path, Other: first}
		} else {
			owners[f.UID] = f.Path
		}
	}
	if err != nil || !strict {
		return files, bad, err
	}
	for _, p := range slices.Sorted(maps.Keys(bad)) {
		r.leaveOut(ctx, p, bad[p])
	}
	files = slices.DeleteFunc(files, func(f sink.File) bool { return bad[f.Path] != nil })
	if len(files) == 0 && len(tree.Files) > 0 {
		r.warn(ctx, "no file is a dashboard, so nothing is written; annotation "+api.AnnoSinkStrict+" with the value false writes all files")
	}
	return files, nil, nil
}

func (r *pull) strict() bool { return r.Repo.GetAnnotations()[api.AnnoSinkStrict] == "true" }

func isJSON(name string) bool { return strings.EqualFold(path.Ext(name), ".json") }

// judge returns the uid of the dashboard in a JSON file, and why Grafana's file provisioning does
// not load the file. One that is neither a dashboard nor a folder is wrong in a strict directory;
// in another one it has to be JSON.
func (r *pull) judge(strict bool, f checkout.Blob, data []byte) (uid string, err error) {
	if strict && repopath.IsFolderFile(f.Path) {
		return "", resources.ParseFolderFile(f.Path, f.Hash, data).Err
	}
	o, err := resources.Judge(resources.File{Repository: r.target.Repository, Namespace: r.Namespace, Path: f.Path,
		Kinds: r.target.Kinds, Directory: true}, data)
	switch {
	case o == nil && !strict:
		return "", resources.CheckJSON(f.Path, data)
	case err == nil && isJSON(f.Path) && o.GVK.Kind == "Dashboard":
		return o.Name, nil
	}
	return "", err
}

// sinkable reports whether a file of the tree is written. It counts hidden files, and records a
// warning for one that is too large.
func (r *pull) sinkable(ctx context.Context, f git.File) bool {
	if repopath.Check(f.Path, true) != nil {
		r.hidden++
		return false
	}
	if f.Size > resources.MaxFile {
		r.leaveOut(ctx, f.Path, &resources.TooLargeError{What: "the file", Size: f.Size, Limit: resources.MaxFile})
		return false
	}
	return true
}

// fillSink writes the directory and records the changes, and those files of the directory that are
// bad.
func (r *pull) fillSink(ctx context.Context, dir *sink.Dir, plan *sink.Plan, bad map[string]error) error {
	action := map[string]resources.Action{}
	for _, f := range plan.Added {
		action[f.Path] = resources.Created
	}
	for _, f := range plan.Changed {
		action[f.Path] = resources.Updated
	}
	done := func(f sink.File) {
		r.recordFile(ctx, resources.Result{Action: action[f.Path], Path: f.Path, Warning: bad[f.Path]})
	}
	if err := dir.Write(ctx, plan, r.content.OpenFile, done); err != nil {
		return err
	}
	for _, p := range plan.Removed {
		r.recordFile(ctx, resources.Result{Action: resources.Deleted, Path: p})
	}
	for _, p := range slices.Sorted(maps.Keys(bad)) {
		if action[p] == "" {
			r.leaveOut(ctx, p, bad[p])
		}
	}
	return nil
}

func (r *pull) recordFile(ctx context.Context, res resources.Result) {
	res.Group, res.Kind, res.Name = sinkGroup, sinkKind, path.Base(res.Path)
	r.record(ctx, res)
}

// leaveOut records the warning for a file that is not written.
func (r *pull) leaveOut(ctx context.Context, path string, warning error) {
	r.recordFile(ctx, resources.Result{Action: resources.Ignored, Path: path, Warning: warning})
}
