// Package commitstatus reports the syncs of a Repository on their commits at its Git host: pending,
// success or failure. Each state of a commit is written once: what was written last is in the state
// file. A host that refuses is logged once, and one that does not answer gets the result at the
// next sync.
package commitstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// patience bounds the calls for one state: a sync does not wait longer for a host.
const patience = 3 * time.Second

// Writer writes the statuses of one sync; Open completes it. A nil Writer writes none.
type Writer struct {
	Hosts *forge.Hosts
	Store *state.Store
	Repo  *unstructured.Unstructured
	Creds *auth.Credentials
	Page  string // of the Repository, "" = none
	Log   *slog.Logger

	note note
}

// note is the last status of a Repository, as the state file has it.
type note struct {
	UID     string              `json:"uid"` // of the Repository
	Commit  string              `json:"commit"`
	State   forge.CommitState   `json:"state,omitempty"`   // written, or refused; "" = none
	Owed    *forge.CommitStatus `json:"owed,omitempty"`    // that the host has not answered
	Refused string              `json:"refused,omitempty"` // why the host takes none, which is logged
}

// name begins with what is reported: a context at the host, or a key in the state file.
func (w *Writer) name(of string) string {
	return of + "/" + w.Repo.GetNamespace() + "/" + w.Repo.GetName()
}

// Open reads what was written last. What cannot be read counts as nothing.
func Open(ctx context.Context, w Writer) *Writer {
	if data, err := w.Store.Fact(ctx, w.name("commit-status")); err == nil {
		_ = json.Unmarshal(data, &w.note)
	}
	if uid := string(w.Repo.GetUID()); w.note.UID != uid {
		w.note = note{UID: uid}
	}
	return &w
}

func (w *Writer) keep(ctx context.Context) {
	data, err := json.Marshal(w.note)
	if err == nil {
		err = w.Store.PutFact(ctx, w.name("commit-status"), data)
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("commit status not kept", "step", "status", "err", err)
	}
}

// Pending reports that the sync of a commit has begun, unless a sync of that commit has begun
// before. What the host has not answered about the commit before gets one more try.
func (w *Writer) Pending(ctx context.Context, commit string) {
	if w == nil || w.note.Commit == commit {
		return
	}
	answers := w.note.Owed == nil || w.write(ctx, *w.note.Owed)
	w.note.Commit = commit
	w.note.State = ""
	w.note.Owed = nil
	if w.keep(ctx); answers {
		w.write(ctx, forge.CommitStatus{State: forge.CommitPending, Text: "sync has begun"})
	}
}

// Done reports how the sync of a commit has ended, in a state of jobs, unless that was written
// before.
func (w *Writer) Done(ctx context.Context, commit, state string, err error, summary []api.JobSummary) {
	if w == nil || commit == "" || ctx.Err() != nil {
		return
	}
	s := describe(state, err, summary)
	switch owed := w.note.Owed; {
	case w.note.Commit != commit:
	case owed == nil && w.note.State == s.State:
		return
	case owed != nil && owed.State == s.State:
		s = *owed // this sync had nothing to do; that one had
	}
	w.note.Commit, w.note.Owed = commit, &s
	w.keep(ctx)
	w.write(ctx, s)
}

// write writes a status of the last commit and keeps the answer. It returns false when there is
// none.
func (w *Writer) write(ctx context.Context, s forge.CommitStatus) (answered bool) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.Context, s.URL = w.name("limpet"), w.Page
	host, err := w.Hosts.Remote(limited, forge.TargetOf(w.Repo), w.Creds)
	if err == nil {
		err = host.SetStatus(limited, w.note.Commit, s)
	}
	if _, named := w.Repo.GetAnnotations()[api.AnnoCommitStatus]; !named && errors.Is(err, forge.ErrNone) {
		err = nil // the setting of the agent includes repositories without a host
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && !forge.Refuses(err):
		w.Log.Info("commit status is written at the next sync: the host does not answer", "step", "status", "err", err)
		return false
	case err != nil && w.note.Refused == "":
		w.Log.Warn("commit status refused by the host", "step", "status", "err", err)
	}
	w.note.State, w.note.Owed, w.note.Refused = s.State, nil, ""
	if err != nil {
		w.note.Refused = text.Redact(text.Line(err.Error(), maxText))
	}
	w.keep(ctx)
	return true
}

// maxText bounds the text of a refusal. Unit: bytes.
const maxText = 500

// Condition returns the condition of the Repository: that the host refuses, or none.
func (w *Writer) Condition() api.Condition {
	c := api.Condition{Type: api.ConditionCommitStatus}
	if w != nil && w.note.Refused != "" {
		c.Status, c.Reason, c.Message = "False", "NotAllowed", w.note.Refused+"; limpet help git-hosts lists the permissions"
	}
	return c
}

// reason returns the kind of an error: readers of the status must not know hosts, addresses and
// paths.
func reason(err error) string {
	kind := string(git.KindOf(err))
	switch {
	case kind != string(git.Unknown):
	case jobs.Transient(err):
		kind = "unavailable"
	default:
		kind = resources.Reason(err)
	}
	return strings.NewReplacer("-", " ", "_", " ").Replace(kind)
}

// describe returns the status for the end of a sync. Warnings are a success that says so.
func describe(state string, err error, summary []api.JobSummary) forge.CommitStatus {
	s := forge.CommitStatus{State: forge.CommitSuccess}
	if state == api.StateError {
		s.State = forge.CommitFailure
	}
	if err != nil {
		s.Text = "sync failed: " + reason(err)
		return s
	}
	s.Text = Counts(summary)
	return s
}

// Counts says in a line what a job has changed, and how many errors and warnings it has.
func Counts(summary []api.JobSummary) string {
	var all api.JobSummary
	reasons := map[string]bool{}
	for _, kind := range summary {
		for _, issue := range kind.ResourceErrors {
			reasons[cmp.Or(issue.Reason, "other")] = true
		}
		all.Error += kind.Error
		all.Create, all.Update, all.Delete, all.Warning = all.Create+kind.Create, all.Update+kind.Update, all.Delete+kind.Delete,
			all.Warning+kind.Warning
	}
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, what)
		}
	}
	add(all.Error, text.Plural(int(all.Error), "error")+" ("+strings.Join(slices.Sorted(maps.Keys(reasons)), ", ")+")")
	add(all.Create, fmt.Sprint(all.Create, " created"))
	add(all.Update, fmt.Sprint(all.Update, " updated"))
	add(all.Delete, fmt.Sprint(all.Delete, " deleted"))
	if len(parts) == 0 {
		parts = append(parts, "no changes")
	}
	add(all.Warning, text.Plural(int(all.Warning), "warning"))
	return strings.Join(parts, ", ")
}
