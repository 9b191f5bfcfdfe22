package worker

import (
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
	"limpet/sync/worker/sink"
)

// A pull of a Repository with a directory annotation writes the tree to that directory instead of the API: the embedded
// API has no Grafana behind it, but there may be one on the host.

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
	plan, err := dir.Plan(r.ref.Hash, r.sourceHash(r.Repo, r.Repository), files)
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
	if plan.Empty() && len(r.unread.files) == 0 && r.unread.leftOut == "" && len(bad) == 0 {
		r.Progress.SetFinalMessage("no changes to sync")
	}
	if r.preview != nil {
		r.preview.sink(ctx, r, plan, bad)
		return nil
	}
	r.Progress.SetTotal(ctx, len(plan.Added)+len(plan.Changed)+len(plan.Removed))
	r.Progress.SetMessage(ctx, "write "+target.String())
	r.content.bringFiles(ctx, slices.Concat(plan.Added, plan.Changed))
	if err := r.fillSink(ctx, dir, plan, bad); err != nil {
		return err
	}
	r.counted = stats{sinkFiles: int64(have)}
	return nil
}

// sinkFiles returns the files of the tree to write, and why some of them are no dashboards: a strict directory does not
// get these. What the directory has is judged by the list of unread files where that is known; a large file always is.
func (r *pull) sinkFiles(ctx context.Context, dir *sink.Dir, tree git.Tree) ([]sink.File, map[string]error, error) {
	var files, fresh []sink.File
	var check []wanted
	strict, bad, before := r.strict(), map[string]error{}, map[string]state.UnreadFile{}
	for _, f := range r.unread.before.Files {
		before[f.Path] = f
	}
	for _, f := range tree.Files {
		if strict && !repopath.IsResourceFile(f.Path) || !r.sinkable(ctx, f) {
			continue
		}
		file, warning, err := r.content.sinkFile(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		if warning != nil {
			r.leaveOut(ctx, f.Path, warning)
			continue
		}
		files = append(files, file)
		has, old := dir.Has(file), before[f.Path]
		if !has {
			fresh = append(fresh, file)
		}
		switch _, large := pointerOf(file); {
		case !strict && !strings.EqualFold(path.Ext(f.Path), ".json"):
		case !has || !r.unread.known && !large:
			check = append(check, wanted{f.Path, f.Hash})
		case old.Hash == f.Hash:
			bad[f.Path] = &resources.ParseError{Path: f.Path, Err: errors.New(old.Reason)}
		}
	}
	r.content.bringFiles(ctx, fresh)
	for _, f := range fresh {
		last, has := dir.Last(f.Path)
		if !has {
			continue // git cannot write the tree either
		}
		if warning := r.content.missing(ctx, f); warning != nil {
			files[slices.Index(files, f)] = last
			check = slices.DeleteFunc(check, func(w wanted) bool { return w.path == f.Path })
			r.leaveOut(ctx, f.Path, warning)
		}
	}
	var mu sync.Mutex // guards bad
	err := r.content.readEach(ctx, check, func(i int, data []byte, err error) {
		if err == nil {
			err = r.noResource(strict, check[i], data)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			bad[check[i].path] = err
		}
	})
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

// noResource returns why a file is no dashboard or folder, or where the directory is not strict, no JSON.
func (r *pull) noResource(strict bool, f wanted, data []byte) error {
	switch {
	case !strict:
		return resources.CheckJSON(f.path, data)
	case repopath.IsFolderFile(f.path):
		return resources.ParseFolderFile(f.path, f.hash, data).Err
	}
	_, err := resources.Parse(resources.File{Repository: r.target.Repository, Namespace: r.Namespace, Path: f.path,
		Kinds: r.target.Kinds}, data)
	return err
}

// sinkable reports whether a file of the tree is written. It records a warning for a file with an invalid name and for
// one that is too large.
func (r *pull) sinkable(ctx context.Context, f git.File) bool {
	err := repopath.CheckPath(strings.ReplaceAll(f.Path, "\t", " ")) // which a directory may have
	if repopath.IsHidden(err) {
		return false
	}
	if err == nil && f.Size > resources.MaxFile {
		err = &resources.TooLargeError{What: "the file", Size: f.Size, Limit: resources.MaxFile}
	}
	if err != nil {
		r.leaveOut(ctx, f.Path, err)
	}
	return err == nil
}

// fillSink writes the directory and records the changes, and those files of the directory that are bad.
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
	if err := dir.Write(ctx, plan, r.content.openFile, done); err != nil {
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
