package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/sink"
)

// Files in Git LFS: the tree has a pointer in their place. A pointer is never used as the
// content. A file that cannot be fetched is an error of that file, and the others
// continue; a directory is written whole or not at all.

// errNoLFS is the reason for which a file in Git LFS is left out.
var errNoLFS = errors.New("the file is kept in Git LFS, which annotation " + api.AnnoGitLFS +
	" of the repository turns off; it is left out")

// pointer parses the pointer in a file. The error is the warning for a file that is left
// out.
func (r *pull) pointer(hash string, data []byte) (p git.Pointer, is bool, err error) {
	p, is, err = git.ParsePointer(data)
	if is && err == nil && r.Repo.GetAnnotations()[api.AnnoGitLFS] == "false" {
		err = errNoLFS
	}
	if err != nil {
		err = &resources.SkippedError{Reason: err.Error()}
	}
	return p, is, err
}

// largeOf returns the Git LFS client of the repository, or that of a submodule.
func (r *pull) largeOf(home string) *git.Large {
	if inside := r.inside[home]; inside != nil {
		return inside
	}
	return r.large
}

// readLarge reads the content of a resource from the Git LFS of the repository, or of
// the submodule at home.
func (r *pull) readLarge(ctx context.Context, home string, p git.Pointer) ([]byte, error) {
	if p.Size > resources.MaxFile {
		return nil, &resources.TooLargeError{What: "the file in Git LFS", Size: p.Size, Limit: resources.MaxFile}
	}
	f, err := r.largeOf(home).Open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// fetchLarge fetches the content of some blobs from Git LFS in few requests. A failure
// is reported when the file is read.
func (r *pull) fetchLarge(ctx context.Context, hashes []string) {
	want := map[string][]git.Pointer{}
	for _, hash := range hashes {
		if !r.small[hash] {
			continue
		}
		data, err := r.blob(ctx, hash)
		if err != nil {
			continue
		}
		if p, is, err := r.pointer(hash, data); is && err == nil && p.Size <= resources.MaxFile {
			want[r.homes[hash]] = append(want[r.homes[hash]], p)
		}
	}
	r.bring(ctx, want)
}

// bring fetches the content of pointers, by the home of their files.
func (r *pull) bring(ctx context.Context, want map[string][]git.Pointer) {
	for home, pointers := range want {
		r.Progress.SetMessage(ctx, fmt.Sprintf("fetch %d files from Git LFS", len(pointers)))
		r.largeOf(home).Fetch(ctx, pointers)
	}
}

// largeHash is the prefix of the hash of a file in Git LFS in a directory.
const largeHash = "sha256:"

// sinkFile returns a file of the tree in the form of package sink. It records a warning
// and returns false for a file that is left out.
func (r *pull) sinkFile(ctx context.Context, f git.File) (sink.File, bool, error) {
	out := sink.File{Path: f.Path, Hash: f.Hash, Size: f.Size, Exec: f.Mode == "100755"}
	if f.Size > git.MaxPointer {
		return out, true, nil
	}
	data, err := r.blob(ctx, f.Hash)
	if err != nil {
		return out, false, err
	}
	p, is, err := r.pointer(f.Hash, data)
	if !is {
		return out, true, nil
	}
	if err == nil {
		err = r.large.Fits(p)
	}
	if err != nil {
		if large, ok := errors.AsType[*git.TooLargeError](err); ok {
			err = &resources.TooLargeError{What: "the file in Git LFS", Size: large.Size, Limit: large.Limit}
		}
		r.leaveOut(ctx, f.Path, err)
		return out, false, nil
	}
	out.Hash, out.Size = largeHash+p.OID, p.Size
	return out, true, nil
}

// pointerOf returns the pointer of a file that sinkFile has returned.
func pointerOf(f sink.File) (git.Pointer, bool) {
	oid, is := strings.CutPrefix(f.Hash, largeHash)
	return git.Pointer{OID: oid, Size: f.Size}, is
}

// bringFiles fetches the content of the files of a directory from Git LFS.
func (r *pull) bringFiles(ctx context.Context, files []sink.File) {
	want := map[string][]git.Pointer{}
	for _, f := range files {
		if p, is := pointerOf(f); is {
			want[r.homeAt[f.Path]] = append(want[r.homeAt[f.Path]], p)
		}
	}
	r.bring(ctx, want)
}

// openFile opens the content of a file of a directory. It reads possible dashboards into
// memory and passes them to judge first; other files in Git LFS are streamed.
func (r *pull) openFile(ctx context.Context, f sink.File, judge func([]byte)) (io.ReadCloser, error) {
	p, is := pointerOf(f)
	dashboard := strings.EqualFold(path.Ext(f.Path), ".json") && f.Size <= resources.MaxFile
	var data []byte
	var err error
	switch {
	case is && !dashboard:
		return r.largeOf(r.homeAt[f.Path]).Open(ctx, p)
	case is:
		data, err = r.readLarge(ctx, r.homeAt[f.Path], p)
	default:
		data, err = r.blob(ctx, f.Hash)
	}
	if err != nil {
		return nil, err
	}
	if dashboard {
		judge(data)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
