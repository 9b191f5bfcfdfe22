package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/agent"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// storedOf returns the artifacts of a source that this host has, the newest first.
func storedOf(ctx context.Context, s *command.Session, u *unstructured.Unstructured) ([]artifact.Artifact, error) {
	if s.Store == nil {
		return nil, nil
	}
	list, err := s.Store.Artifacts(ctx, artifact.KeyOf(u.GetKind(), u.GetNamespace(), u.GetName()))
	return slices.DeleteFunc(list, func(a artifact.Artifact) bool { return a.UID != string(u.GetUID()) }), err
}

// opener returns what opens an artifact beside the state file of this host.
func opener(e *command.Env) (diff.OpenFunc, error) {
	path, err := e.StatePath()
	return func(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
		f, err := artifact.OpenIn(ctx, agent.ArtifactsPath(path), a)
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*artifact.CorruptError)) {
			err = command.WithHint(err, command.CommandFor(a.Namespace, "source reconcile "+a.Kind+"/"+a.Name)+"    # packs it again, if it is the newest")
		}
		return f, err
	}, err
}

type getCmd struct {
	named
	Revision string `help:"Which stored one: a commit, its beginning, a branch, a tag, a digest, a time." placeholder:"KEY"`
	File     string `short:"f" help:"Where to write it; - is stdout. Default: NAME-COMMIT.tar.gz in this directory." placeholder:"FILE"`
	Via      string `help:"Scheme and host to use instead of the artifact's: a forwarded port of source-controller." placeholder:"URL"`
}

func (c getCmd) Run(ctx context.Context, e *command.Env) error {
	needs := command.Needs{API: true, Store: c.Revision != ""}
	return withSource(ctx, e, needs, c.named, func(s *command.Session, u *unstructured.Unstructured) error {
		from, get := source.FromObject(u), command.CommandFor(u.GetNamespace(), "source get "+u.GetName()+flag(u))
		stored, err := storedOf(ctx, s, u)
		if err != nil {
			return err
		}
		of, local, err := c.choose(stored, from)
		if err != nil {
			return err
		}
		open, err := opener(e)
		if err != nil {
			return err
		}
		write := func(w io.Writer) (int64, error) { return source.Fetch(ctx, from.Artifact, c.Via, w) }
		if local {
			write = func(w io.Writer) (int64, error) {
				f, err := open(ctx, of)
				if err != nil {
					return 0, err
				}
				defer f.Close()
				return io.Copy(w, f)
			}
		}
		switch {
		case c.File == "-" && command.IsTerminal(e.Out):
			return command.Usagef(get+" --file - | tar tz", "an artifact is no text for a terminal")
		case c.File == "-":
			return fetchFailure(streamArtifact(e, write), from, get)
		}
		file := cmp.Or(c.File, artifactName(from, of.Revision))
		if err := command.Writable(file, get+" --file"); err != nil {
			return err
		}
		n, err := command.WriteAtomic(file, write)
		if err != nil {
			return fetchFailure(err, from, get)
		}
		got := map[string]any{"source": from.Name, "namespace": from.Namespace, "file": file, "bytes": n,
			"revision": of.Revision, "digest": of.Digest}
		return e.PrintDone(got, file, "%s: %s, %s, %s verified", file, text.OrDash(of.Revision), text.Size(n), of.Digest)
	})
}

// choose returns the artifact that is asked for, and whether it is one of this host.
func (c getCmd) choose(stored []artifact.Artifact, from source.Source) (of artifact.Artifact, local bool, err error) {
	key := cmp.Or(c.Revision, "latest")
	var served []artifact.Artifact
	if a := from.Artifact; a != nil {
		if served = append(served, artifact.Artifact{Revision: a.Revision, Digest: a.Digest, Updated: a.Updated}); key == "latest" {
			key = a.Digest
		}
	}
	if of, err = artifact.Choose(stored, key); err == nil && c.Via == "" {
		return of, true, nil
	}
	if of, err = artifact.Choose(served, key); err == nil || len(served) > 0 && c.Revision == "" {
		return served[0], false, nil
	}
	if c.Revision == "" {
		return of, false, command.Errorf(command.ExitError, command.CommandFor(from.Namespace, "source show "+from.Name+from.Flag()),
			"%s has no artifact: it is %s", from.Name, from.State)
	}
	return of, false, command.Errorf(command.ExitError, command.CommandFor(from.Namespace, "source show "+from.Name+from.Flag()+" --revisions"),
		"revision %q of %s not found on this host", c.Revision, from.Name)
}

// streamArtifact writes an artifact to stdout after its digest was verified.
func streamArtifact(e *command.Env, write func(io.Writer) (int64, error)) error {
	tmp, err := os.CreateTemp("", "limpet-artifact-*")
	if err != nil {
		return fmt.Errorf("make a temporary file: %w", command.Reason(err))
	}
	defer tmp.Close()
	// The file is unlinked at once, so that nothing is left behind.
	if err := os.Remove(tmp.Name()); err != nil {
		return err
	}
	if _, err := write(tmp); err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(e.Out, tmp)
	return err
}

// artifactName is the file name of an artifact: source and commit. It never leaves the directory.
func artifactName(from source.Source, revision string) string {
	name := from.Name
	if commit := text.ShortRef(artifact.Commit(revision)); commit != "" {
		name += "-" + commit
	}
	ending := ".tar.gz"
	if from.Artifact != nil && strings.HasSuffix(from.Artifact.URL, ".tgz") {
		ending = ".tgz"
	}
	return filepath.Base(text.Clean(name)) + ending
}

// fetchFailure adds the exit code and the next command to a failed download.
func fetchFailure(err error, from source.Source, get string) error {
	switch {
	case err == nil, errors.As(err, new(*command.Error)):
		return err
	case errors.As(err, new(*source.UnreachableError)):
		return command.Errorf(command.ExitUnreachable, "kubectl -n flux-system port-forward svc/source-controller 8080:80"+
			"    # in another terminal, then: "+get+" --via http://127.0.0.1:8080", "%w", err)
	case errors.As(err, new(*source.DigestError)): // its controller may have packed the same commit anew
		return command.Errorf(command.ExitError, get+"    # once more; else: "+command.CommandFor(from.Namespace,
			"source reconcile "+from.Name+from.Flag()), "%w; nothing was written", err)
	}
	return command.WithHint(err, command.CommandFor(from.Namespace, "source show "+from.Name+from.Flag()))
}

type diffCmd struct {
	named
	From string   `arg:"" optional:"" help:"A revision, as for get. Default: the one before the other."`
	To   string   `arg:"" optional:"" help:"A revision. Default: the latest."`
	Path []string `help:"Only this file." sep:"none" placeholder:"FILE"`
	Stat bool     `help:"Only list the files, with the lines that were added and deleted."`
}

func (c diffCmd) Run(ctx context.Context, e *command.Env) error {
	return withSource(ctx, e, command.Needs{API: true, Store: true}, c.named, func(s *command.Session, u *unstructured.Unstructured) error {
		stored, err := storedOf(ctx, s, u)
		if err != nil {
			return err
		}
		list := command.CommandFor(u.GetNamespace(), "source show "+u.GetName()+flag(u)+" --revisions")
		if c.From == "" && len(stored) < 2 {
			return command.Errorf(command.ExitError, list, "%s of %s on this host: nothing to compare",
				text.Plural(len(stored), "revision"), u.GetName())
		}
		from, to, err := artifact.Pair(stored, c.From, cmp.Or(c.To, "latest"))
		if err != nil {
			return command.Errorf(command.ExitError, list, "%w", err)
		}
		open, err := opener(e)
		if err != nil {
			return err
		}
		wanted := func(path string) bool { return len(c.Path) == 0 || slices.Contains(c.Path, path) }
		out, err := diff.Archives(ctx, open, from, to, wanted)
		if err != nil {
			return err
		}
		out.Files = command.List(slices.DeleteFunc(out.Files, func(f snapshot.FileChange) bool { return !wanted(f.Path) }))
		for i := range out.Files {
			if c.Stat {
				out.Files[i].Diff.Lines, out.Files[i].Diff.More = nil, 0
			}
		}
		return e.PrintOne(out, title(u), func(w io.Writer) { c.print(e, w, u.GetNamespace(), out) })
	})
}

func (c diffCmd) print(e *command.Env, w io.Writer, namespace string, out snapshot.Comparison) {
	added, deleted := 0, 0
	t := command.Table{Columns: []string{"CHANGE", "FILE", "LINES"}}
	for _, f := range out.Files {
		added, deleted = added+f.Diff.Added, deleted+f.Diff.Deleted
		lines := fmt.Sprintf("+%d -%d", f.Diff.Added, f.Diff.Deleted)
		if f.Diff.Added+f.Diff.Deleted == 0 {
			lines = f.Diff.Form
		}
		t.Add(namespace, f.Path, f.Type, f.Path, lines)
		if !c.Stat {
			before := map[bool]string{true: "/dev/null", false: "a/" + f.Path}
			after := map[bool]string{true: "/dev/null", false: "b/" + f.Path}
			command.PrintDiff(w, before[f.Type == "added"], after[f.Type == "deleted"], *f.Diff)
		}
	}
	if c.Stat && len(out.Files) > 0 {
		t.Write(w, false, !e.Flags.NoHeaders)
	}
	fmt.Fprintf(w, "%s from %s to %s: +%d -%d lines\n", text.Plural(len(out.Files), "changed file"), out.From, out.To, added, deleted)
}
