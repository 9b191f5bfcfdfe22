package worker

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/commit"
)

// fixFoldersOrder adds a folder file to each directory without one, so that its folder keeps its
// name wherever the directory moves.
func fixFoldersOrder(w *Write, t *jobs.Task) (order, error) {
	o := order{then: linkOnly}
	if fix := t.Job.Spec.FixFolders; fix != nil {
		o.Ref = fix.Ref
	}
	o.Message = "Add folder metadata files\n\nTriggered by job " + t.Name + " at " +
		t.Object.GetCreationTimestamp().UTC().Format(time.RFC3339)
	o.Changes = func(ctx context.Context, r *commit.Run) (c commit.Changes, err error) {
		c.Edits, err = w.missingFolderFiles(ctx, r)
		return c, err
	}
	return o, nil
}

// missingFolderFiles returns a folder file for each directory without one, and the deletion of the
// .keep files that folder files replace. A folder that the repository manages keeps its name; that
// of another one is the name that a pull would give it.
func (w *Write) missingFolderFiles(ctx context.Context, r *commit.Run) ([]commit.Edit, error) {
	tree, err := w.pull.o.Source.Git.Tree(ctx, r.Checkout.Remote, r.Base.Hash, r.Checkout.Dir)
	if err != nil {
		return nil, err
	}
	server, err := w.pull.server(ctx, r.Task.Namespace, r.Task.Last)
	if err != nil {
		return nil, err
	}
	name := r.Task.Repo.GetName()
	live, err := server.ManagedFolders(ctx, name)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, item := range live {
		names[item.Path] = item.Name
	}
	there := map[string]string{} // paths by what some file systems take for the same
	for _, f := range tree.Files {
		there[strings.ToLower(f.Path)] = f.Path
	}
	for _, f := range tree.Refused { // hidden files, such as .keep, and what is in the way of a folder file
		there[strings.ToLower(f.Path)] = f.Path
	}
	for _, dir := range tree.Dirs {
		there[strings.ToLower(dir)] = repopath.AsDir(dir)
	}
	var edits []commit.Edit
	for _, dir := range slices.Sorted(slices.Values(tree.Dirs)) {
		dir = repopath.AsDir(dir)
		file := dir + repopath.FolderFile
		if repopath.CheckPath(file) != nil {
			continue
		}
		if other := there[strings.ToLower(file)]; other != file {
			uid := cmp.Or(names[dir], resources.FolderID(name, dir))
			e := commit.Edit{Result: resources.Result{Group: api.FolderGroup, Kind: "Folder", Name: uid, Action: resources.Created, Path: file}}
			if other != "" {
				e.Result.Action, e.Result.Warning = resources.Ignored, fmt.Errorf("%s is in the way; try: git mv it to another name", other)
				edits = append(edits, e)
				continue
			}
			data := resources.FolderFileText(uid, repopath.Base(dir))
			e.File = git.Edit{Path: within(r.Checkout.Dir, file), Blob: git.NewBlob(data)}
			edits, there[strings.ToLower(file)] = append(edits, e), file
		}
		if keep := path.Join(dir, resources.KeepFile); there[strings.ToLower(keep)] == keep {
			edits = append(edits, commit.Edit{File: git.Edit{Path: within(r.Checkout.Dir, keep)}, Result: resources.Result{Action: resources.Deleted, Path: keep}})
		}
	}
	return edits, nil
}
