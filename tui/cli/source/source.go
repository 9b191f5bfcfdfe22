// Package source has the commands of sources of Flux.
package source

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
	"limpet/tui/cli/repo"
	"limpet/tui/screen"
)

// Command has the commands of 'limpet source'.
type Command struct {
	Create createCmd `cmd:"" writes:"" help:"Create a source: a GitRepository, or one of another --kind."`

	List listCmd `cmd:"" help:"All sources and their state."`
	Show showCmd `cmd:"" help:"One source: state, artifact, stored revisions, conditions."`
	Get  getCmd  `cmd:"" help:"Write an artifact of a source to a file, checked by its digest."`
	Diff diffCmd `cmd:"" help:"What differs between two revisions of a source."`
	Test testCmd `cmd:"" help:"Test a source from here, with its own identity: which revision does its host return?"`

	Export exportCmd `cmd:"" help:"Write the commit of the artifact to a file: a Git bundle."`
	Import importCmd `cmd:"" writes:"" help:"Put a Git bundle into the directory of a source with a bundle:// URL."`

	Reconcile reconcileCmd `cmd:"" writes:"" help:"Request a reconciliation of a source now."`
	Suspend   suspendCmd   `cmd:"" writes:"" help:"Suspend a source for everybody."`
	Resume    resumeCmd    `cmd:"" writes:"" help:"End a suspension."`
	Delete    deleteCmd    `cmd:"" writes:"" help:"Delete a source and its artifacts."`
}

type listCmd struct {
	Kind  string `help:"List this kind only: gitrepository, ocirepository, bucket, helmrepository, helmchart, externalartifact."`
	Limit uint   `help:"Maximum number; 0 = all." default:"0"`
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	var kinds []command.Resource
	for _, k := range api.SourceKinds() {
		kinds = append(kinds, k.Resource())
	}
	if c.Kind != "" {
		k, err := ofKind{c.Kind}.kind()
		if err != nil {
			return err
		}
		kinds = []command.Resource{k.Resource()}
	}
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "KIND", "STATE", "REVISION", "SIZE", "UPDATED", "NEXT", "MESSAGE"},
		Wide: []string{"REF", "URL", "DIGEST", "REASON"}}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		return e.PrintObjects(ctx, s, kinds, "", nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
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
			return []string{u.GetName(), kindOf(u).Singular, state, text.OrDash(source.ShortRevision(a.Revision)), size,
				command.Since(now, a.Updated), from.Due(now), text.OrDash(SourceMessage(from)),
				from.Ref, text.OrDash(from.URL), text.OrDash(a.Digest), text.OrDash(from.Reason)}, nil
		})
	})
}

// SourceMessage is the message of a source in a list: none for one that is ready.
func SourceMessage(from source.Source) string {
	switch {
	case !from.Deleting.IsZero():
		return "is being deleted"
	case from.State == source.Ready:
		return ""
	}
	return displaywidth.TruncateString(screen.SourceProblem(from), 100, "...")
}

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the source; with --file the one to take of several."`
	ofKind
	File string `short:"f" help:"Test the source of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	k, name, err := named{c.Name, c.ofKind}.find(e)
	if err != nil {
		return err
	}
	return repo.Test(ctx, e, k.Resource(), name, c.File)
}

type (
	exportCmd struct{ repo.ExportCmd }
	importCmd struct{ repo.ImportCmd }
)

func (c exportCmd) Run(ctx context.Context, e *command.Env) error {
	c.Name = inNamespace(e, c.Name)
	return c.Export(ctx, e, api.GitRepositories)
}

func (c importCmd) Run(ctx context.Context, e *command.Env) error {
	return c.Import(ctx, e, api.GitRepositories)
}

// ofKind is the flag of the commands of sources of several kinds.
type ofKind struct {
	Kind string `help:"Kind of the source: gitrepository, ocirepository, bucket, helmrepository, helmchart." default:"gitrepository"`
}

// kind returns the row of the kind that was named.
func (o ofKind) kind() (api.Kind, error) {
	k, ok := api.SourceKind(o.Kind)
	if !ok {
		return k, command.Usagef("limpet source list --kind ocirepository", "--kind %q is no kind of sources", o.Kind)
	}
	return k, nil
}

// named is the argument of the commands of one source.
type named struct {
	Name string `arg:"" help:"Name of the source."`
	ofKind
}

// follows refuses a change of an ExternalArtifact that has to be made to its source.
func follows(u *unstructured.Unstructured) error {
	if u.GetKind() != "ExternalArtifact" {
		return nil
	}
	return command.Usagef(command.CommandFor(u.GetNamespace(), "source show "+text.ShellWord(u.GetName())+flag(u)),
		"an ExternalArtifact follows %s: ask that", source.FromObject(u).URL)
}

// title names a source for people.
func title(u *unstructured.Unstructured) string { return kindOf(u).Singular + "/" + u.GetName() }

// flag returns the flag of the kind of a source, for the next command; "" for the default.
func flag(u *unstructured.Unstructured) string { return (&source.Source{Kind: u.GetKind()}).Flag() }

// kindOf returns the kind of a source.
func kindOf(u *unstructured.Unstructured) api.Kind {
	k, _ := api.SourceKind(u.GetKind())
	return k
}

// find returns the kind of the source and its name. The kind may stand before the name: helmchart/web.
func (n named) find(e *command.Env) (api.Kind, string, error) {
	if kind, name, ok := strings.Cut(n.Name, "/"); ok {
		if k, ok := api.SourceKind(kind); ok {
			return k, name, nil
		}
	}
	k, err := n.kind()
	return k, inNamespace(e, n.Name), err
}

// withSource calls f with the source of a name.
func withSource(ctx context.Context, e *command.Env, n command.Needs, of named,
	f func(*command.Session, *unstructured.Unstructured) error) error {
	k, name, err := of.find(e)
	if err != nil {
		return err
	}
	return e.WithObject(ctx, n, k.Resource(), name, f)
}

// inNamespace returns a name without the namespace that may stand before it, behind a slash, and
// selects that.
func inNamespace(e *command.Env, name string) string {
	if namespace, after, ok := strings.Cut(name, "/"); ok {
		e.Flags.Namespace, name = namespace, after
	}
	return name
}

type showCmd struct {
	named
	Revisions bool `help:"List the revisions whose artifacts this host has, the newest first."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return withSource(ctx, e, command.Needs{API: true}, c.named, func(s *command.Session, u *unstructured.Unstructured) error {
		stored, err := storedOf(ctx, s, u)
		if err != nil {
			return err
		}
		now, t := time.Now(), command.Table{Columns: []string{"REVISION", "STORED", "SIZE", "FILES", "SUBJECT"},
			Wide: []string{"COMMIT", "DIGEST", "PROGRAM"}}
		for _, a := range stored {
			t.Add(u.GetNamespace(), a.Revision, source.ShortRevision(a.Revision), a.Updated.UTC().Format(time.RFC3339), text.Size(a.Size),
				strconv.Itoa(a.Files), text.OrDash(text.Line(a.Subject, 60)), artifact.Commit(a.Revision), a.Digest, text.OrDash(a.Exec))
		}
		if c.Revisions {
			return e.PrintList(command.List(stored), t)
		}
		from := source.FromObject(u)
		controller, err := reconcilerOf(ctx, s, &from)
		if err != nil {
			return err
		}
		return e.PrintOne(source.Redacted(u), title(u), func(w io.Writer) {
			resume := e.CommandFor(u.GetNamespace(), "source resume "+text.ShellWord(u.GetName())+flag(u))
			showSource(w, from, controller, resume, now)
			if len(stored) > 0 {
				fmt.Fprintln(w)
				t.Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
			}
		})
	})
}

// reconcilerOf returns what reconciles sources, "" where it is not known, and sets when the agent
// of this host does.
func reconcilerOf(ctx context.Context, s *command.Session, from *source.Source) (string, error) {
	if s.Daemon == nil {
		return map[bool]string{true: "none: no agent runs on this state file"}[s.Embedded != nil], nil
	}
	snap, err := s.Daemon.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	for _, row := range snap.Sources {
		if row.UID == from.UID {
			from.Next = row.Next
		}
	}
	return screen.SourceController(snap), nil
}

func showSource(w io.Writer, from source.Source, controller, resume string, now time.Time) {
	var f command.Fields
	f.Add("source", from.Namespace+"/"+from.Name)
	for _, fact := range screen.SourceFacts(from, from.State, "", from.DueText(now), controller, resume, now) {
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

const (
	// reconcileTimeout bounds --wait without --timeout. Source: flux.
	reconcileTimeout = 5 * time.Minute
	// minPoll and maxPoll bound the polling interval meanwhile, which is a tenth of the time that has
	// passed.
	minPoll, maxPoll = 20 * time.Millisecond, time.Second
)

type reconcileCmd struct {
	named
	Wait bool `help:"Wait until its controller has reconciled it, at most 5m or --timeout."`
}

func (c reconcileCmd) Run(ctx context.Context, e *command.Env) error {
	return withSource(ctx, e, command.Needs{API: true}, c.named, func(s *command.Session, u *unstructured.Unstructured) error {
		name := u.GetName()
		if err := follows(u); err != nil {
			return err
		}
		if from := source.FromObject(u); from.Suspended {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source resume "+name+flag(u)),
				"%s is suspended: its controller would not reconcile it", name)
		}
		if c.Wait {
			if err := e.NeedsAgent(s, "reconcile the source"); err != nil {
				return err
			}
		}
		asked, err := source.Reconcile(ctx, s.Client, kindOf(u), u.GetNamespace(), name, string(u.GetUID()))
		if err != nil {
			return withMissingRight(err, kindOf(u))
		}
		if !c.Wait {
			return printAsked(e, s, asked, "reconciliation requested")
		}
		return printReady(ctx, e, s, asked, "reconciliation done")
	})
}

// printAsked prints a source that its controller has to reconcile yet.
func printAsked(e *command.Env, s *command.Session, u *unstructured.Unstructured, done string) error {
	e.NoteAgent(s)
	return e.PrintDone(source.Redacted(u), title(u), "%s %s", title(u), done)
}

// printReady prints a source once its controller has handled the last request and the last change,
// and is done. A source that is not ready then is an error.
func printReady(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured, done string) error {
	e.Notef("waiting for the controller of %s", u.GetName())
	u, err := awaitReconcile(ctx, s, u)
	if err != nil {
		return err
	}
	name, from := u.GetName(), source.FromObject(u)
	if from.State != source.Ready {
		return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "source show "+name+flag(u)),
			"%s is not ready: %s", name, screen.SourceProblem(from))
	}
	return e.PrintDone(source.Redacted(u), title(u), "%s %s: %s", title(u), done,
		text.OrDash(screen.ArtifactOf(from).Revision))
}

// awaitReconcile waits until the controller has handled the request and is done.
func awaitReconcile(ctx context.Context, s *command.Session, asked *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	request, name := source.Asked(asked), asked.GetName()
	for began := time.Now(); ctx.Err() == nil; command.Sleep(ctx, min(max(time.Since(began)/10, minPoll), maxPoll)) {
		u, err := s.Client.Resource(kindOf(asked).Resource()).Namespace(asked.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
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
		if time.Since(began) > reconcileTimeout {
			return nil, command.Errorf(command.ExitTimeout,
				command.CommandFor(asked.GetNamespace(), "source show "+name+flag(asked))+"    # who reconciles it?",
				"the controller of %s has not reconciled it for %s; the request stays", name, reconcileTimeout)
		}
	}
	return nil, context.Cause(ctx)
}

type suspendCmd struct{ named }

func (c suspendCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.named, true)
}

type resumeCmd struct{ named }

func (c resumeCmd) Run(ctx context.Context, e *command.Env) error {
	return suspendSource(ctx, e, c.named, false)
}

func suspendSource(ctx context.Context, e *command.Env, of named, on bool) error {
	return withSource(ctx, e, command.Needs{API: true}, of, func(s *command.Session, u *unstructured.Unstructured) (err error) {
		txt, name := "resumed", u.GetName()
		if err := follows(u); err != nil {
			return err
		}
		if on {
			txt = "suspended for all controllers, until: " + e.CommandFor(u.GetNamespace(), "source resume "+name+flag(u))
		}
		if source.FromObject(u).Suspended == on {
			txt = map[bool]string{true: "was suspended already", false: "was not suspended"}[on]
		} else if u, err = source.Suspend(ctx, s.Client, kindOf(u), u.GetNamespace(), name, string(u.GetUID()), on); err != nil {
			return withMissingRight(err, kindOf(u))
		}
		return e.PrintDone(source.Redacted(u), title(u), "%s %s", title(u), txt)
	})
}

type deleteCmd struct {
	named
	Force bool `help:"Delete it even if a file of --manifests declares it."`
}

func (c deleteCmd) Run(ctx context.Context, e *command.Env) error {
	k, name, err := c.find(e)
	if err != nil {
		return err
	}
	return object.DeleteCommand{Kind: k.Singular, Name: name, Force: c.Force}.Run(ctx, e)
}

// withMissingRight adds the missing right to a refused write.
func withMissingRight(err error, k api.Kind) error {
	if apierrors.IsForbidden(err) {
		return command.WithHint(err, "give the token the right to patch "+k.Plural+"."+k.Group)
	}
	return err
}
