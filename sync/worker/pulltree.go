package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/signature"
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

// folderFiles reads the folder files that a plan needs, by directory; those of live folders are known. Without live ones it
// reads all, so that a title that was edited is seen.
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

// A Repository may require signatures. Every pull verifies them after the fetch and before the plan, also a pull
// without changes: keys may have been removed since. The digest of the policy is written to the Repository with the
// result, so that the next check detects other keys or a recreated tag. An interrupted pull verifies again.

func (r *pull) trusted(ctx context.Context) (err error) {
	r.trust, err = r.o.Signers.of(ctx, r.Repository, r.src.lookup)
	switch {
	case r.trust != nil && err != nil:
		r.verified = r.trust.condition(r.ref, nil, err)
	case err == nil && r.trust == nil:
		r.verified = &api.Condition{Type: api.ConditionVerified} // no longer required: remove the condition
	}
	return err
}

// verify verifies the fetched ref, and keeps the result for the status of the Repository.
func (r *pull) verify(ctx context.Context) error {
	if r.trust == nil {
		return nil
	}
	r.Progress.SetMessage(ctx, "verify "+short(r.ref.Hash))
	found, err := r.trust.verify(ctx, r.o.Git, r.remote, r.ref, r.status.now())
	if err == nil || git.KindOf(err) == git.Unverified {
		r.verified = r.trust.condition(r.ref, found, err)
	}
	if err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Verified)
}

// verify verifies a ref in the mirror against all demands and returns its signatures.
func (t *trust) verify(ctx context.Context, g Git, remote git.Remote, ref git.Ref, now time.Time) (found []git.Verified, err error) {
	for _, d := range t.demands {
		d.Now = now
		signed, err := g.Verify(ctx, remote, ref, d.Verification)
		if err != nil {
			return nil, err
		}
		for _, one := range signed {
			if !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// condition returns the result for the status of the Repository.
func (t *trust) condition(ref git.Ref, found []git.Verified, err error) *api.Condition {
	c := &api.Condition{Type: api.ConditionVerified, Status: "True", Reason: "Verified"}
	var texts []string
	for _, one := range found {
		texts = append(texts, fmt.Sprintf("%s is signed by %s", one.Object, one.Signer))
	}
	txt := strings.Join(texts, ", ")
	if err != nil {
		c.Status, c.Reason, txt = "False", reasonOf(signature.KindOf(err)), err.Error()
		if e, ok := errors.AsType[*git.Error](err); ok {
			txt = e.Err.Error()
		}
	}
	for _, d := range t.demands {
		if d.ruled {
			txt += ", required by " + d.by
		}
	}
	verdict := api.Verification{Trust: t.digest, Object: ref.Hash}
	if t.tag() && ref.Tag != "" {
		verdict.Object = ref.Tag
	}
	c.Message = verdict.Message(text.Line(txt, maxVerdict))
	return c
}

// maxVerdict bounds the text of a condition: a key may have many owners. Unit: bytes.
const maxVerdict = 1000

// reasonOf returns a kind as the reason of a condition: UnknownKey for "unknown-key".
func reasonOf(kind signature.Kind) string {
	var out strings.Builder
	for part := range strings.SplitSeq(string(kind), "-") {
		if part != "" {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return cmp.Or(out.String(), "NotVerified")
}
