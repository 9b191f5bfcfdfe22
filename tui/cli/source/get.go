package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/source"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type getCmd struct {
	Name string `arg:"" help:"Name of the source."`
	File string `help:"Where to write it; - is stdout. Default: NAME-COMMIT.tar.gz in this directory." placeholder:"FILE"`
	Via  string `help:"Scheme and host in place of those of the artifact's address: where a port of source-controller is forwarded to." placeholder:"URL"`
}

// Help is the long help of the command.
func (getCmd) Help() string {
	return "At most 1 GiB, and not more than the status tells. The file appears when its digest is right, and not before; what goes to stdout waits in a temporary file until then. " +
		"No credentials are sent, and no redirect leads to another host."
}

func (c getCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		from, get := source.FromObject(u), command.CommandFor(u.GetNamespace(), "source get "+c.Name)
		switch {
		case from.Artifact == nil:
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source show "+c.Name),
				"%s has no artifact: it is %s", c.Name, from.State)
		case c.File == "-" && command.IsTerminal(e.Out):
			return command.Usagef(get+" --file - | tar tz", "an artifact is no text for a terminal")
		case c.File == "-":
			return fetchFailure(streamArtifact(ctx, e, from, c.Via), from, get)
		}
		file := c.File
		if file == "" {
			file = artifactName(from)
		}
		if err := command.Writable(file, get+" --file"); err != nil {
			return err
		}
		n, err := command.WriteAtomic(file, func(w io.Writer) (int64, error) { return source.Fetch(ctx, from.Artifact, c.Via, w) })
		if err != nil {
			return fetchFailure(err, from, get)
		}
		got := map[string]any{"source": from.Name, "namespace": from.Namespace, "file": file, "bytes": n,
			"revision": from.Artifact.Revision, "digest": from.Artifact.Digest}
		return e.PrintOne(got, file, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s, %s, %s verified\n", file, text.OrDash(from.Artifact.Revision), text.Size(n), from.Artifact.Digest)
		})
	})
}

// streamArtifact writes an artifact to stdout after its digest was verified.
func streamArtifact(ctx context.Context, e *command.Env, from source.Source, via string) error {
	tmp, err := os.CreateTemp("", "limpet-artifact-*")
	if err != nil {
		return fmt.Errorf("make a temporary file: %w", command.Reason(err))
	}
	defer tmp.Close()
	// The file is unlinked at once, so that nothing is left behind.
	if err := os.Remove(tmp.Name()); err != nil {
		return err
	}
	if _, err := source.Fetch(ctx, from.Artifact, via, tmp); err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(e.Out, tmp)
	return err
}

// artifactName is the file name of an artifact: source and commit. It never leaves the directory.
func artifactName(from source.Source) string {
	name := from.Name
	if commit := text.ShortRef(from.Commit()); commit != "" {
		name += "-" + commit
	}
	ending := ".tar.gz"
	if strings.HasSuffix(from.Artifact.URL, ".tgz") {
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
			"source reconcile "+from.Name), "%w; nothing was written", err)
	}
	return command.WithHint(err, command.CommandFor(from.Namespace, "source show "+from.Name))
}
