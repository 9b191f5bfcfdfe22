package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// gitTree reads the tree of the commit below spec.path. A path that the commit does not have is an error and never an
// empty tree.
func (r *pull) gitTree(ctx context.Context) (git.Tree, error) {
	t, err := r.content.tree(ctx, r.ref.Hash, r.src.dir)
	if git.KindOf(err) == git.PathNotFound {
		err = r.wrongPath(ctx, err)
	}
	if err == nil {
		r.seen(ctx, t)
	}
	return t, err
}

// tree returns gitTree in the form of package resources.
func (r *pull) tree(ctx context.Context) (resources.Tree, error) {
	t, err := r.gitTree(ctx)
	if err != nil {
		return resources.Tree{}, err
	}
	tree := resources.Tree{Dirs: t.Dirs}
	for _, f := range t.Files {
		tree.Files = append(tree.Files, resources.TreeFile{Path: f.Path, Hash: f.Hash, Size: f.Size})
	}
	for _, f := range t.Refused {
		tree.Refused = append(tree.Refused, f.Path)
	}
	return tree, nil
}

// wrongPath returns the error for a spec.path that is not in the tree. It names similar directories.
func (r *pull) wrongPath(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*git.Error](err); ok {
		err = e.Err // without its hint: this function has a better one
	}
	err = &git.Error{Kind: git.PathNotFound, Op: "spec." + r.Repository.Spec.Type + ".path",
		Err: fmt.Errorf("%w in %s at %s; nothing was changed", err, cmp.Or(r.ref.Short(), "the branch"), short(r.ref.Hash))}
	root, failed := r.o.Git.Tree(ctx, r.remote, r.ref.Hash, "")
	if failed != nil {
		return err
	}
	if near := closest(r.src.dir, root.Dirs); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	if len(root.Dirs) == 0 {
		return fmt.Errorf("%w; the repository has no directories, so leave the path empty", err)
	}
	return err
}

// closest returns up to three of dirs that are similar to name, quoted.
func closest(name string, dirs []string) (near []string) {
	cost := func(dir string) int {
		cost := text.Distance(strings.ToLower(name), strings.ToLower(dir))
		if repopath.Base(dir) == repopath.Base(name) {
			cost = min(cost, 2) // the right directory in another place
		}
		return cost
	}
	for _, dir := range dirs {
		if cost(dir) <= 1+len(name)/4 {
			near = append(near, dir)
		}
	}
	slices.SortFunc(near, func(a, b string) int { return cmp.Or(cost(a)-cost(b), strings.Compare(a, b)) })
	near = near[:min(3, len(near))]
	for i, dir := range near {
		near[i] = strconv.Quote(dir)
	}
	return near
}

// folderFiles reads the folder files that a plan needs, by directory.
func (r *pull) folderFiles(ctx context.Context, tree resources.Tree, live []resources.Item) (map[string]resources.FolderMeta, error) {
	var list []wanted
	for _, f := range resources.FolderFilesToRead(tree, live) {
		list = append(list, wanted{f.Path, f.Hash})
	}
	metas := make([]resources.FolderMeta, len(list))
	err := r.content.readEach(ctx, list, func(i int, data []byte, err error) {
		metas[i] = resources.ParseFolderFile(list[i].path, list[i].hash, data)
		if err != nil {
			metas[i] = resources.FolderMeta{Hash: list[i].hash, Err: &resources.FolderFileError{Path: list[i].path, Err: err}}
		}
	})
	out := make(map[string]resources.FolderMeta, len(list))
	for i, f := range list {
		out[repopath.Parent(f.path)] = metas[i]
	}
	return out, err
}

// identities returns the identities of blobs, in the order of the list; nil for a blob that is no resource, which its
// write reports.
func (r *pull) identities(ctx context.Context, list []wanted) ([]*resources.Identity, error) {
	out := make([]*resources.Identity, len(list))
	r.content.fetchLarge(ctx, list)
	return out, r.content.readEach(ctx, list, func(i int, data []byte, err error) {
		if err != nil {
			return
		}
		o, err := resources.Parse(resources.File{Repository: r.target.Repository, Namespace: r.Namespace, Path: list[i].path,
			Kinds: r.target.Kinds}, data)
		if err == nil {
			id := o.Identity()
			out[i] = &id
		}
	})
}
