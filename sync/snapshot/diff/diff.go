// Package diff compares two versions of a file for a person at a terminal. The files come from
// anywhere, so the work and the result are bounded.
package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
)

const (
	contextLines = 3       // around a change, as in git
	maxRead      = 100_000 // lines of a file that is compared
	maxLines     = 4000    // of the result
	maxLine      = 1000    // bytes of a line of the result
	maxDepth     = 64      // of JSON that is indented
	maxBlanks    = 8 << 20 // bytes of the indentation of JSON
)

// Texts compares two contents; nil is a missing file. JSON is compared with sorted keys and one
// member a line.
func Texts(before, after []byte) snapshot.TextChange {
	if isBinary(before) || isBinary(after) {
		return snapshot.TextChange{Form: fmt.Sprintf("not text: %s became %s", text.Size(int64(len(before))), text.Size(int64(len(after))))}
	}
	form := "as JSON, keys sorted"
	a, okA := indentJSON(before)
	b, okB := indentJSON(after)
	isJSON := okA && okB
	if !isJSON {
		form, a, b = "as text", string(before), string(after)
	}
	if strings.Count(a, "\n") > maxRead || strings.Count(b, "\n") > maxRead {
		return snapshot.TextChange{Form: fmt.Sprintf("not compared: more than %s lines", text.Thousands(maxRead))}
	}
	switch {
	case a != b:
		out := hunks(a, b)
		out.Form = form
		return out
	case before == nil || after == nil:
		form = "the file is empty"
	case isJSON && !bytes.Equal(before, after):
		form = "only the form differs: the same JSON, written another way"
	default:
		form = "the content is the same"
	}
	return snapshot.TextChange{Form: form}
}

func isBinary(data []byte) bool {
	return bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data)
}

// indentJSON returns data with sorted keys and one member a line. It reports false when data is not
// JSON, or too deep or too large when it is indented.
func indentJSON(data []byte) (string, bool) {
	if data == nil {
		return "", true
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // keeps all digits
	var v any
	if d.Decode(&v) != nil || blanks(v, 0) > maxBlanks {
		return "", false
	}
	if _, err := d.Token(); err != io.EOF {
		return "", false
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	ok := e.Encode(v) == nil
	return out.String(), ok
}

// blanks returns the size of the indentation of v, more than maxBlanks when it is too deep.
func blanks(v any, depth int) int {
	total := 4 * depth // of a value, and of the bracket behind its members
	if depth > maxDepth {
		return maxBlanks + 1
	}
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			total += blanks(member, depth+1)
		}
	case []any:
		for _, item := range v {
			total += blanks(item, depth+1)
		}
	}
	return total
}

// hunks returns the changes with the lines around them.
func hunks(a, b string) (out snapshot.TextChange) {
	u, err := udiff.ToUnifiedDiff("", "", a, udiff.Lines(a, b), contextLines)
	if err != nil { // only for edits that are not those of a
		return out
	}
	add := func(op, line string) {
		if len(out.Lines) >= maxLines {
			out.More++
			return
		}
		out.Lines = append(out.Lines, snapshot.TextLine{Op: op, Text: shorten(line)})
	}
	for _, h := range u.Hunks {
		var added, deleted int
		for _, l := range h.Lines {
			switch l.Kind {
			case udiff.Insert:
				added++
			case udiff.Delete:
				deleted++
			}
		}
		out.Added, out.Deleted = out.Added+added, out.Deleted+deleted
		add("@", fmt.Sprintf("@@ -%s +%s @@", span(h.FromLine, len(h.Lines)-added), span(h.ToLine, len(h.Lines)-deleted)))
		for _, l := range h.Lines {
			line, ended := strings.CutSuffix(l.Content, "\n")
			if !ended {
				line += " (no end of line)"
			}
			add(map[udiff.OpKind]string{udiff.Insert: "+", udiff.Delete: "-", udiff.Equal: " "}[l.Kind], line)
		}
	}
	return out
}

// span returns a range of lines as git writes it: an empty one has the number of the line before
// it.
func span(from, n int) string {
	if n == 0 {
		from--
	}
	return fmt.Sprintf("%d,%d", from, n)
}

func shorten(line string) string {
	if len(line) <= maxLine {
		return line
	}
	end := maxLine
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return fmt.Sprintf("%s (and %s bytes)", line[:end], text.Thousands(len(line)-end))
}

// Comparer compares and lists commits in the mirrors of this host. It sends no requests.
type Comparer struct {
	Repos   *kube.Informer
	Mirrors *git.Mirrors
	Store   *state.Store // knows the unread files
	Kinds   resources.Kinds
	Pull    *worker.Pull // compares with the API
	// Artifacts are those of sources; nil where another one reconciles them.
	Artifacts *artifact.Store
}

// Compare implements control.Agent.
func (a Comparer) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if q.Source {
		return a.compareArtifacts(ctx, q)
	}
	u, ok := a.Repos.Get(q.Namespace, q.Repository)
	if !ok {
		return snapshot.Comparison{}, fmt.Errorf("the repository %s is not there any more, so its mirror is not known", q.Repository)
	}
	return a.CompareOf(ctx, u, q)
}

// CompareOf is Compare for a Repository that the caller has; it needs no informer.
func (a Comparer) CompareOf(ctx context.Context, u *unstructured.Unstructured, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	repo, err := api.RepositoryView(u)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	urls := checkout.URLs(repo)
	if len(urls) == 0 {
		return snapshot.Comparison{}, fmt.Errorf("the repository %s has no URL", q.Repository)
	}
	c := comparison{mirrors: a.Mirrors, remote: git.Remote{URL: urls[0]}, dir: repo.Spec.Dir()}
	out, err := c.run(ctx, q)
	if errors.Is(err, git.ErrUnknownCommit) {
		return snapshot.Comparison{}, fmt.Errorf("the mirror on this host does not have both commits any more (%s, %s): "+
			"it was made anew since; git diff in a clone still tells", text.OrDash(text.ShortRef(q.From)), text.ShortRef(q.To))
	}
	return out, err
}

// comparison compares two commits of one mirror.
type comparison struct {
	mirrors *git.Mirrors
	remote  git.Remote
	dir     string
}

func (c comparison) run(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	changes, err := c.changes(ctx, q)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	if q.Path == "" {
		out := snapshot.Comparison{All: len(changes)}
		for _, ch := range changes[:min(len(changes), snapshot.MaxFiles)] {
			out.Files = append(out.Files, snapshot.FileChange{Type: ch.Type, Path: ch.Path, From: ch.From})
		}
		return out, nil
	}
	for _, ch := range changes {
		if ch.Path == q.Path {
			change, err := c.text(ctx, ch)
			return snapshot.Comparison{All: len(changes), Text: &change}, err
		}
	}
	return snapshot.Comparison{}, fmt.Errorf("%s did not change between these commits", q.Path)
}

// changes returns the changed files. Without From all files are new.
func (c comparison) changes(ctx context.Context, q snapshot.CompareQuery) ([]git.Change, error) {
	if q.From != "" {
		compared, err := c.mirrors.Changes(ctx, c.remote, q.From, q.To, c.dir)
		return compared.Files, err
	}
	tree, err := c.mirrors.Tree(ctx, c.remote, q.To, c.dir)
	if err != nil {
		return nil, err
	}
	out := make([]git.Change, len(tree.Files))
	for i, f := range tree.Files {
		out[i] = git.Change{Type: git.ChangeAdded, Path: f.Path, Hash: f.Hash}
	}
	return out, nil
}

func (c comparison) text(ctx context.Context, ch git.Change) (snapshot.TextChange, error) {
	var sides [2][]byte
	for i, hash := range []string{ch.FromHash, ch.Hash} {
		if hash == "" {
			continue
		}
		data, err := c.mirrors.Blob(ctx, c.remote, hash, snapshot.MaxFileBytes)
		if large, ok := errors.AsType[*git.TooLargeError](err); ok {
			return snapshot.TextChange{Form: fmt.Sprintf("not compared: it has %s, and more than %s are not read here",
				text.Size(large.Size), text.Size(snapshot.MaxFileBytes))}, nil
		}
		if err != nil {
			return snapshot.TextChange{}, err
		}
		sides[i] = append([]byte{}, data...) // an empty file is there
	}
	if ch.Hash == ch.FromHash && ch.Type == git.ChangeModified {
		return snapshot.TextChange{Form: "only the executable bit differs"}, nil
	}
	return Texts(sides[0], sides[1]), nil
}
