// Package source has the commands of the sources of Flux.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/repo"
	"limpet/tui/screen"
)

// Command has the commands of 'limpet source'.
type Command struct {
	List listCmd `cmd:"" help:"All sources of Flux: its GitRepositories and their state."`
	Show showCmd `cmd:"" help:"One source: state, artifact, conditions."`
	Get  getCmd  `cmd:"" help:"Download the artifact of a source, checked by its digest."`
	Test testCmd `cmd:"" help:"Test a source from here, with its own identity: which revision does its Git host return?"`

	Reconcile reconcileCmd `cmd:"" writes:"" help:"Request a reconciliation of a source now."`
	Suspend   suspendCmd   `cmd:"" writes:"" help:"Suspend a source for everybody."`
	Resume    resumeCmd    `cmd:"" writes:"" help:"End a suspension."`
}

type listCmd struct {
	Limit uint `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "STATE", "REVISION", "SIZE", "UPDATED", "NEXT", "MESSAGE"},
		Wide: []string{"REF", "URL", "DIGEST", "REASON"}}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		return e.PrintObjects(ctx, s, api.GitRepositories, "", nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			from := source.FromObject(u)
			a := screen.ArtifactOf(from)
			state, size := from.State, "-"
			if from.Suspended {
				state = "suspended"
			}
			if a.Size > 0 {
				size = text.Size(a.Size)
			}
			source.Redacted(u)
			return []string{u.GetName(), state, text.OrDash(source.ShortRevision(a.Revision)), size, command.Since(now, a.Updated),
				from.Due(now), text.OrDash(SourceMessage(from)), from.Ref, text.OrDash(from.URL), text.OrDash(a.Digest), text.OrDash(from.Reason)}, nil
		})
	})
}

// SourceMessage is the message of a source in a list: none for one that is ready.
func SourceMessage(from source.Source) string {
	if from.State == source.Ready {
		return ""
	}
	return displaywidth.TruncateString(screen.SourceProblem(from), 100, "...")
}

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the source; with --file the one to take of several."`
	File string `short:"f" help:"Test the source of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (testCmd) Help() string {
	return "Checks spec, credentials, signing keys, remote and revision with the identity of the source. Nothing is written or " +
		"fetched. A daemon that holds the state file does it, because it has the credentials. Secrets come from the API and " +
		"--credentials-dir, also with --file."
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	return repo.Test(ctx, e, "source test", api.GitRepositories, "GitRepository", c.Name, c.File)
}

// named is the argument of the commands of one source.
type named struct {
	Name string `arg:"" help:"Name of the source."`
}

// onSource calls f with the source of a name.
func onSource(ctx context.Context, e *command.Env, name string, f func(*command.Session, *unstructured.Unstructured) error) error {
	return e.WithObject(ctx, command.Needs{API: true}, api.GitRepositories, name, f)
}

type showCmd struct{ named }

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		return e.PrintOne(source.Redacted(u), "gitrepository/"+u.GetName(),
			func(w io.Writer) {
				showSource(w, source.FromObject(u), e.CommandFor(u.GetNamespace(), "source resume "+text.ShellWord(c.Name)), time.Now())
			})
	})
}

func showSource(w io.Writer, from source.Source, resume string, now time.Time) {
	var f command.Fields
	f.Add("source", from.Namespace+"/"+from.Name)
	for _, fact := range screen.SourceFacts(from, from.State, "", from.DueText(now), resume, now) {
		f.AddState(fact.Name, map[bool]string{true: from.State}[fact.Name == "state"], fact.Text)
	}
	for _, c := range from.Conditions {
		key := c.Type
		if c.Unmet() {
			key = "! " + key
		}
		f.AddState(key, command.ConditionState(c), strings.TrimSuffix(c.Status+" "+c.Reason+": "+c.Message, ": "))
	}
	f.Write(w)
}

type getCmd struct {
	named
	File string `help:"Where to write it; - is stdout. Default: NAME-COMMIT.tar.gz in this directory." placeholder:"FILE"`
	Via  string `help:"Scheme and host to use instead of the artifact's: a forwarded port of source-controller." placeholder:"URL"`
}

// Help is the long help of the command.
func (getCmd) Help() string {
	return "At most 1 GiB, and not more than the status says. The digest is verified before the file or stdout is written. " +
		"No credentials are sent, and redirects to another host are refused."
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
		return e.PrintDone(got, file, "%s: %s, %s, %s verified", file, text.OrDash(from.Artifact.Revision), text.Size(n),
			from.Artifact.Digest)
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

const (
	// reconcileTimeout bounds --wait without --timeout. Source: flux.
	reconcileTimeout = 5 * time.Minute
	// reconcileInterval is the polling interval meanwhile.
	reconcileInterval = time.Second
)

type reconcileCmd struct {
	named
	Wait bool `help:"Wait until its controller has reconciled it, at most 5m or --timeout."`
}

// Help is the long help of the command.
func (reconcileCmd) Help() string {
	return "Writes the annotation reconcile.fluxcd.io/requestedAt, as flux does. With --wait: exit code 1 when the source is not ready."
}

func (c reconcileCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		if from := source.FromObject(u); from.Suspended {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source resume "+c.Name),
				"%s is suspended: its controller would not reconcile it", c.Name)
		}
		asked, err := source.Reconcile(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()))
		if err != nil {
			return withMissingRight(err)
		}
		txt := "requested"
		if c.Wait {
			e.Notef("waiting for the controller of %s", c.Name)
			if asked, err = awaitReconcile(ctx, s, asked); err != nil {
				return err
			}
			from := source.FromObject(asked)
			if from.State != source.Ready {
				return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source show "+c.Name), "%s is %s: %s",
					c.Name, from.State, SourceMessage(from))
			}
			txt = "done: " + text.OrDash(screen.ArtifactOf(from).Revision)
		}
		return e.PrintDone(source.Redacted(asked), "gitrepository/"+u.GetName(), "gitrepository/%s reconciliation %s", u.GetName(), txt)
	})
}

// awaitReconcile waits until the controller has handled the request and is done.
func awaitReconcile(ctx context.Context, s *command.Session, asked *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	request, name := source.Asked(asked), asked.GetName()
	for end := time.Now().Add(reconcileTimeout); ctx.Err() == nil; command.Sleep(ctx, reconcileInterval) {
		u, err := s.Client.Resource(api.GitRepositories).Namespace(asked.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && u.GetUID() != asked.GetUID():
			return nil, command.Errorf(command.ExitError, "limpet source list", "%s is gone", name)
		case err != nil && !kube.Retryable(err):
			return nil, err
		case err == nil && source.Handled(u, request):
			if from := source.FromObject(u); from.State != source.Working && from.State != source.Pending {
				u.SetManagedFields(nil)
				return u, nil
			}
		}
		if time.Now().After(end) {
			return nil, command.Errorf(command.ExitTimeout,
				command.CommandFor(asked.GetNamespace(), "source show "+name)+"    # is source-controller running?",
				"the controller of %s has not reconciled it for %s; the request stays", name, reconcileTimeout)
		}
	}
	return nil, context.Cause(ctx)
}

type suspendCmd struct{ named }

func (c suspendCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.Name, true)
}

type resumeCmd struct{ named }

func (c resumeCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.Name, false)
}

func suspendSource(ctx context.Context, e *command.Env, name string, on bool) error {
	return onSource(ctx, e, name, func(s *command.Session, u *unstructured.Unstructured) (err error) {
		txt := "resumed"
		if on {
			txt = "suspended for all controllers, until: " + e.CommandFor(u.GetNamespace(), "source resume "+name)
		}
		if source.FromObject(u).Suspended == on {
			txt = map[bool]string{true: "was suspended already", false: "was not suspended"}[on]
		} else if u, err = source.Suspend(ctx, s.Client, u.GetNamespace(), u.GetName(), string(u.GetUID()), on); err != nil {
			return withMissingRight(err)
		}
		return e.PrintDone(source.Redacted(u), "gitrepository/"+name, "gitrepository/%s %s", name, txt)
	})
}

// withMissingRight adds the missing right to a refused write.
func withMissingRight(err error) error {
	if apierrors.IsForbidden(err) {
		return command.WithHint(err, "give the token the right to patch gitrepositories."+api.GitRepositories.Group)
	}
	return err
}
