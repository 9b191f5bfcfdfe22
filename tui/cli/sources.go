package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/sync/text"
)

type sourceCmd struct {
	List sourceListCmd `cmd:"" help:"All sources of Flux: its GitRepositories, and how their controller does with them."`
	Show sourceShowCmd `cmd:"" help:"One source: state, artifact, conditions."`
	Get  sourceGetCmd  `cmd:"" help:"Download the artifact of a source, checked by its digest."`
	Test sourceTestCmd `cmd:"" help:"Ask the Git host of a source from here, with the identity that it names: which revision would it give?"`

	Reconcile sourceReconcileCmd `cmd:"" writes:"" help:"Ask the controller of a source for a look now."`
	Suspend   sourceSuspendCmd   `cmd:"" writes:"" help:"Have the controller leave a source alone, for everybody."`
	Resume    sourceResumeCmd    `cmd:"" writes:"" help:"End a suspension."`
}

type sourceListCmd struct {
	Limit uint `help:"At most so many; 0 = all." default:"0"`
}

func (c sourceListCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	items, err := s.selected(ctx, api.GitRepositories, r.g.listNamespace(), "", nil, c.Limit)
	if err != nil {
		return withoutFlux(err)
	}
	now := time.Now()
	t := table{Columns: []string{"NAME", "STATE", "REVISION", "SIZE", "UPDATED", "NEXT", "MESSAGE"}, Wide: []string{"REF", "URL", "DIGEST", "REASON"}}
	objects := []any{}
	for i := range items {
		u := &items[i]
		from := source.Picture(u)
		a := artifactOf(from)
		size := "-"
		if a.Size > 0 {
			size = text.Size(a.Size)
		}
		t.add(u.GetNamespace(), "gitrepository/"+u.GetName(),
			u.GetName(), sourceWord(from), text.OrDash(snapshot.ShortRevision(a.Revision)), size, since(now, a.Updated), from.Due(now), text.OrDash(sourceMessage(from)),
			from.Ref, text.OrDash(from.URL), text.OrDash(a.Digest), text.OrDash(from.Reason))
		objects = append(objects, source.Shown(u))
	}
	return r.printList(objects, t)
}

// sourceWord is the state of a source; that somebody has suspended it comes first.
func sourceWord(from snapshot.Source) string {
	if from.Suspended {
		return "suspended"
	}
	return from.State
}

// sourceMessage is what a list says beside the state: nothing of one that is in order.
func sourceMessage(from snapshot.Source) string {
	if from.State == snapshot.SourceReady {
		return ""
	}
	message := strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+from.Message, ": "), ": ")
	if r := []rune(message); len(r) > 100 {
		message = string(r[:100]) + "..."
	}
	return message
}

func artifactOf(from snapshot.Source) snapshot.Artifact {
	if from.Artifact == nil {
		return snapshot.Artifact{}
	}
	return *from.Artifact
}

// withoutFlux says of an API that has no sources what that means.
func withoutFlux(err error) error {
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet doctor    # says which API is asked", "this API has no sources: nobody has installed Flux there (%s)", api.GitRepositories.GroupResource())
	}
	return err
}

// findSource reads the source of a name.
func (r *run) findSource(ctx context.Context, s *session, name string) (*unstructured.Unstructured, error) {
	u, err := s.find(ctx, api.GitRepositories, r.g.listNamespace(), name)
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) {
		// An API without the kind answers without the name of an object.
		if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != "" {
			return nil, fail(ExitError, "limpet source list", "source %q not found", name)
		}
		return nil, withoutFlux(err)
	}
	return u, err
}

type sourceShowCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c sourceShowCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := r.findSource(ctx, s, c.Name)
	if err != nil {
		return err
	}
	return r.printOne(source.Shown(u), "gitrepository/"+u.GetName(), func(w io.Writer) { showSource(r, w, source.Picture(u), time.Now()) })
}

func showSource(r *run, w io.Writer, from snapshot.Source, now time.Time) {
	var f fields
	f.add("source", from.Namespace+"/"+from.Name)
	if !from.Deleting.IsZero() {
		f.add("being deleted", "since "+from.Deleting.UTC().Format(time.RFC3339))
	}
	state := from.State
	if !from.Since.IsZero() {
		state += ", for " + since(now, from.Since)
	}
	f.addState("state", from.State, strings.TrimSuffix(state+": "+strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+from.Message, ": "), ": "), ": "))
	if from.Suspended {
		f.add("suspended", "for everybody, until: "+r.next(from.Namespace, "source resume "+from.Name))
	}
	if from.Behind && from.State != snapshot.SourcePending {
		f.add("changed", "its controller has not seen the last change of its spec yet")
	}
	f.add("next look", from.DueText(now))
	switch {
	case from.Waiting && from.Asked.IsZero():
		f.add("asked for", "not looked at yet")
	case from.Waiting:
		f.add("asked for", since(now, from.Asked)+" ago, not looked at yet")
	case !from.Handled.IsZero():
		f.add("asked for", since(now, from.Handled)+" ago, done")
	}
	f.add("url", text.OrDash(from.URL))
	f.add("follows", from.Ref)
	f.add("provider", cmp.Or(from.Provider, "generic"))
	if a := from.Artifact; a == nil {
		f.add("artifact", "none yet")
	} else {
		f.add("revision", text.OrDash(a.Revision))
		f.add("digest", text.OrDash(a.Digest))
		if a.Size > 0 {
			f.add("size", fmt.Sprintf("%s (%d bytes)", text.Size(a.Size), a.Size))
		}
		if !a.Updated.IsZero() {
			f.add("packed", a.Updated.UTC().Format(time.RFC3339)+", "+since(now, a.Updated)+" ago")
		}
		f.add("served at", text.OrDash(a.URL))
	}
	if from.Verify != "" {
		f.add("to be signed", from.Verify+", verified: "+cmp.Or(from.Verified, "nothing yet"))
	}
	for _, in := range from.Includes {
		txt := fmt.Sprintf("%s of %s in %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name))
		if in.Revision != "" {
			txt += ", at " + in.Revision
		}
		f.add("includes", txt)
	}
	for _, c := range from.Conditions {
		key := c.Type
		if c.Unmet() {
			key = "! " + key
		}
		f.add(key, strings.TrimSuffix(c.Status+" "+c.Reason+": "+c.Message, ": "))
		f.mark(c.Status, conditionState(c))
	}
	f.write(w)
}
