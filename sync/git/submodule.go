package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"limpet/state/atomicfile"
	"limpet/sync/auth"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// Submodules: commits of other repositories that belong into a tree. Which repository that is says
// a file that anyone with push access can write, so it may name no other host, and the limits hold
// for all of them together.

// Bounds of the submodules of one tree.
const (
	maxSubmodules     = 64
	maxSubmoduleDepth = 4 // submodules in submodules
)

// WholeTree is Tree with the files of the submodules below dir, each fetched into a mirror of its
// own at exactly the commit that the tree names. It blocks as Fetch does. A submodule that cannot
// be had is an error which names it: a tree without its files would say that they are gone. One
// that .gitmodules does not know stays in Refused.
func (m *Mirrors) WholeTree(ctx context.Context, r Remote, commit, dir string) (Tree, error) {
	t, err := m.Tree(ctx, r, commit, dir)
	if err != nil {
		return Tree{}, err
	}
	g := &submoduleTree{m: m, top: r, whole: &t, left: r.Limits.Or(m.client.Options.Limits)}
	g.left.TreeEntries = max(1, g.left.TreeEntries-len(t.Files)-len(t.Dirs))
	top := level{remote: r, commit: commit, dir: strings.Trim(dir, "/"), refused: t.Refused, above: []string{m.dirOf(r)}}
	t.Refused = nil
	if err := g.add(ctx, top); err != nil {
		return Tree{}, err
	}
	slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(t.Dirs)
	return t, nil
}

// parentFile is the file in the mirror of a submodule that names the mirror of the
// repository with which it was pulled last: Prune keeps both or none.
const parentFile = "limpet-parent"

func (g *submoduleTree) noteParent(sub Remote) {
	path := filepath.Join(g.m.dirOf(sub), parentFile)
	parent := filepath.Base(g.m.dirOf(g.top))
	if before, err := os.ReadFile(path); err == nil && string(before) == parent {
		_ = os.Chtimes(path, time.Time{}, time.Now()) // Prune keeps submodules that were pulled lately
		return
	}
	if err := atomicfile.Write(path, 0o600, atomicfile.Data([]byte(parent))); err != nil {
		g.m.log.Warn("cannot save whose submodule it is", "url", sub.shown(), "err", err)
	}
}

// submoduleTree puts the trees of submodules into one.
type submoduleTree struct {
	m     *Mirrors
	top   Remote
	whole *Tree
	left  pack.Limits // of what the submodules may take together; no member is 0
	count int
}

// level is a tree that may hold submodules.
type level struct {
	remote      Remote
	commit, dir string
	prefix      string    // of its paths in the whole, with a slash at the end
	refused     []Refusal // entries of the tree
	above       []string  // mirrors of the repositories that it is inside of, and its own
}

func (g *submoduleTree) add(ctx context.Context, l level) error {
	var modules map[string]string
	for _, entry := range l.refused {
		if entry.Kind != submodule {
			g.whole.refuse(Refusal{Path: l.prefix + entry.Path, Kind: entry.Kind, Reason: entry.Reason})
			continue
		}
		at := path.Join(l.dir, entry.Path)
		fail := func(err error) error {
			e := Error{Kind: Refused, Err: err}
			if inner, ok := errors.AsType[*Error](err); ok {
				e = *inner
			} else if errors.As(err, new(*TooLargeError)) {
				e.Kind = TooLarge
			}
			e.Op = "fetch submodule"
			e.URL = l.remote.shown()
			e.Err = fmt.Errorf("submodule %q: %w", showPath(l.prefix+entry.Path), e.Err)
			return &e
		}
		if modules == nil {
			data, err := g.m.rootFile(ctx, l.remote, l.commit, ".gitmodules")
			if err != nil {
				return fail(err)
			}
			if modules, err = parseModules(data); err != nil {
				return fail(fmt.Errorf(".gitmodules: %w", err))
			}
		}
		url, known := modules[at]
		if !known {
			g.whole.refuse(Refusal{Path: l.prefix + entry.Path, Kind: submodule, Reason: "a submodule without an entry in .gitmodules"})
			continue
		}
		if err := g.submodule(ctx, l, entry, url); err != nil {
			return fail(err)
		}
	}
	return nil
}

// submodule grafts the one that stands for an entry of the tree of l.
func (g *submoduleTree) submodule(ctx context.Context, l level, entry Refusal, url string) error {
	name, commit := entry.Path, entry.commit
	if g.count++; g.count > maxSubmodules {
		return &TooLargeError{Count: true, What: "number of submodules", Size: int64(g.count), Limit: maxSubmodules}
	}
	sub, err := l.remote.submodule(url)
	if err != nil {
		return err
	}
	key := g.m.dirOf(sub)
	above := append(slices.Clone(l.above), key)
	switch {
	case slices.Contains(l.above, key):
		return errors.New("the repository is inside of itself")
	case len(l.above) > maxSubmoduleDepth:
		return fmt.Errorf("it is more than %d submodules deep", maxSubmoduleDepth)
	}
	here := func(at string) bool { return fold(at) == fold(l.prefix+name) }
	if slices.ContainsFunc(g.whole.Dirs, here) || slices.ContainsFunc(g.whole.Files, func(f File) bool { return here(f.Path) }) {
		return errors.New("its place is taken by another entry, in the eyes of some file systems")
	}
	sub.Limits = g.left
	stats, err := g.m.Fetch(ctx, sub, Ref{Name: commit, Hash: commit, Pinned: true})
	if err != nil {
		return err
	}
	if err := g.m.verifySubmodule(ctx, sub, commit); err != nil {
		return err
	}
	g.noteParent(sub)
	g.left.PackBytes = max(1, g.left.PackBytes-stats.Bytes)
	g.left.InflatedBytes = max(1, g.left.InflatedBytes-stats.Inflated)
	g.left.Objects = max(1, g.left.Objects-stats.Objects)
	inner, err := g.m.Tree(ctx, sub, commit, "")
	if err != nil {
		return err
	}
	g.left.TreeEntries = max(1, g.left.TreeEntries-len(inner.Files)-len(inner.Dirs)-1)
	g.whole.More += inner.More
	if g.whole.Submodules == nil {
		g.whole.Submodules = map[string]Submodule{}
	}
	g.whole.Submodules[l.prefix+name] = Submodule{sub, commit}
	below := level{remote: sub, commit: commit, prefix: l.prefix + name + "/", refused: inner.Refused, above: above}
	g.whole.Dirs = append(g.whole.Dirs, l.prefix+name)
	for _, d := range inner.Dirs {
		g.whole.Dirs = append(g.whole.Dirs, below.prefix+d)
	}
	for _, f := range inner.Files {
		f.Path, f.Home = below.prefix+f.Path, sub.URL
		if len(f.Path) > g.left.PathBytes || strings.Count(f.Path, "/") > g.left.TreeDepth {
			g.whole.refuse(Refusal{Path: showPath(f.Path), Kind: deepPath, Reason: "the path is too long or too deep"})
			continue
		}
		g.whole.Files = append(g.whole.Files, f)
	}
	return g.add(ctx, below)
}

// verifySubmodule verifies the commit of a submodule as Remote.Demands says. It has no tag that
// could be verified.
func (m *Mirrors) verifySubmodule(ctx context.Context, sub Remote, commit string) error {
	if sub.Demands == nil {
		return nil
	}
	demands, err := sub.Demands(sub.URL)
	for _, demand := range demands {
		if err == nil {
			_, err = m.Verify(ctx, sub, Ref{Name: commit, Hash: commit, Pinned: true}, demand)
		}
	}
	if signature.KindOf(err) != "" && KindOf(err) != Unverified { // there are no keys
		err = &Error{Kind: Unverified, Err: err}
	}
	return err
}

// parseModules reads a .gitmodules. What cannot be meant is an error of the whole.
func parseModules(data []byte) (map[string]string, error) {
	cfg, err := parseConfig(data)
	if err != nil {
		return nil, err
	}
	out, folded := map[string]string{}, map[string]bool{}
	for _, s := range cfg.Section("submodule").Subsections {
		name := text.Line(s.Name, 100)
		for _, key := range []string{"path", "url"} {
			if len(s.OptionAll(key)) > 1 {
				return nil, fmt.Errorf("submodule %q has two of %s", name, key)
			}
		}
		at, url := s.Option("path"), s.Option("url")
		for part := range strings.SplitSeq(at, "/") {
			if why := badName(part); why != allowed || strings.HasPrefix(at, "-") {
				return nil, fmt.Errorf("submodule %q has the path %q: %s", name, text.Line(at, 100), cmp.Or(why.text, "it looks like an option"))
			}
		}
		switch {
		case url == "" || strings.HasPrefix(url, "-"):
			return nil, fmt.Errorf("submodule %q has the url %q, which is none", name, text.Line(url, 100))
		case folded[fold(at)]:
			return nil, fmt.Errorf("two submodules have the path %q", text.Line(at, 100))
		}
		folded[fold(at)], out[at] = true, url
	}
	return out, nil
}

// submodule is the remote of a submodule of r: one that is asked in the same way. A
// fallback has it only where its URL is relative.
func (r Remote) submodule(url string) (Remote, error) {
	own, err := auth.ParseAddress(r.URL)
	if err != nil {
		return r, err
	}
	fallbacks := r.Fallbacks
	r.URL = url
	r.LastSynced = ""
	r.Fallbacks = nil
	r.Receiver = nil
	if strings.HasPrefix(url, "./") || strings.HasPrefix(url, "../") {
		there := own
		if there.Path = path.Join(own.Path, url); strings.HasPrefix(there.Path, "..") || there.Path == "/" || there.Path == "." {
			return r, fmt.Errorf("the url %q leaves the host", text.Line(url, 200))
		}
		r.URL = there.String()
		for _, s := range fallbacks {
			if at, err := (Remote{URL: s.URL}).submodule(url); err == nil {
				r.Fallbacks = append(r.Fallbacks, Fallback{at.URL, s.Credentials})
			}
		}
	}
	a, err := auth.ParseAddress(r.URL)
	if err == nil && a.Password {
		err = errors.New("the url in .gitmodules holds a password")
	}
	if err == nil && (a.Scheme != own.Scheme || a.HostPort() != own.HostPort() || a.Scheme == "ssh" && a.User != own.User) {
		err = &Error{Kind: Refused,
			Err: fmt.Errorf("it is at %s, and credentials go to the host of the repository only, in the same way",
				text.Line(transport.WithoutUserInfo(a.String()), 200)),
			Hint: "write its url relative, such as ../other.git"}
	}
	return r, err
}

// shown is the URL without user and password.
func (r Remote) shown() string {
	if a, err := auth.ParseAddress(r.URL); err == nil {
		return a.String()
	}
	return ""
}

// maxConfig bounds a file of a repository in the form of git's configuration, .lfsconfig or
// .gitmodules, in bytes.
const maxConfig = 64 << 10

// parseConfig reads such a file. Anyone with push access can write it, so names and values
// with control characters are refused.
func parseConfig(data []byte) (*config.Config, error) {
	switch {
	case len(data) > maxConfig:
		return nil, &TooLargeError{What: "configuration file", Size: int64(len(data)), Limit: maxConfig}
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	}
	cfg := config.New()
	if err := config.NewDecoder(bytes.NewReader(data)).Decode(cfg); err != nil {
		return nil, fmt.Errorf("line %s", text.Line(err.Error(), 200)) // it begins with line and column
	}
	for _, s := range cfg.Sections {
		options := slices.Clone(s.Options)
		for _, sub := range s.Subsections {
			options = append(append(options, &config.Option{Value: sub.Name}), sub.Options...)
		}
		if slices.ContainsFunc(options, func(o *config.Option) bool { return strings.ContainsFunc(o.Value, text.Hidden) }) {
			return nil, fmt.Errorf("section %q holds a control character", text.Line(s.Name, 100))
		}
	}
	return cfg, nil
}
