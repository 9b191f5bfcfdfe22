package repo

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state/atomicfile"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/bundle"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/source/upstream"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// ExportCmd writes a Git bundle of a Repository, or of a GitRepository.
type ExportCmd struct {
	Name  string `arg:"" help:"Name of the object."`
	File  string `help:"Where to write it; - is stdout. Default: NAME-COMMIT.bundle in this directory." placeholder:"FILE"`
	Since string `help:"Only what is new since this commit, which the reader has." placeholder:"COMMIT"`
}

func (c ExportCmd) Run(ctx context.Context, e *command.Env) error {
	return c.Export(ctx, e, api.Repositories)
}

// Export writes the bundle of an object of a kind.
func (c ExportCmd) Export(ctx context.Context, e *command.Env, kind command.Resource) error {
	noun := command.KindOf(kind).Noun
	return e.WithObject(ctx, command.Needs{API: true}, kind, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		show := command.CommandFor(u.GetNamespace(), noun+" show "+c.Name)
		from, err := upstream.Of(u)
		if err != nil {
			return command.Errorf(command.ExitError, show, "%s cannot be exported: %w", c.Name, err)
		}
		path, err := e.StatePath()
		if err != nil {
			return err
		}
		mirrors := git.View(agent.MirrorsPath(path))
		defer mirrors.Close()
		q := git.BundleQuery{Ref: mirrors.Named(from.Remote, from.Hash, from.Selector), Since: c.Since}
		write := func(w io.Writer) (n int64, err error) {
			if err = mirrors.Bundle(ctx, from.Remote, q, counter{w, &n}); err != nil {
				err = command.WithHint(err, show)
			}
			return n, err
		}
		export := command.CommandFor(u.GetNamespace(), noun+" export "+c.Name) + " --file"
		switch {
		case c.File == "-" && command.IsTerminal(e.Out):
			return command.Usagef(export+" FILE", "a bundle is no text for a terminal")
		case c.File == "-":
			_, err := write(e.Out)
			return err
		case c.File == "":
			c.File = filepath.Base(text.Clean(c.Name)) + "-" + text.ShortRef(from.Hash) + transport.BundleSuffix
		}
		if err := command.Writable(c.File, export); err != nil {
			return err
		}
		n, err := command.WriteAtomic(c.File, write)
		if err != nil {
			return err
		}
		made := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "file": c.File, "bytes": n, "commit": from.Hash,
			"ref": q.Ref.Name, "since": c.Since, "verified": from.Verified}
		return e.PrintDone(made, c.File, "%s: %s at %s, %s", c.File, q.Ref.Short(), text.ShortRef(from.Hash), text.Size(n))
	})
}

// counter counts what is written.
type counter struct {
	io.Writer
	n *int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	*c.n += int64(n)
	return n, err
}

// ImportCmd copies a Git bundle to where a Repository, or a GitRepository, reads it.
type ImportCmd struct {
	File string `arg:"" help:"Git bundle of version 2."`
	Name string `arg:"" optional:"" help:"Name of the object. Default: the only one with a bundle:// URL."`
}

func (c ImportCmd) Run(ctx context.Context, e *command.Env) error {
	return c.Import(ctx, e, api.Repositories)
}

// Import copies a bundle for an object of a kind.
func (c ImportCmd) Import(ctx context.Context, e *command.Env, kind command.Resource) error {
	noun := command.KindOf(kind).Noun
	again := "limpet " + noun + " import " + text.ShellWord(c.File)
	if c.Name != "" {
		again += " " + text.ShellWord(c.Name)
	}
	f, err := os.OpenFile(c.File, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err == nil {
		if info, unknown := f.Stat(); unknown == nil && !info.Mode().IsRegular() {
			f.Close()
			err = errors.New("it is no regular file")
		}
	}
	if err != nil {
		return command.Usagef(again+"    # with another file", "open %s: %w", c.File, command.Reason(err))
	}
	defer f.Close()
	head := bundle.Header{}
	if _, err = bundle.Check(ctx, f, pack.DefaultLimits); err == nil {
		head, _, err = bundle.ReadHeader(ctx, bufio.NewReaderSize(f, bundle.LineBytes), pack.DefaultLimits.RefsBytes)
	}
	if err != nil {
		return command.Errorf(command.ExitError, "git bundle verify "+text.ShellWord(c.File), "%s: %w; nothing was copied", c.File, err)
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		name, url, err := c.target(ctx, e, s, kind, noun)
		if err != nil {
			return err
		}
		path, err := e.StatePath()
		if err != nil {
			return err
		}
		mirrors := git.View(agent.MirrorsPath(path))
		defer mirrors.Close()
		to := filepath.Join(url.Path, strings.TrimSuffix(filepath.Base(c.File), transport.BundleSuffix)+transport.BundleSuffix)
		lack, err := mirrors.Lacks(ctx, git.Remote{URL: url.String()}, slices.Concat(head.Bases, slices.Collect(maps.Values(head.Refs))))
		if err != nil {
			return err
		}
		near, unlock := inbox(ctx, to)
		defer unlock()
		missing := slices.DeleteFunc(slices.Clone(head.Bases), func(id pack.ID) bool { return near[id] || !slices.Contains(lack, id) })
		if len(missing) > 0 {
			return command.Errorf(command.ExitError, again+"    # after a bundle with that commit was imported",
				"%s builds on commit %s, which the mirror of %s does not have; nothing was copied", c.File, missing[0], name)
		}
		err = atomicfile.Write(to, 0o644, func(w io.Writer) error {
			_, err := f.Seek(0, io.SeekStart)
			if err == nil {
				_, err = io.Copy(w, f)
			}
			return err
		})
		if err != nil {
			return command.Unwritten(to, err)
		}
		known := map[bool]string{true: ", whose mirror has that already: only a newer commit is taken"}[len(lack) == 0]
		refs := slices.Sorted(maps.Keys(head.Refs))
		namespace, of, _ := strings.Cut(name, "/")
		made := map[string]any{"namespace": namespace, "name": of, "file": to, "refs": refs, "known": known != ""}
		return e.PrintDone(made, to, "%s: %s, for %s%s", to, text.Line(strings.Join(refs, ", "), 200), name, known)
	})
}

// inbox locks the directory of a new file against other imports, removes what those that were
// killed have left, and returns the tips of the other bundles.
func inbox(ctx context.Context, file string) (tips map[pack.ID]bool, unlock func()) {
	tips = map[pack.ID]bool{}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return tips, func() {} // the write has the same error
	}
	locked := atomicfile.Lock(ctx, dir) == nil // not every file system can
	entries, _ := dir.ReadDir(-1)
	for _, e := range entries {
		path := filepath.Join(filepath.Dir(file), e.Name())
		switch {
		case !e.Type().IsRegular() || path == file:
		case atomicfile.IsTemporary(e.Name()) && locked:
			_ = os.Remove(path)
		case strings.HasSuffix(path, transport.BundleSuffix):
			if f, err := os.Open(path); err == nil {
				r := bufio.NewReaderSize(f, bundle.LineBytes)
				head, _, _ := bundle.ReadHeader(ctx, r, pack.DefaultLimits.RefsBytes)
				f.Close()
				for _, id := range head.Refs {
					tips[id] = true
				}
			}
		}
	}
	return tips, func() { dir.Close() }
}

// target returns the namespace and name of the object and the directory that a bundle is for.
func (c ImportCmd) target(
	ctx context.Context, e *command.Env, s *command.Session, kind command.Resource, noun string,
) (string, auth.Address, error) {
	urls := map[string]auth.Address{}
	items, err := s.List(ctx, kind, e.Flags.ListNamespace(), "", nil, 0)
	if err != nil {
		return "", auth.Address{}, err
	}
	for i := range items {
		raw, _, _ := unstructured.NestedString(items[i].Object, "spec", "url")
		if git, _, _ := unstructured.NestedString(items[i].Object, "spec", "git", "url"); git != "" {
			raw = git
		}
		name := items[i].GetNamespace() + "/" + items[i].GetName()
		a, err := auth.ParseAddress(raw)
		if err == nil && a.Scheme == auth.BundleScheme && (c.Name == "" || strings.HasSuffix("/"+name, "/"+c.Name)) {
			urls[name] = a
		}
	}
	found := slices.Sorted(maps.Keys(urls))
	if len(found) == 1 {
		return found[0], urls[found[0]], nil
	}
	err = errors.New("none has a bundle:// URL")
	if len(found) > 1 {
		err = errors.New("several have a bundle:// URL: " + strings.Join(found, ", "))
	} else if c.Name != "" {
		err = errors.New(c.Name + " is not there or has no bundle:// URL")
	}
	return "", auth.Address{}, command.Usagef("limpet "+noun+" import "+text.ShellWord(c.File)+" NAMESPACE/NAME", "%w", err)
}
