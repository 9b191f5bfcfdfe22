package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/sink"
)

// Content reads the files of one commit: from the mirror of the repository or of a submodule, and
// from Git LFS where the tree has a pointer in their place. A pointer is never used as the content.
// A file that cannot be fetched is an error of that file, and the others continue; a directory is
// written whole or not at all.
type Content struct {
	at       *Checkout
	large    *git.Large            // Git LFS of the repository
	inside   map[string]*git.Large // of submodules, by URL
	homes    map[string]string     // blobs of submodules alone, and their URL
	pointers map[string]bool       // blobs that .gitattributes give to Git LFS
}

// Content returns the files of the commit, which was fetched. The caller closes it.
func (c *Checkout) Content() *Content {
	return &Content{at: c, large: c.source.Git.Large(c.Remote, c.Ref), inside: map[string]*git.Large{},
		homes: map[string]string{}, pointers: map[string]bool{}}
}

// Close releases the files of Git LFS.
func (c *Content) Close() {
	c.large.Close()
	for _, l := range c.inside {
		l.Close()
	}
}

// blob returns the blob of a file in Git, without resolving pointers.
func (c *Content) blob(ctx context.Context, hash string) ([]byte, error) {
	from := c.at.Remote
	if home := c.homes[hash]; home != "" {
		from.URL = home
	}
	data, err := c.at.source.Git.Blob(ctx, from, hash, resources.MaxFile)
	if large, ok := errors.AsType[*git.TooLargeError](err); ok {
		return nil, &resources.TooLargeError{What: "the file", Size: large.Size, Limit: large.Limit}
	}
	return data, err
}

// Read implements resources.Reader. For a pointer of Git LFS it returns the content.
func (c *Content) Read(ctx context.Context, hash string) ([]byte, error) {
	data, err := c.blob(ctx, hash)
	if err != nil {
		return nil, err
	}
	p, is, err := c.pointer(hash, data)
	switch {
	case err != nil:
		return nil, err
	case is:
		if p.Size > resources.MaxFile {
			return nil, &resources.TooLargeError{What: "the file in Git LFS", Size: p.Size, Limit: resources.MaxFile}
		}
		f, err := c.largeOf(c.homes[hash]).Open(ctx, p)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(f)
	}
	return data, nil
}

// Recycle implements resources.Reader.
func (c *Content) Recycle(content []byte) { git.Recycle(content) }

// errNoLFS is the reason for which a file in Git LFS is left out.
var errNoLFS = errors.New("the file is kept in Git LFS, which annotation " + api.AnnoGitLFS +
	" of the repository turns off; it is left out")

// pointer parses the pointer in a blob. The error is the warning for a file that is left out.
func (c *Content) pointer(hash string, data []byte) (p git.Pointer, is bool, err error) {
	if !c.pointers[hash] {
		return p, false, nil
	}
	p, is, err = git.ParsePointer(data)
	if is && err == nil && c.at.repo.GetAnnotations()[api.AnnoGitLFS] == "false" {
		err = errNoLFS
	}
	if err != nil {
		err = &resources.SkippedError{Reason: err.Error()}
	}
	return p, is, err
}

// largeOf returns the Git LFS client of the repository, or that of a submodule.
func (c *Content) largeOf(home string) *git.Large {
	if inside := c.inside[home]; inside != nil {
		return inside
	}
	return c.large
}

// FetchLarge fetches the content of some blobs from Git LFS in few requests. A failure is reported
// when the file is read.
func (c *Content) FetchLarge(ctx context.Context, list []Blob) {
	want := map[string][]git.Pointer{}
	for _, w := range list {
		if !c.pointers[w.Hash] {
			continue
		}
		data, err := c.blob(ctx, w.Hash)
		if err != nil {
			continue
		}
		if p, is, err := c.pointer(w.Hash, data); is && err == nil && p.Size <= resources.MaxFile {
			want[c.homes[w.Hash]] = append(want[c.homes[w.Hash]], p)
		}
	}
	c.fetchPointers(ctx, want)
}

// fetchPointers fetches the content of pointers, by the home of their files.
func (c *Content) fetchPointers(ctx context.Context, want map[string][]git.Pointer) {
	for home, pointers := range want {
		c.at.o.Progress.SetMessage(ctx, fmt.Sprintf("fetch %d files from Git LFS", len(pointers)))
		c.largeOf(home).Fetch(ctx, pointers)
	}
}

// readers limits the concurrent reads of blobs while a plan is made.
const readers = 4

// File is a file of a tree.
type File = git.File

// Blob is a file of the tree that a plan needs.
type Blob struct{ Path, Hash string }

// ReadEach reads blobs and calls use for each with its content, or with the warning for a file that
// cannot be used. Calls are concurrent.
func (c *Content) ReadEach(ctx context.Context, list []Blob, use func(i int, data []byte, err error)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, w := range list {
		g.Go(func() error {
			data, err := c.Read(ctx, w.Hash)
			if err != nil && !resources.IsWarning(err) {
				return fmt.Errorf("read %s: %w", w.Path, err)
			}
			use(i, data, err)
			return nil
		})
	}
	return g.Wait()
}

// SinkFile returns a file of the tree in the form of package sink. warning is why the file is left
// out.
func (c *Content) SinkFile(ctx context.Context, f git.File) (out sink.File, warning, err error) {
	out = sink.File{Path: f.Path, Hash: f.Hash, Size: f.Size, Exec: f.Mode == "100755"}
	if !f.LFS {
		return out, nil, nil
	}
	data, err := c.blob(ctx, f.Hash)
	if err != nil {
		return out, nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	p, is, warning := c.pointer(f.Hash, data)
	if !is {
		return out, nil, nil
	}
	if warning == nil {
		warning = c.large.Fits(p)
	}
	if large, ok := errors.AsType[*git.TooLargeError](warning); ok {
		warning = &resources.TooLargeError{What: "the file in Git LFS", Size: large.Size, Limit: large.Limit}
	}
	out.Hash, out.Size = sink.SHA256+p.OID, p.Size
	if home := c.homes[f.Hash]; home != "" {
		c.homes[out.Hash] = home
	}
	return out, warning, nil
}

// PointerOf returns the pointer of a file that SinkFile has returned.
func PointerOf(f sink.File) (git.Pointer, bool) {
	oid, is := strings.CutPrefix(f.Hash, sink.SHA256)
	return git.Pointer{OID: oid, Size: f.Size}, is
}

// FetchFiles fetches the content of the files of a directory from Git LFS.
func (c *Content) FetchFiles(ctx context.Context, files []sink.File) {
	want := map[string][]git.Pointer{}
	for _, f := range files {
		if p, is := PointerOf(f); is {
			want[c.homes[f.Hash]] = append(want[c.homes[f.Hash]], p)
		}
	}
	c.fetchPointers(ctx, want)
}

// Missing returns the warning for a file whose content Git LFS does not have, nil for any other
// one.
func (c *Content) Missing(ctx context.Context, f sink.File) error {
	p, is := PointerOf(f)
	if !is {
		return nil
	}
	from, err := c.largeOf(c.homes[f.Hash]).Open(ctx, p)
	if err == nil {
		return from.Close()
	}
	if git.KindOf(err) != git.NotFound {
		return nil // it fails when the file is written
	}
	return &resources.SkippedError{Reason: "the last version is kept: " + err.Error()}
}

// OpenFile opens the content of a file of a directory. Files in Git LFS are streamed.
func (c *Content) OpenFile(ctx context.Context, f sink.File) (io.ReadCloser, error) {
	if p, is := PointerOf(f); is {
		return c.largeOf(c.homes[f.Hash]).Open(ctx, p)
	}
	data, err := c.blob(ctx, f.Hash)
	return io.NopCloser(bytes.NewReader(data)), err
}
