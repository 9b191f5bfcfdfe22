package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"limpet/sync/git"
	"limpet/sync/git/ignore"
	"limpet/sync/git/pack"
	"limpet/sync/text"
)

type kind byte

const (
	dirKind kind = iota
	fileKind
	linkKind
)

// node is an entry of the whole tree: of Git, of an include, or a directory that is there for an
// include.
type node struct {
	path       string // "." for the root
	kind       kind
	executable bool

	remote *git.Remote // with hash: of a tree or blob of Git
	hash   string

	included *included // with at: the entry of a tar
	at       int
	size     int64

	file string // with size: of this host

	spool  io.ReaderAt // with offset and size: of a foreign archive
	offset int64

	children []*node // of a directory, sorted by path, once it is loaded
	loaded   bool
}

func (n *node) name() string { return path.Base(n.path) }

func (n *node) child(name string) (*node, int) {
	i, ok := slices.BinarySearchFunc(n.children, name, func(c *node, name string) int { return strings.Compare(c.name(), name) })
	if !ok {
		return nil, i
	}
	return n.children[i], i
}

// parts of the path; none for the root.
func (n *node) parts() []string {
	if n.path == "." {
		return nil
	}
	return strings.Split(n.path, "/")
}

// builder makes the tree.
type builder struct {
	ctx         context.Context // run-scope: of the one Write
	t           Tree
	o           Options
	root        *node
	sparse      [][]string
	submodules  map[string]git.Submodule
	includes    []*included
	entries     int // that were read from Git
	rules       *ignore.Budget
	ignoreBytes int64 // of the files with rules in includes
	custom      bool  // a rule of the repository or of the spec was read
	files       int   // of a foreign archive, links included
	altered     bool  // the foreign archive has what is packed in another form, or not at all
}

func newBuilder(ctx context.Context, t Tree, o Options) (*builder, error) {
	b := &builder{ctx: ctx, t: t, o: o, rules: ignore.NewBudget()}
	info, err := t.Mirrors.Commit(ctx, t.Remote, t.Commit)
	if err != nil {
		return nil, err
	}
	if o.Submodules {
		whole, err := t.Mirrors.WholeTree(ctx, t.Remote, t.Commit, "")
		if err != nil {
			return nil, err
		}
		b.submodules = whole.Submodules
	}
	b.root = &node{path: ".", remote: &b.t.Remote, hash: info.Tree}
	for _, dir := range o.Sparse {
		if dir = clean(dir); dir != "." {
			b.sparse = append(b.sparse, strings.Split(dir, "/"))
		} else { // the whole tree
			b.sparse = nil
			break
		}
	}
	for _, parts := range b.sparse {
		n := b.root
		for _, part := range parts {
			if err := b.load(n); err != nil {
				return nil, err
			}
			if n, _ = n.child(part); n == nil {
				return nil, &SparseError{strings.Join(parts, "/")}
			}
		}
	}
	for i, in := range o.Includes {
		if err := b.include(in); err != nil {
			b.close()
			return nil, &IncludeError{i, err}
		}
	}
	return b, nil
}

// clean makes a slash-separated path relative to the root, which it cannot leave.
func clean(p string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+p), "/"), ".")
}

// mostPath bounds a path, in bytes.
const mostPath = 4096

// load reads the directory of a node from Git.
func (b *builder) load(n *node) error {
	if n.loaded || n.kind != dirKind || n.hash == "" {
		return nil
	}
	entries, err := b.t.Mirrors.Entries(b.ctx, *n.remote, n.hash)
	if err != nil {
		return err
	}
	n.loaded = true
	most := cmp.Or(n.remote.Limits.TreeEntries, pack.DefaultLimits.TreeEntries) // a few objects can describe a tree without end
	if b.entries += len(entries); b.entries > most {
		return &LimitError{false, int64(most)}
	}
	for _, e := range entries {
		c := &node{path: path.Join(n.path, e.Name), remote: n.remote, hash: e.Hash, executable: e.Executable()}
		switch {
		case e.IsFile():
			c.kind = fileKind
		case e.IsLink() && b.o.KeepSymlinks:
			c.kind = linkKind
		case e.IsSubmodule():
			if c.remote, c.hash, err = b.submodule(c.path); err != nil {
				return err
			}
		case !e.IsDir():
			continue
		}
		if len(c.path) > mostPath {
			return fmt.Errorf("%s: the path is longer than %d bytes", text.Line(c.path, 200), mostPath)
		}
		if b.wanted(c.parts()) {
			n.children = append(n.children, c)
		}
	}
	return nil
}

// submodule returns the tree of a submodule; one that is not asked for is an empty directory, as in
// a checkout.
func (b *builder) submodule(at string) (*git.Remote, string, error) {
	sub, ok := b.submodules[at]
	if !ok {
		return nil, "", nil
	}
	info, err := b.t.Mirrors.Commit(b.ctx, sub.Remote, sub.Commit)
	return &sub.Remote, info.Tree, err
}

// wanted reports whether a path of Git is in a sparse directory, or above one.
func (b *builder) wanted(parts []string) bool {
	return b.sparse == nil || slices.ContainsFunc(b.sparse, func(dir []string) bool {
		n := min(len(dir), len(parts))
		return slices.Equal(dir[:n], parts[:n])
	})
}

// The rules of Flux: the first always, the others where the repository and the spec have none.
const (
	vcsRules     = ".git/\n.gitignore\n.gitmodules\n.gitattributes\n"
	defaultRules = "*.jpg\n*.jpeg\n*.gif\n*.png\n*.wmv\n*.flv\n*.tar.gz\n*.zip\n" +
		".github/\n.circleci/\n.travis.yml\n.gitlab-ci.yml\nappveyor.yml\n.drone.yml\ncloudbuild.yaml\n" +
		"codeship-services.yml\ncodeship-steps.yml\n**/.goreleaser.yml\n**/.sops.yaml\n**/.flux.yaml\n"
)

// ignoreFile holds the rules of its directory.
const ignoreFile = ".sourceignore"

// list returns the nodes that the rules leave, in the order of the archive.
func (b *builder) list() ([]*node, error) {
	var rules [3]*ignore.Rules
	for i, text := range []*string{new(vcsRules), b.o.Ignore, new(defaultRules)} {
		if text == nil {
			text = new("")
		}
		var err error
		if rules[i], err = b.rules.Parse([]byte(*text), nil); err != nil {
			return nil, fmt.Errorf("spec.ignore: %w", err)
		}
	}
	b.custom = rules[1].Len() > 0
	nodes, err := b.walk(b.root, rules[:1], rules[1], nil)
	if err != nil {
		return nil, err
	}
	if !b.custom {
		nodes = slices.DeleteFunc(nodes, func(n *node) bool {
			excluded, _, ended := ignore.Match(b.ctx, rules[2:], n.parts(), n.kind == dirKind)
			err = cmp.Or(err, ended)
			return excluded
		})
	}
	if b.o.MaxFiles > 0 && len(nodes) > b.o.MaxFiles {
		return nil, &LimitError{false, int64(b.o.MaxFiles)}
	}
	return nodes, err
}

// walk appends what is to be packed of a directory, itself first. rules are those of the
// directories above, spec come after all of them. The defaults of Flux are left to list: whether
// they hold is known at the end.
func (b *builder) walk(n *node, rules []*ignore.Rules, spec *ignore.Rules, out []*node) ([]*node, error) {
	if err := b.load(n); err != nil {
		return nil, err
	}
	if c, _ := n.child(ignoreFile); c != nil && c.kind == fileKind {
		own, err := b.ignoreRules(c, n.parts())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text.Line(c.path, 200), err)
		}
		rules = append(slices.Clip(rules), own)
		b.custom = b.custom || own.Len() > 0
	}
	all := append(slices.Clip(rules), spec)
	if n == b.root {
		out = append(out, n)
	}
	for _, c := range n.children {
		if b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
		parts := c.parts()
		excluded, by, err := ignore.Match(b.ctx, all, parts, c.kind == dirKind)
		if err != nil {
			return nil, err
		}
		if !excluded {
			out = append(out, c)
		}
		if c.kind != dirKind || excluded && !ignore.MayReturn(all, by, parts) {
			continue
		}
		if out, err = b.walk(c, rules, spec, out); err != nil {
			return nil, err
		}
		if b.o.MaxFiles > 0 && b.custom && len(out) > b.o.MaxFiles {
			return nil, &LimitError{false, int64(b.o.MaxFiles)}
		}
	}
	n.children = nil // each is in out, or not wanted
	return out, nil
}

// content opens a file or link.
func (b *builder) content(n *node, blobs <-chan chan blob) (io.Reader, int64, error) {
	if n.spool != nil {
		return io.NewSectionReader(n.spool, n.offset, n.size), n.size, nil
	}
	if n.included != nil {
		r, err := n.included.open(b.ctx, n.at)
		return r, n.size, err
	}
	if n.file != "" {
		f, err := os.Open(n.file)
		return f, n.size, err
	}
	select {
	case one := <-blobs:
		got := <-one
		return &got, got.Size(), got.err
	case <-b.ctx.Done():
		return nil, 0, context.Cause(b.ctx)
	}
}

// blob is the content of a file in Git.
type blob struct {
	bytes.Reader
	data []byte
	err  error
}

func (b *blob) Close() error {
	git.Recycle(b.data)
	return nil
}

// blobsAhead is how many blobs are read ahead of the one that is packed. Each may be large.
const blobsAhead = 2

// readAhead reads the blobs of nodes in their order until ctx ends.
func (b *builder) readAhead(ctx context.Context, g *errgroup.Group, nodes []*node) <-chan chan blob {
	out := make(chan chan blob, blobsAhead)
	g.Go(func() error {
		for _, n := range nodes {
			if n.kind == dirKind || n.spool != nil || n.included != nil || n.file != "" {
				continue
			}
			one := make(chan blob, 1)
			select {
			case out <- one:
			case <-ctx.Done():
				return nil
			}
			g.Go(func() error {
				data, err := b.t.Mirrors.Blob(ctx, *n.remote, n.hash, 0)
				one <- blob{*bytes.NewReader(data), data, err}
				return nil
			})
		}
		return nil
	})
	return out
}

// ignoreRules reads a file with rules for a directory.
func (b *builder) ignoreRules(n *node, domain []string) (*ignore.Rules, error) {
	if n.included != nil {
		return b.rules.Parse(n.included.ignores[n.at], domain)
	}
	if n.spool != nil {
		if n.size > ignore.MaxBytes {
			return nil, &ignore.LimitError{What: "bytes", Limit: ignore.MaxBytes}
		}
		data := make([]byte, n.size)
		if _, err := n.spool.ReadAt(data, n.offset); err != nil {
			return nil, err
		}
		return b.rules.Parse(data, domain)
	}
	data, err := b.t.Mirrors.Blob(b.ctx, *n.remote, n.hash, ignore.MaxBytes)
	if errors.As(err, new(*git.TooLargeError)) {
		return nil, &ignore.LimitError{What: "bytes", Limit: ignore.MaxBytes}
	}
	if err != nil {
		return nil, err
	}
	return b.rules.Parse(data, domain)
}

// staysInside reports whether a link leads to a place in the tree: up first, if at all, and then
// down.
func staysInside(at, target string) bool {
	down, up := false, 0
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == ".." && down:
			return false
		case part == "..":
			up++
		case part != "" && part != ".":
			down = true
		}
	}
	return target != "" && !strings.HasPrefix(target, "/") && !strings.ContainsRune(target, 0) && up <= strings.Count(at, "/")
}
