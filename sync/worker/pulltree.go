package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// gitTree reads the tree of the commit below spec.path. A path that the commit
// does not have is an error and never an empty tree.
func (r *pull) gitTree(ctx context.Context) (git.Tree, error) {
	read := r.o.Git.Tree
	if r.submodules() {
		r.Progress.SetMessage(ctx, "fetch submodules")
		read = r.o.Git.WholeTree
	}
	t, err := read(ctx, r.remote, r.ref.Hash, r.src.dir)
	r.homes, r.homeAt = map[string]string{}, map[string]string{}
	for _, f := range t.Files {
		if f.Home != "" {
			r.homes[f.Hash], r.homeAt[f.Path] = f.Home, f.Home
		}
	}
	for _, f := range t.Files {
		if f.Home == "" { // a blob that the repository also has is read there
			delete(r.homes, f.Hash)
		}
	}
	for home, at := range t.Homes {
		if r.inside[home] == nil {
			r.inside[home] = r.o.Git.LargeWithin(r.large, r.remote, home, at)
		}
	}
	if git.KindOf(err) == git.PathNotFound {
		err = r.wrongPath(ctx, err)
	}
	return t, err
}

// submodules reports whether the Repository includes its submodules.
func (r *pull) submodules() bool { return r.Repo.GetAnnotations()[api.AnnoGitSubmodules] == "true" }

// tree returns gitTree in the form of package resources.
func (r *pull) tree(ctx context.Context) (resources.Tree, error) {
	t, err := r.gitTree(ctx)
	if err != nil {
		return resources.Tree{}, err
	}
	tree := resources.Tree{Dirs: t.Dirs}
	r.small = map[string]bool{}
	for _, f := range t.Files {
		if f.Size <= git.MaxPointer && repopath.IsResourceFile(f.Path) {
			r.small[f.Hash] = true
		}
		tree.Files = append(tree.Files, resources.TreeFile{Path: f.Path, Hash: f.Hash, Size: f.Size})
	}
	for _, f := range t.Refused {
		tree.Refused = append(tree.Refused, resources.Refused{Path: f.Path, Reason: f.Reason})
	}
	return tree, nil
}

// wrongPath returns the error for a spec.path that is not in the tree. It names
// similar directories.
func (r *pull) wrongPath(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*git.Error](err); ok {
		err = e.Err // without its hint: this function has a better one
	}
	err = fmt.Errorf("spec.%s.path: %w in %s at %s; nothing was changed",
		r.Repository.Spec.Type, err, cmp.Or(r.ref.Short(), "the branch"), short(r.ref.Hash))
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
	var top []string
	for _, dir := range root.Dirs {
		if !strings.Contains(dir, "/") && len(top) < 5 {
			top = append(top, fmt.Sprintf("%q", dir))
		}
	}
	return fmt.Errorf("%w; the repository holds %s", err, strings.Join(top, ", "))
}

// closest returns up to three of dirs that are similar to name, quoted.
func closest(name string, dirs []string) []string {
	type scored struct {
		dir  string
		cost int
	}
	var near []scored
	for _, dir := range dirs {
		cost := text.Distance(strings.ToLower(name), strings.ToLower(dir))
		if repopath.Base(dir) == repopath.Base(name) {
			cost = min(cost, 2) // the right directory in another place
		}
		if cost <= 1+len(name)/4 {
			near = append(near, scored{dir, cost})
		}
	}
	slices.SortFunc(near, func(a, b scored) int { return cmp.Or(a.cost-b.cost, strings.Compare(a.dir, b.dir)) })
	var out []string
	for _, s := range near[:min(3, len(near))] {
		out = append(out, fmt.Sprintf("%q", s.dir))
	}
	return out
}

// Read implements resources.Reader. For a pointer of Git LFS it returns the content.
func (r *pull) Read(ctx context.Context, hash string) ([]byte, error) {
	data, err := r.blob(ctx, hash)
	if err != nil {
		return nil, err
	}
	p, is, err := r.pointer(hash, data)
	switch {
	case err != nil:
		return nil, err
	case is:
		return r.readLarge(ctx, r.homes[hash], p)
	}
	return data, nil
}

// blob returns the blob of a file in Git, without resolving pointers.
func (r *pull) blob(ctx context.Context, hash string) ([]byte, error) {
	from := r.remote
	if home := r.homes[hash]; home != "" {
		from.URL = home
	}
	data, err := r.o.Git.Blob(ctx, from, hash, resources.MaxFile)
	if large, ok := errors.AsType[*git.TooLargeError](err); ok {
		return nil, &resources.TooLargeError{What: "the file", Size: large.Size, Limit: large.Limit}
	}
	return data, err
}

// readers limits the concurrent reads of blobs while a plan is made.
const readers = 4

// wanted is a blob that a plan needs.
type wanted struct{ path, hash string }

// readEach reads blobs and calls use for each with its content, or with the warning for
// a file that cannot be used. Calls are concurrent.
func (r *pull) readEach(ctx context.Context, list []wanted, use func(i int, data []byte, err error)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, w := range list {
		g.Go(func() error {
			data, err := r.Read(ctx, w.hash)
			if err != nil && !resources.IsWarning(err) {
				return fmt.Errorf("read %s: %w", w.path, err)
			}
			use(i, data, err)
			return nil
		})
	}
	return g.Wait()
}

// folderFiles reads the folder files that a plan needs, by directory.
func (r *pull) folderFiles(ctx context.Context, tree resources.Tree, live []resources.Item) (map[string]resources.FolderMeta, error) {
	var list []wanted
	for _, f := range resources.FolderFilesToRead(tree, live) {
		list = append(list, wanted{f.Path, f.Hash})
	}
	metas := make([]resources.FolderMeta, len(list))
	err := r.readEach(ctx, list, func(i int, data []byte, err error) {
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

// identities returns the identities of blobs, in the order of the list; nil for a
// blob that is no resource, which its write reports.
func (r *pull) identities(ctx context.Context, list []wanted) ([]*resources.Identity, error) {
	out := make([]*resources.Identity, len(list))
	hashes := make([]string, len(list))
	for i, w := range list {
		hashes[i] = w.hash
	}
	r.fetchLarge(ctx, hashes)
	return out, r.readEach(ctx, list, func(i int, data []byte, err error) {
		if err != nil {
			return
		}
		o, err := resources.Parse(resources.File{Repository: r.target.Repository, Namespace: r.Namespace, Path: list[i].path}, data)
		if err == nil {
			id := o.Identity()
			out[i] = &id
		}
	})
}
