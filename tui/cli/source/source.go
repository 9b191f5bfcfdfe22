// Package source has the commands of the sources of Flux.
package source

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/repo"
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
		return e.PrintObjects(ctx, s, api.GitRepositories, nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			from := source.FromObject(u)
			a := artifactOf(from)
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
	message := reasonText(from)
	if r := []rune(message); len(r) > 100 {
		message = string(r[:100]) + "..."
	}
	return message
}

func artifactOf(from source.Source) source.Artifact {
	if from.Artifact == nil {
		return source.Artifact{}
	}
	return *from.Artifact
}

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the source; with --file the one to take of several."`
	File string `short:"f" help:"Test the source of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (testCmd) Help() string {
	return "It asks from here what the source asks for, with the identity that it names: the rules, the credentials and their provider, the keys of signers, the remote, the revision. Nothing is written or fetched, " +
		"and its controller is not asked. A daemon that holds the state file is asked, because the credentials are there; else it is done from here. Secrets are those of the API and of --credentials-dir, also with --file."
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	return repo.Test(ctx, e, "source test", api.GitRepositories, "GitRepository", c.Name, c.File)
}

// onSource calls f with the source of a name.
func onSource(ctx context.Context, e *command.Env, name string, f func(*command.Session, *unstructured.Unstructured) error) error {
	return e.WithObject(ctx, command.Needs{API: true}, api.GitRepositories, name, f)
}

type showCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return onSource(ctx, e, c.Name, func(_ *command.Session, u *unstructured.Unstructured) error {
		return e.PrintOne(source.Redacted(u), "gitrepository/"+u.GetName(),
			func(w io.Writer) { showSource(e, w, source.FromObject(u), time.Now()) })
	})
}

// reasonText returns the reason and the message of a source.
func reasonText(from source.Source) string {
	return strings.TrimPrefix(strings.TrimSuffix(from.Reason+": "+from.Message, ": "), ": ")
}

func showSource(e *command.Env, w io.Writer, from source.Source, now time.Time) {
	var f command.Fields
	f.Add("source", from.Namespace+"/"+from.Name)
	f.AddTime("being deleted", from.Deleting)
	state := from.State
	if !from.Since.IsZero() {
		state += ", for " + command.Since(now, from.Since)
	}
	f.AddState("state", from.State, strings.TrimSuffix(state+": "+reasonText(from), ": "))
	if from.Suspended {
		f.Add("suspended", "for all controllers, until: "+e.CommandFor(from.Namespace, "source resume "+from.Name))
	}
	if from.Behind && from.State != source.Pending {
		f.Add("changed", "its controller has not seen the last change of its spec yet")
	}
	f.Add("next reconcile", from.DueText(now))
	switch {
	case from.Waiting:
		f.Add("requested", strings.TrimPrefix(command.Since(now, from.Asked)+" ago, ", "- ago, ")+"not reconciled yet")
	case !from.Handled.IsZero():
		f.Add("requested", command.Since(now, from.Handled)+" ago, done")
	}
	f.Add("url", text.OrDash(from.URL))
	f.Add("follows", from.Ref)
	f.Add("provider", cmp.Or(from.Provider, "generic"))
	if a := from.Artifact; a == nil {
		f.Add("artifact", "none yet")
	} else {
		f.Add("revision", text.OrDash(a.Revision))
		f.Add("digest", text.OrDash(a.Digest))
		if a.Size > 0 {
			f.Add("size", fmt.Sprintf("%s (%d bytes)", text.Size(a.Size), a.Size))
		}
		f.AddTime("packed", a.Updated)
		f.Add("served at", text.OrDash(a.URL))
	}
	if from.Verify != "" {
		f.Add("to be signed", from.Verify+", verified: "+cmp.Or(from.Verified, "nothing yet"))
	}
	for _, in := range from.Includes {
		txt := fmt.Sprintf("%s of %s in %s", cmp.Or(in.From, "all"), in.Name, cmp.Or(in.To, in.Name))
		if in.Revision != "" {
			txt += ", at " + in.Revision
		}
		f.Add("includes", txt)
	}
	for _, c := range from.Conditions {
		key := c.Type
		if c.Unmet() {
			key = "! " + key
		}
		f.Add(key, strings.TrimSuffix(c.Status+" "+c.Reason+": "+c.Message, ": "))
		f.Mark(c.Status, command.ConditionState(c))
	}
	f.Write(w)
}
