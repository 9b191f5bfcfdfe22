package target

import (
	"context"
	"path"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/git/attributes"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// Amend plans what makes the open directory equal to a commit in the time of the changes of the whole
// repository since the commit last, whose files below base were good. ok is false where the whole tree
// has to be compared: the directory is not as the last write has left it, or something else than the
// changed files decides, or there is something to warn of.
func (d *Directory) Amend(
	ctx context.Context, dir *sink.Dir, last, base string, diff git.Comparison, commit Commit,
) (p *DirectoryPlan, ok bool, err error) {
	if diff.Refused != "" || diff.Unrefused != "" {
		return nil, false, nil
	}
	p = &DirectoryPlan{of: d, dir: dir, commit: commit}
	base = repopath.AsDir(strings.Trim(base, "/"))
	var removed []string
	for _, c := range diff.Files {
		if c.Type == git.ChangeDeleted {
			c.From = c.Path
		}
		from, was := strings.CutPrefix(c.From, base)
		name, is := strings.CutPrefix(c.Path, base)
		if path.Base(c.Path) == attributes.File || path.Base(c.From) == attributes.File ||
			(was || is) && repopath.Check(from+"/"+name, true) != nil {
			return nil, false, nil
		}
		if was && from != "" {
			removed = append(removed, from)
		}
		if !is || c.Type == git.ChangeDeleted || d.Strict && !repopath.IsResourceFile(name) {
			continue
		}
		if ok, err := p.take(ctx, name, c); !ok || err != nil {
			return nil, false, err
		}
	}
	dir.Exec = d.Exec
	if p.Plan, ok, err = dir.Amend(last, commit.Hash, d.Source, p.files, removed); err != nil || !ok {
		return nil, false, err
	}
	p.Files = dir.Files() + len(p.Added) - len(p.Removed)
	return p, d.Max == 0 || int64(p.Files) <= d.Max, nil
}

// take takes a file to write. ok is false for one that is not good.
func (p *DirectoryPlan) take(ctx context.Context, name string, c git.Change) (ok bool, err error) {
	data, err := p.commit.Content.Read(ctx, c.Hash)
	if err != nil {
		if resources.IsWarning(err) {
			err = nil
		}
		return false, err
	}
	file := sink.File{Path: name, Hash: c.Hash, Size: int64(len(data)), Exec: c.Mode == "100755"}
	if p.of.Strict || isJSON(name) {
		file.UID, err = p.of.judge(checkout.Blob{Path: name, Hash: c.Hash}, data)
	}
	_, pointer, _ := git.ParsePointer(data)
	p.files = append(p.files, file)
	return err == nil && !pointer, nil
}
