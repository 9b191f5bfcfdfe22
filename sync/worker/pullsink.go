package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	sinkGroup    = "limpet"
	sinkResource = "files"
	sinkKind     = "File"
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

// writeSink makes the directory equal to the tree.
func (r *pull) writeSink(ctx context.Context, target sink.Target) error {
	tree, err := r.gitTree(ctx)
	if err != nil {
		return err
	}
	dir, err := sink.Open(ctx, target, r.owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	return r.writeTree(ctx, target, dir, tree)
}

// owner returns the name of the Repository in the manifest of its directory.
func (r *pull) owner() string { return r.Namespace + "/" + r.target.Repository }

// writeTree makes the open directory equal to the tree.
func (r *pull) writeTree(ctx context.Context, target sink.Target, dir *sink.Dir, tree git.Tree) error {
	r.Progress.SetMessage(ctx, "compare with "+target.String())
	var files []sink.File
	for _, f := range tree.Files {
		if !r.sinkable(ctx, f) {
			continue
		}
		file, warning, err := r.content.sinkFile(ctx, f)
		switch {
		case err != nil:
			return err
		case warning != nil:
			r.leaveOut(ctx, f.Path, warning)
		default:
			files = append(files, file)
		}
	}
	for _, f := range tree.Refused {
		if repopath.IsResourceFile(f.Path) && !repopath.IsHidden(repopath.CheckPath(f.Path)) {
			r.leaveOut(ctx, f.Path, &repopath.PathError{Path: f.Path, Reason: f.Reason})
		}
	}
	plan, err := dir.Plan(r.ref.Hash, files)
	if err != nil {
		return err
	}
	have := len(files)
	if over := have - int(r.status.maxResources); r.status.maxResources > 0 && over > 0 {
		for _, f := range plan.LeaveOut(over) {
			have--
			r.leftOut.Add(1)
			r.leaveOut(ctx, f.Path, &resources.QuotaError{Path: f.Path, Max: r.status.maxResources})
		}
	}
	if err := r.guard(len(plan.Removed), dir.Files()); err != nil {
		return err
	}
	if others := plan.Foreign(); others != "" {
		r.log.Warn("unmanaged files left in place", "step", "apply", "dir", target.String(), "files", others)
	}
	if plan.Empty() {
		r.Progress.SetFinalMessage("no changes to sync")
	} else {
		r.Progress.SetTotal(ctx, len(plan.Added)+len(plan.Changed)+len(plan.Removed))
		r.Progress.SetMessage(ctx, "write "+target.String())
	}
	r.content.bringFiles(ctx, slices.Concat(plan.Added, plan.Changed))
	if err := r.fillSink(ctx, dir, plan); err != nil {
		return err
	}
	r.counted = stats{sinkResource: int64(have)}
	return nil
}

// sinkable reports whether a file of the tree is written. It records a warning for a file with an invalid name and for
// one that is too large.
func (r *pull) sinkable(ctx context.Context, f git.File) bool {
	err := repopath.CheckPath(f.Path)
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

// fillSink writes the directory and records the changes. A dashboard that is not JSON is written unchanged, with a
// warning.
func (r *pull) fillSink(ctx context.Context, dir *sink.Dir, plan *sink.Plan) error {
	changed := map[string]bool{}
	for _, f := range plan.Changed {
		changed[f.Path] = true
	}
	read := func(ctx context.Context, f sink.File) (io.ReadCloser, error) {
		return r.content.openFile(ctx, f, func(data []byte) {
			if !json.Valid(data) {
				r.leaveOut(ctx, f.Path, &resources.ParseError{Path: f.Path, Err: errNoJSON})
			}
		})
	}
	done := func(f sink.File) {
		action := resources.Created
		if changed[f.Path] {
			action = resources.Updated
		}
		r.recordFile(ctx, resources.Result{Action: action, Path: f.Path})
	}
	if err := dir.Write(ctx, plan, read, done); err != nil {
		return err
	}
	for _, p := range plan.Removed {
		r.recordFile(ctx, resources.Result{Action: resources.Deleted, Path: p})
	}
	return nil
}

var errNoJSON = errors.New("the file is not JSON; it is written as it is")

func (r *pull) recordFile(ctx context.Context, res resources.Result) {
	res.Group, res.Kind, res.Name = sinkGroup, sinkKind, path.Base(res.Path)
	r.Progress.Record(ctx, res)
}

// leaveOut records the warning for a file that is not written as it should be.
func (r *pull) leaveOut(ctx context.Context, path string, warning error) {
	r.recordFile(ctx, resources.Result{Action: resources.Ignored, Path: path, Warning: warning})
}
