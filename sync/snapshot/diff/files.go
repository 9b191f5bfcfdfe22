package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
)

// Files lists the files of a repository at the commit that was synced last, or reads one of them.
// Nothing is kept.
func (a Comparer) Files(ctx context.Context, q snapshot.FileQuery) (snapshot.FileList, error) {
	u, ok := a.Repos.Get(q.Namespace, q.Name)
	if !ok {
		return snapshot.FileList{}, fmt.Errorf("repository %q not found", q.Name)
	}
	if q.Drift {
		var out snapshot.FileList
		report, err := a.Pull.DriftOf(ctx, u, worker.DriftQuery{Paths: []string{q.Path}})
		if err != nil {
			return out, err
		}
		out.Commit, out.All = report.Commit, len(report.Items)
		for _, item := range report.Items[:min(len(report.Items), snapshot.MaxRepoFiles)] {
			if q.Path != "" && item.Path == q.Path {
				change := Texts(item.Git, item.Live)
				out.Diff = &change
			}
			out.Files = append(out.Files, snapshot.RepoFile{Path: cmp.Or(item.Path, item.Name), Kind: item.Kind, UID: item.Name,
				Title: text.Line(strings.Join(item.Pointers, " "), maxReason), Folder: repopath.Parent(item.Path), State: item.State})
		}
		if q.Path != "" && out.Diff == nil {
			return out, fmt.Errorf("%s does not differ any more", q.Path)
		}
		return out, nil
	}
	return a.FilesOf(ctx, u, q.Path)
}

// FilesOf is Files for a Repository that the caller has; it needs no informer.
func (a Comparer) FilesOf(ctx context.Context, u *unstructured.Unstructured, path string) (out snapshot.FileList, err error) {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return out, err
	}
	urls := checkout.URLs(repo)
	if out.Commit = repo.Status.Sync.LastRef; len(urls) == 0 || out.Commit == "" {
		return out, fmt.Errorf("repository %s: not pulled yet", u.GetName())
	}
	notes := u.GetAnnotations()
	l := lister{mirrors: a.Mirrors, remote: git.Remote{URL: urls[0]},
		of: resources.File{Repository: u.GetName(), Namespace: u.GetNamespace(), Kinds: a.Kinds,
			Directory: notes[api.AnnoSinkDir] != ""},
		copies: notes[api.AnnoSinkDir] != "" && notes[api.AnnoSinkStrict] != "true", unread: map[string]state.UnreadFile{},
		drifted: map[string]string{}}
	tree, err := a.Mirrors.Tree(ctx, l.remote, out.Commit, repo.Spec.Dir())
	if err != nil {
		return out, err
	}
	if path != "" {
		out.Text, err = l.text(ctx, tree, path)
		return out, err
	}
	list, err := a.Store.Unread(ctx, u.GetNamespace(), u.GetName(), string(u.GetUID()))
	if err != nil {
		return out, err
	}
	for _, f := range list.Files {
		l.unread[f.Path] = f
	}
	last, err := a.Store.Drift(ctx, u.GetNamespace(), u.GetName(), string(u.GetUID()))
	if err != nil {
		return out, err
	}
	for _, item := range last.Items {
		if last.Ref == out.Commit {
			l.drifted[item.Path] = item.State
		}
	}
	out.All = len(tree.Files) + len(tree.Refused) + tree.More
	l.until = time.Now().Add(maxReading)
	for _, f := range tree.Files[:min(len(tree.Files), snapshot.MaxRepoFiles)] {
		file, err := l.file(ctx, f)
		if err != nil {
			return out, err
		}
		out.Files = append(out.Files, file)
	}
	for _, r := range tree.Refused {
		out.Files = append(out.Files, leftOut(r.Path, r.Reason))
	}
	slices.SortFunc(out.Files, func(a, b snapshot.RepoFile) int { return strings.Compare(a.Path, b.Path) })
	out.Files = out.Files[:min(len(out.Files), snapshot.MaxRepoFiles)]
	return out, nil
}

func leftOut(path, reason string) snapshot.RepoFile {
	return snapshot.RepoFile{Path: path, Folder: repopath.Parent(path), State: snapshot.FileLeftOut, Reason: reason}
}

// lister reads the files of one commit.
type lister struct {
	mirrors *git.Mirrors
	remote  git.Remote
	of      resources.File              // without a path
	copies  bool                        // files need not be resources: they are copied to a directory
	unread  map[string]state.UnreadFile // of the last pull
	drifted map[string]string           // states of the last check by path
	until   time.Time                   // files after it are not read
}

// maxReading bounds the time for a list: 10,000 files take some 5 s on a weak host, and a dashboard
// waits 10 s.
const maxReading = 7 * time.Second

// file reads a file as a pull does.
func (l lister) file(ctx context.Context, f git.File) (snapshot.RepoFile, error) {
	out := snapshot.RepoFile{Path: f.Path, Folder: repopath.Parent(f.Path), State: snapshot.FileSynced}
	if how := l.drifted[f.Path]; how != "" {
		out.State, out.Reason = snapshot.FileDrifted, how
	}
	if was := l.unread[f.Path]; was.Reason != "" && was.Hash == f.Hash {
		out.State, out.Reason = snapshot.FileUnread, was.Reason
	}
	if err := repopath.Check(f.Path, l.of.Directory); err != nil {
		return leftOut(f.Path, err.Error()), nil
	}
	if !repopath.IsResourceFile(f.Path) {
		if !l.copies {
			return leftOut(f.Path, "neither JSON nor YAML"), nil
		}
		return out, nil
	}
	if time.Now().After(l.until) {
		out.Reason = cmp.Or(out.Reason, "not read: too many files to read them all")
		return out, nil
	}
	err := error(&resources.TooLargeError{What: "the file", Size: f.Size, Limit: resources.MaxFile})
	if f.Size <= resources.MaxFile {
		data, readErr := l.mirrors.Blob(ctx, l.remote, f.Hash, resources.MaxFile)
		if readErr != nil {
			return out, readErr
		}
		err = l.identify(&out, f, data)
	}
	if err != nil && !l.copies && out.Reason == "" {
		out.State, out.Reason = snapshot.FileUnread, text.Redact(text.Line(err.Error(), maxReason))
	}
	return out, nil
}

// maxReason bounds the reason of one file. Unit: bytes.
const maxReason = 300

func (l lister) identify(out *snapshot.RepoFile, f git.File, data []byte) error {
	if repopath.IsFolderFile(f.Path) {
		meta := resources.ParseFolderFile(f.Path, f.Hash, data)
		out.Kind = "Folder"
		out.UID = meta.UID
		out.Title = meta.Title
		return meta.Err
	}
	l.of.Path = f.Path
	o, err := resources.Judge(l.of, data)
	if err == nil {
		id := o.Identity()
		out.Kind = id.Kind
		out.UID = id.Name
		out.Title = cmp.Or(o.Title(), id.Name)
	}
	if parse, is := errors.AsType[*resources.ParseError](err); is {
		err = parse.Err // without the path
	}
	return err
}

// text returns a file as it is shown: JSON with sorted keys and one member a line, anything else as
// it is.
func (l lister) text(ctx context.Context, tree git.Tree, path string) (string, error) {
	i := slices.IndexFunc(tree.Files, func(f git.File) bool { return f.Path == path })
	if i < 0 {
		return "", fmt.Errorf("file %q not found at the synced commit", path)
	}
	data, err := l.mirrors.Blob(ctx, l.remote, tree.Files[i].Hash, snapshot.MaxFileBytes)
	switch out, ok := indentJSON(data); {
	case err != nil:
		return "", err
	case isBinary(data):
		return "", fmt.Errorf("file %q is not text: %s", path, text.Size(int64(len(data))))
	case ok && len(out) <= 4*snapshot.MaxFileBytes:
		return text.Redact(out), nil
	}
	return text.Redact(strings.ReplaceAll(string(data), "\t", "    ")), nil
}
