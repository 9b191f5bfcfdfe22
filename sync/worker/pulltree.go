package worker

import (
	"context"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// gitTree reads the tree of the commit and notes what is left out of it.
func (r *pull) gitTree(ctx context.Context) (git.Tree, error) {
	t, err := r.content.Tree(ctx)
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

// folderFiles reads the folder files that a plan needs, by directory; those of live folders are
// known. Without live ones it reads all, so that a title that was edited is seen.
func (r *pull) folderFiles(ctx context.Context, tree resources.Tree, live []resources.Item) (map[string]resources.FolderMeta, error) {
	var list []checkout.Blob
	for _, f := range resources.FolderFilesToRead(tree, live) {
		list = append(list, checkout.Blob{Path: f.Path, Hash: f.Hash})
	}
	metas := make([]resources.FolderMeta, len(list))
	err := r.content.ReadEach(ctx, list, func(i int, data []byte, err error) {
		metas[i] = resources.ParseFolderFile(list[i].Path, list[i].Hash, data)
		if err != nil {
			metas[i] = resources.FolderMeta{Hash: list[i].Hash, Err: &resources.FolderFileError{Path: list[i].Path, Err: err}}
		}
	})
	out := make(map[string]resources.FolderMeta, len(list))
	for i, f := range list {
		out[repopath.Parent(f.Path)] = metas[i]
	}
	return out, err
}

// identities returns the identities of blobs, in the order of the list; nil for a blob that is no
// resource, which its write reports.
func (r *pull) identities(ctx context.Context, list []checkout.Blob) ([]*resources.Identity, error) {
	out := make([]*resources.Identity, len(list))
	r.content.FetchLarge(ctx, list)
	return out, r.content.ReadEach(ctx, list, func(i int, data []byte, err error) {
		if err != nil {
			return
		}
		o, err := resources.Parse(resources.File{Repository: r.target.Repository, Namespace: r.Namespace, Path: list[i].Path,
			Kinds: r.target.Kinds}, data)
		if err == nil {
			id := o.Identity()
			out[i] = &id
		}
	})
}

// A Repository may require signatures. Every pull verifies them after the fetch and before the
// plan, also a pull without changes: keys may have been removed since. The digest of the policy is
// written to the Repository with the result, so that the next check detects other keys or a
// recreated tag. An interrupted pull verifies again.

func (r *pull) trusted(ctx context.Context) error {
	err := r.at.ReadTrust(ctx)
	switch {
	case r.at.Trust != nil && err != nil:
		r.verified = r.at.Trust.Condition(r.at.Ref, nil, err)
	case err == nil && r.at.Trust == nil:
		r.verified = &api.Condition{Type: api.ConditionVerified} // no longer required: remove the condition
	}
	return err
}

// verify verifies the fetched ref, and keeps the result for the status of the Repository.
func (r *pull) verify(ctx context.Context) error {
	if r.at.Trust == nil {
		return nil
	}
	r.Progress.SetMessage(ctx, "verify "+checkout.ShortHash(r.at.Ref.Hash))
	found, err := r.at.Verify(ctx, r.at.Ref)
	if err == nil || git.KindOf(err) == git.Unverified {
		r.verified = r.at.Trust.Condition(r.at.Ref, found, err)
	}
	if err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Verified)
}
