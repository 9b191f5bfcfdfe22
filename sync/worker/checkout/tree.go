package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/text"
)

// Tree reads the tree of the commit below spec.path. A path that the commit does not have is an
// error and never an empty tree.
func (c *Content) Tree(ctx context.Context) (git.Tree, error) {
	return c.list(ctx, c.at.source.Git.Tree)
}

// Names is Tree for callers to which the sizes of files are nothing: see git.Mirrors.Names.
func (c *Content) Names(ctx context.Context) (git.Tree, error) {
	return c.list(ctx, c.at.source.Git.Names)
}

// Near is Names of the directories that lead to some paths: see git.Mirrors.Near. It has no
// submodules.
func (c *Content) Near(ctx context.Context, paths []string) (git.Tree, error) {
	return c.list(ctx, func(ctx context.Context, r git.Remote, commit, dir string) (git.Tree, error) {
		return c.at.source.Git.Near(ctx, r, commit, dir, paths)
	})
}

// list reads the tree by one of the calls of Git, with its submodules where they are wanted.
func (c *Content) list(
	ctx context.Context, read func(context.Context, git.Remote, string, string) (git.Tree, error),
) (git.Tree, error) {
	if Submodules(c.at.repo) {
		c.at.o.Progress.SetMessage(ctx, "fetch submodules")
		read = c.at.source.Git.WholeTree
	}
	t, err := read(ctx, c.at.Remote, c.at.Ref.Hash, c.at.Dir)
	if git.KindOf(err) == git.PathNotFound {
		return t, c.at.wrongPath(ctx, err)
	}
	for _, f := range t.Files {
		if f.Home != "" {
			c.homes[f.Hash] = f.Home
		}
	}
	for _, f := range t.Files {
		if f.Home == "" { // a blob that the repository also has is read there
			delete(c.homes, f.Hash)
		}
		if f.LFS {
			c.pointers[f.Hash] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.Submodules)) {
		sub := t.Submodules[path]
		c.inside[sub.Remote.URL] = c.at.source.Git.LargeWithin(c.large, sub)
	}
	return t, err
}

// Submodules reports whether the trees of a Repository include those of its submodules.
func Submodules(repo *unstructured.Unstructured) bool {
	return repo.GetAnnotations()[api.AnnoGitSubmodules] == "true"
}

// wrongPath returns the error for a spec.path that is not in the tree. It names similar
// directories.
func (c *Checkout) wrongPath(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*git.Error](err); ok {
		err = e.Err // without its hint: this function has a better one
	}
	err = &git.Error{Kind: git.PathNotFound, Op: "spec." + c.view.Spec.Type + ".path",
		Err: fmt.Errorf("%w in %s at %s; nothing was changed", err, cmp.Or(c.Ref.Short(), "the branch"), ShortHash(c.Ref.Hash))}
	root, failed := c.source.Git.Tree(ctx, c.Remote, c.Ref.Hash, "")
	if failed != nil {
		return err
	}
	if near := closest(c.Dir, root.Dirs); len(near) > 0 {
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
