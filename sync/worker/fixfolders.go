package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
)

// keepFile stands for a directory that has no other file.
const keepFile = ".keep"

// NewFixFolders returns the worker of fixFolderMetadata jobs, which add a folder file to each
// directory without one, so that its folder keeps its name wherever the directory moves.
func NewFixFolders(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "fixFolderMetadata", func(t *jobs.Task) (order, error) {
		ref := ""
		if o := t.Job.Spec.FixFolders; o != nil {
			ref = o.Ref
		}
		message := "Add folder metadata files\n\nTriggered by job " + t.Name + " at " +
			t.Object.GetCreationTimestamp().UTC().Format(time.RFC3339)
		return order{ref, message, missingFolderFiles, func(_ context.Context, r *staging) error { r.link(); return nil }}, nil
	}}
}

// missingFolderFiles returns a folder file for each directory without one, and the deletion of the
// .keep files that folder files replace. A folder that the repository manages keeps its name; that
// of another one is the name that a pull would give it.
func missingFolderFiles(ctx context.Context, r *staging) ([]edit, error) {
	tree, err := r.o.Git.Tree(ctx, r.at.Remote, r.base.Hash, r.at.Dir)
	if err != nil {
		return nil, err
	}
	server, err := r.server(ctx, r.Namespace, r.Last)
	if err != nil {
		return nil, err
	}
	live, err := server.managedFolders(ctx, r.Repo.GetName())
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
	var edits []edit
	for _, dir := range slices.Sorted(slices.Values(tree.Dirs)) {
		dir = repopath.AsDir(dir)
		file := dir + repopath.FolderFile
		if repopath.CheckPath(file) != nil {
			continue
		}
		if other := there[strings.ToLower(file)]; other != file {
			name := cmp.Or(names[dir], resources.FolderID(r.Repo.GetName(), dir))
			e := edit{result: resources.Result{Group: api.FolderGroup, Kind: "Folder", Name: name, Action: resources.Created, Path: file}}
			if other != "" {
				e.result.Action, e.result.Warning = resources.Ignored, fmt.Errorf("%s is in the way; try: git mv it to another name", other)
				edits = append(edits, e)
				continue
			}
			data, err := json.MarshalIndent(map[string]any{"apiVersion": api.FolderGroup + "/v1", "kind": "Folder",
				"metadata": map[string]any{"name": name}, "spec": map[string]any{"title": repopath.Base(dir)}}, "", "  ")
			if err != nil {
				return nil, err
			}
			e.file = git.Edit{Path: within(r.at.Dir, file), Blob: git.NewBlob(append(data, '\n'))}
			edits, there[strings.ToLower(file)] = append(edits, e), file
		}
		if keep := path.Join(dir, keepFile); there[strings.ToLower(keep)] == keep {
			edits = append(edits, edit{file: git.Edit{Path: within(r.at.Dir, keep)}, result: resources.Result{Action: resources.Deleted, Path: keep}})
		}
	}
	return edits, nil
}
