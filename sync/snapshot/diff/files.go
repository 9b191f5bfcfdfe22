package diff

import (
	"cmp"
	"context"
	"fmt"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker"
)

// Files lists the files of a repository at the commit that was synced last, read from the mirror. Nothing is kept.
func (a Comparer) Files(ctx context.Context, of snapshot.Subject) (out snapshot.FileList, err error) {
	u, ok := a.Repos.Get(of.Namespace, of.Name)
	if !ok {
		return out, fmt.Errorf("repository %q not found", of.Name)
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return out, err
	}
	urls := worker.URLs(repo)
	if out.Commit = repo.Status.Sync.LastRef; len(urls) == 0 || out.Commit == "" {
		return out, fmt.Errorf("repository %s was not pulled yet", of.Name)
	}
	remote := git.Remote{URL: urls[0]}
	tree, err := a.Mirrors.Tree(ctx, remote, out.Commit, repo.Spec.Block().Path)
	if err != nil {
		return out, err
	}
	for _, f := range tree.Files {
		file := snapshot.RepoFile{Path: f.Path, Folder: repopath.Parent(f.Path), State: snapshot.FileLeftOut}
		switch err := repopath.CheckPath(f.Path); {
		case err != nil:
			file.Reason = err.Error()
		case !repopath.IsResourceFile(f.Path):
			file.Reason = "neither JSON nor YAML"
		default:
			if err := a.parse(ctx, remote, of, f, &file); err != nil {
				return out, err
			}
		}
		out.Files = append(out.Files, file)
	}
	for _, r := range tree.Refused {
		out.Files = append(out.Files, snapshot.RepoFile{Path: r.Path, Folder: repopath.Parent(r.Path), State: snapshot.FileLeftOut, Reason: r.Reason})
	}
	return out, nil
}

// parse reads a resource file as a pull does.
func (a Comparer) parse(ctx context.Context, remote git.Remote, of snapshot.Subject, f git.File, file *snapshot.RepoFile) error {
	if file.State = snapshot.FileUnread; f.Size > resources.MaxFile {
		file.Reason = (&resources.TooLargeError{What: "the file", Size: f.Size, Limit: resources.MaxFile}).Error()
		return nil
	}
	data, err := a.Mirrors.Blob(ctx, remote, f.Hash, resources.MaxFile)
	if err != nil {
		return err
	}
	o, err := resources.Parse(resources.File{Repository: of.Name, Namespace: of.Namespace, Path: f.Path}, data)
	if repopath.Base(f.Path) == repopath.FolderFile {
		file.State, file.Kind = snapshot.FileSynced, "Folder"
	} else if err != nil {
		file.Reason = text.Redact(err.Error())
	} else {
		id := o.Identity()
		file.State, file.Kind, file.UID, file.Title = snapshot.FileSynced, id.Kind, id.Name, cmp.Or(o.Title(), id.Name)
	}
	return nil
}
