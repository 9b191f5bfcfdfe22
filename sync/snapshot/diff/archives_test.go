package diff

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
)

// packed is an archive of entries in their order: a path ending with * is a program, a content "->
// x" a link to x.
func packed(t *testing.T, entries ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o750})
	for i := 0; i < len(entries) && err == nil; i += 2 {
		name, program := strings.CutSuffix(entries[i], "*")
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(entries[i+1]))}
		if program {
			h.Mode = 0o700
		}
		if to, link := strings.CutPrefix(entries[i+1], "-> "); link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, to, 0
		}
		if err = w.WriteHeader(h); err == nil && h.Typeflag == tar.TypeReg {
			_, err = io.WriteString(w, entries[i+1])
		}
	}
	if err != nil || w.Close() != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestArchives(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", snapshot.MaxFileBytes+1)
	files := map[string][]byte{
		"one": packed(t, "a.yaml", "x: 1\n", "b.json", `{"b":1,"a":2}`, "gone", "1\n", "link", "-> a.yaml", "large", large, "run", "sh\n", "same", "1"),
		"two": packed(t, "large", large+"x", "b.json", `{"a": 2, "b": 1}`, "a.yaml", "x: 2\n", "link", "-> b.json", "new", "", "run*", "sh\n", "same", "1"),
	}
	open := func(_ context.Context, a artifact.Artifact) (io.ReadCloser, error) {
		if files[a.Digest] == nil {
			return nil, artifact.ErrNotFound
		}
		return io.NopCloser(bytes.NewReader(files[a.Digest])), nil
	}
	of := func(digest string) artifact.Artifact {
		return artifact.Artifact{Digest: digest, Revision: "main@" + digest}
	}
	compare := func(from, to artifact.Artifact, wanted string) string {
		got, err := Archives(t.Context(), open, from, to, func(path string) bool { return strings.Contains(wanted, path) })
		if err != nil {
			return err.Error()
		}
		out := fmt.Sprintln(got.From, got.To, got.All)
		for _, f := range got.Files {
			if out += f.Type + " " + f.Path; f.Diff != nil {
				out += fmt.Sprintf(" +%d -%d %s", f.Diff.Added, f.Diff.Deleted, f.Diff.Form)
			}
			out += "\n"
		}
		return out
	}
	const want = `main@one main@two 7
modified a.yaml +1 -1 as text
modified b.json +0 -0 only the form differs: the same JSON, written another way
deleted gone +0 -1 as JSON, keys sorted
modified large +0 -0 not compared: it has 1.0 MiB, and more than 1.0 MiB are not read here
modified link +1 -1 as text
added new +0 -0 the file is empty
modified run +0 -0 only the mode differs: 600 became 700
`
	if got := compare(of("one"), of("two"), "a.yaml b.json gone large link new run same"); got != want {
		t.Errorf("%s", got)
	}
	if got := compare(of("one"), of("one"), "a.yaml"); got != "main@one main@one 0\n" {
		t.Errorf("with itself: %s", got)
	}
	if got := compare(artifact.Artifact{}, of("one"), "gone"); !strings.HasPrefix(got, " main@one 7\nadded a.yaml\nadded b.json\nadded gone +1 -0 as JSON, keys sorted\n") {
		t.Errorf("of nothing: %s", got)
	}
	if got := compare(of("one"), of("none"), ""); got != artifact.ErrNotFound.Error() {
		t.Errorf("a missing one: %s", got)
	}
	files["index"], files["next"] = []byte("a: 1\n"), []byte("a: 2\n")
	if got := compare(of("index"), of("next"), "layer"); got != "main@index main@next 1\nmodified layer +1 -1 as text\n" {
		t.Errorf("no archives: %q", got)
	}
	files["cut"] = files["one"][:len(files["one"])/2]
	if got := compare(of("one"), of("cut"), ""); !strings.HasPrefix(got, "read artifact main@cut: ") {
		t.Errorf("a damaged one: %s", got)
	}
}
