package diff

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

// maxTexts bounds the contents that are read to compare all files of two archives, in bytes a side.
const maxTexts = 64 << 20

// OpenFunc opens the file of an artifact.
type OpenFunc func(context.Context, artifact.Artifact) (io.ReadCloser, error)

// compareArtifacts compares two revisions of a source that this agent has stored.
func (a Comparer) compareArtifacts(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if a.Artifacts == nil {
		return snapshot.Comparison{}, errors.New("this agent does not reconcile sources, so it has no artifacts of them")
	}
	list, err := a.Artifacts.List(ctx, artifact.KeyOf(q.Kind, q.Namespace, q.Repository))
	if err != nil {
		return snapshot.Comparison{}, err
	}
	from, to, err := artifact.Pair(list, q.From, q.To)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	open := func(ctx context.Context, of artifact.Artifact) (io.ReadCloser, error) {
		return a.Artifacts.OpenFile(ctx, of)
	}
	out, err := Archives(ctx, open, from, to, func(file string) bool { return file == q.Path })
	if err != nil || q.Path == "" {
		out.Files = out.Files[:min(len(out.Files), snapshot.MaxFiles)]
		return out, err
	}
	for _, f := range out.Files {
		out.Text = f.Diff
		if f.Path == q.Path {
			out.Files = nil
			return out, nil
		}
	}
	return snapshot.Comparison{}, fmt.Errorf("%s did not change between these revisions", q.Path)
}

// Archives compares the files of two artifacts; that of the zero one has none. It compares the
// contents of those that wanted selects. Bytes are read from the archives as they are needed: what
// is kept is a hash a file, and wanted contents.
func Archives(ctx context.Context, open OpenFunc, from, to artifact.Artifact, wanted func(string) bool) (snapshot.Comparison, error) {
	out := snapshot.Comparison{From: from.Revision, To: to.Revision}
	before, after := map[string]string{}, map[string]string{} // a hash by path
	for i, of := range []artifact.Artifact{from, to} {
		sums := []map[string]string{before, after}[i]
		err := entries(ctx, open, of, func(name string, h *tar.Header, r io.Reader) error {
			sum := sha256.New()
			_, err := io.Copy(sum, r)
			sums[name] = fmt.Sprintf("%o %x", h.Mode, sum.Sum(nil))
			return err
		})
		if err != nil {
			return out, err
		}
	}
	add := func(kind, name string) {
		out.Files = append(out.Files, snapshot.FileChange{Type: kind, Path: name})
	}
	for name, sum := range after {
		if was, ok := before[name]; !ok {
			add(git.ChangeAdded, name)
		} else if was != sum {
			add(git.ChangeModified, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			add(git.ChangeDeleted, name)
		}
	}
	slices.SortFunc(out.Files, func(a, b snapshot.FileChange) int { return strings.Compare(a.Path, b.Path) })
	out.All = len(out.Files)
	texts := map[string]*[2]fileText{}
	for _, f := range out.Files {
		if wanted(f.Path) {
			texts[f.Path] = &[2]fileText{}
		}
	}
	if len(texts) == 0 {
		return out, nil
	}
	for i, of := range []artifact.Artifact{from, to} {
		left := int64(maxTexts)
		err := entries(ctx, open, of, func(name string, h *tar.Header, r io.Reader) (err error) {
			if t := texts[name]; t != nil {
				t[i], err = readText(h, r, &left)
			}
			return err
		})
		if err != nil {
			return out, err
		}
	}
	for i := range out.Files {
		if t := texts[out.Files[i].Path]; t != nil {
			out.Files[i].Diff = new(t[0].compare(t[1]))
		}
	}
	return out, nil
}

// entries calls visit for all files and links of an archive. The content of a link is its target.
func entries(ctx context.Context, open OpenFunc, of artifact.Artifact, visit func(string, *tar.Header, io.Reader) error) error {
	if of.Digest == "" {
		return nil
	}
	f, err := open(ctx, of)
	if err != nil {
		return err
	}
	defer f.Close()
	content := bufio.NewReader(f)
	if magic, _ := content.Peek(len(artifact.Magic)); string(magic) != artifact.Magic {
		return visit(artifact.PlainFile(of), &tar.Header{Mode: 0o644, Size: of.Size}, content)
	}
	packed, err := gzip.NewReader(content)
	if err != nil {
		return fmt.Errorf("read artifact %s: %w", of.Revision, err)
	}
	for archive := tar.NewReader(packed); ctx.Err() == nil; {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		content := io.Reader(archive)
		switch {
		case err != nil:
		case h.Typeflag == tar.TypeSymlink:
			content = strings.NewReader(h.Linkname)
			fallthrough
		case h.Typeflag == tar.TypeReg:
			err = visit(repopath.Quote(path.Clean(h.Name)), h, content)
		}
		if err != nil {
			return fmt.Errorf("read artifact %s: %w", of.Revision, err)
		}
	}
	return context.Cause(ctx)
}

// fileText is a file of one side; the zero one is a file that is not there.
type fileText struct {
	data    []byte
	mode    int64
	omitted string // why it is not compared
}

func readText(h *tar.Header, r io.Reader, left *int64) (t fileText, err error) {
	t.mode = h.Mode
	switch *left -= h.Size; {
	case h.Size > snapshot.MaxFileBytes:
		t.omitted = fmt.Sprintf("not compared: it has %s, and more than %s are not read here", text.Size(h.Size),
			text.Size(snapshot.MaxFileBytes))
	case *left < 0:
		t.omitted = "not compared: too much at once; name the file"
	default:
		t.data, err = io.ReadAll(r)
		t.data = append([]byte{}, t.data...) // an empty file is there
	}
	return t, err
}

func (t fileText) compare(with fileText) snapshot.TextChange {
	switch {
	case t.omitted+with.omitted != "":
		return snapshot.TextChange{Form: max(t.omitted, with.omitted)}
	case t.mode != with.mode && t.data != nil && with.data != nil && bytes.Equal(t.data, with.data):
		return snapshot.TextChange{Form: fmt.Sprintf("only the mode differs: %o became %o", t.mode, with.mode)}
	}
	return Texts(t.data, with.data)
}
