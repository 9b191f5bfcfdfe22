package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
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

// maxFetches is how often an artifact with another digest is fetched: its controller may pack the same commit anew
// under the same address.
const maxFetches = 3

func (c getCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		from := source.FromObject(u)
		if from.Artifact == nil {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source show "+c.Name),
				"%s has no artifact: it is %s", c.Name, from.State)
		}
		file := c.File
		if file == "" {
			file = artifactName(from)
		}
		if file == "-" {
			return streamArtifact(ctx, e, s, from, c.Via)
		}
		if err := command.Writable(file, command.CommandFor(u.GetNamespace(), "source get "+c.Name)+" --file"); err != nil {
			return err
		}
		var n int64
		from, err := fetchArtifact(ctx, s, e, from, func(a *source.Artifact) (err error) {
			n, err = command.WriteAtomic(file, func(w io.Writer) (int64, error) { return source.Fetch(ctx, a, c.Via, w) })
			return err
		})
		if err != nil {
			return fetchFailure(err, from, c.Via)
		}
		got := map[string]any{"source": from.Name, "namespace": from.Namespace, "file": file, "bytes": n,
			"revision": from.Artifact.Revision, "digest": from.Artifact.Digest}
		return e.PrintOne(got, file, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s, %s, %s verified\n", file, text.OrDash(from.Artifact.Revision), text.Size(n), from.Artifact.Digest)
		})
	})
}

// fetchArtifact fetches an artifact. When its digest differs, the status is read again: it may have been
// packed anew.
func fetchArtifact(ctx context.Context, s *command.Session, e *command.Env, from source.Source,
	fetch func(*source.Artifact) error) (source.Source, error) {
	for n := 1; ; n++ {
		err := fetch(from.Artifact)
		var other *source.DigestError
		if err == nil || !errors.As(err, &other) || n == maxFetches {
			return from, err
		}
		u, found := findSource(ctx, e, s, from.Name)
		if found != nil {
			return from, err
		}
		now := source.FromObject(u)
		if now.UID != from.UID || now.Artifact == nil || *now.Artifact == *from.Artifact {
			return from, err
		}
		from = now
	}
}

// streamArtifact writes an artifact to stdout after its digest was verified.
func streamArtifact(ctx context.Context, e *command.Env, s *command.Session, from source.Source, via string) error {
	if command.IsTerminal(e.Out) {
		return command.Usagef(command.CommandFor(from.Namespace, "source get "+from.Name+" --file -")+" | tar tz",
			"an artifact is no text for a terminal")
	}
	tmp, err := os.CreateTemp("", "limpet-artifact-*")
	if err != nil {
		return command.Errorf(command.ExitError, command.CommandFor(from.Namespace, "source get "+from.Name+" --file FILE"),
			"make a temporary file: %w", command.Reason(err))
	}
	defer tmp.Close()
	// The file is unlinked at once, so that nothing is left behind.
	if err := os.Remove(tmp.Name()); err != nil {
		return err
	}
	from, err = fetchArtifact(ctx, s, e, from, func(a *source.Artifact) error {
		if err := tmp.Truncate(0); err != nil {
			return err
		}
		if _, err := tmp.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := source.Fetch(ctx, a, via, tmp)
		return err
	})
	if err != nil {
		return fetchFailure(err, from, via)
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(e.Out, tmp)
	return err
}

// artifactName is the file name of an artifact: source and commit. It never leaves the directory.
func artifactName(from source.Source) string {
	ending := ".tar.gz"
	if base := path.Base(from.Artifact.URL); strings.HasSuffix(base, ".tgz") {
		ending = ".tgz"
	}
	name := from.Name
	if commit := text.ShortRef(from.Commit()); commit != "" {
		name += "-" + commit
	}
	return filepath.Base(text.Clean(name)) + ending
}

// fetchFailure adds the exit code and the next command to a failed download.
func fetchFailure(err error, from source.Source, via string) error {
	var (
		away  *source.UnreachableError
		other *source.DigestError
		file  *command.TargetError
	)
	get := command.CommandFor(from.Namespace, "source get "+from.Name)
	switch {
	case errors.As(err, &file):
		return err
	case errors.As(err, &away) && via != "":
		return command.Errorf(command.ExitUnreachable, get+" --via URL    # is the port still forwarded?", "%w", err)
	case errors.As(err, &away):
		return command.Errorf(command.ExitUnreachable, forwardHint(from, get), "%w", err)
	case errors.As(err, &other):
		return command.Errorf(command.ExitError, get+"    # once more; else: "+command.CommandFor(from.Namespace,
			"source reconcile "+from.Name), "%w; nothing was written", err)
	}
	return command.WithHint(err, command.CommandFor(from.Namespace, "source show "+from.Name))
}

// forwardHint returns the commands that reach a server inside a cluster. The host names its Service, as in
// source-controller.flux-system.svc.cluster.local.
func forwardHint(from source.Source, get string) string {
	u, err := url.Parse(from.Artifact.URL)
	if err != nil {
		return get + " --via URL"
	}
	service, rest, _ := strings.Cut(strings.TrimSuffix(u.Hostname(), "."), ".")
	namespace, rest, _ := strings.Cut(rest, ".")
	if service == "" || namespace == "" || rest != "" && rest != "svc" && !strings.HasPrefix(rest, "svc.") {
		return get + " --via URL    # another address of the same server"
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
	return fmt.Sprintf("kubectl -n %s port-forward svc/%s 8080:%s    # in another terminal, then: %s --via http://127.0.0.1:8080",
		namespace, service, port, get)
}
