// Package commitstatus reports the syncs of a Repository on their commits at its Git host: pending, success or failure.
// Each state of a commit is written once: what was written last is in the state file. A host that refuses is logged
// once, and one that does not answer gets the result at the next sync.
package commitstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/jobs"
	"limpet/sync/text"
)

// patience bounds the calls for one state: a sync does not wait longer for a host.
const patience = 3 * time.Second

// Enabled reports whether the syncs of a Repository are reported. all is for those without an annotation.
func Enabled(repo *unstructured.Unstructured, all bool) bool {
	asked, named := repo.GetAnnotations()[api.AnnoCommitStatus]
	return asked == "true" || all && !named
}

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

func (w *Writer) name() string { return w.Repo.GetNamespace() + "/" + w.Repo.GetName() }

func (w *Writer) key() string { return "commit-status/" + w.name() }

// Open reads what was written last. What cannot be read counts as nothing.
func Open(ctx context.Context, w Writer) *Writer {
	data, err := w.Store.Fact(ctx, w.key())
	if err == nil {
		err = json.Unmarshal(data, &w.note)
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		w.Log.Warn("last commit status unknown", "step", "status", "err", err)
	}
	if uid := string(w.Repo.GetUID()); w.note.UID != uid {
		w.note = note{UID: uid}
	}
	return &w
}

func (w *Writer) keep(ctx context.Context) {
	data, err := json.Marshal(w.note)
	if err == nil {
		err = w.Store.PutFact(ctx, w.key(), data)
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("commit status not kept", "step", "status", "err", err)
	}
}

// begin makes a commit the last one, and gives what the host has not answered about the one before one more try. It
// returns false when the host does not answer.
func (w *Writer) begin(ctx context.Context, commit string) (answers bool) {
	answers = true
	if w.note.Commit == commit {
		return answers
	}
	if w.note.Owed != nil {
		answers = w.write(ctx, *w.note.Owed)
	}
	w.note.Commit, w.note.State, w.note.Owed = commit, "", nil
	return answers
}

// Pending reports that the sync of a commit has begun, unless a sync of that commit has begun before.
func (w *Writer) Pending(ctx context.Context, commit string) {
	if w == nil || w.note.Commit == commit {
		return
	}
	answers := w.begin(ctx, commit)
	if w.keep(ctx); answers {
		w.write(ctx, forge.CommitStatus{State: forge.CommitPending, Text: "sync has begun"})
	}
}

// Done reports how the sync of a commit has ended, unless that was written before.
func (w *Writer) Done(ctx context.Context, commit string, out jobs.Outcome, summary []api.JobSummary) {
	if w == nil || commit == "" || ctx.Err() != nil {
		return
	}
	s := describe(out, summary)
	switch owed := w.note.Owed; {
	case w.note.Commit != commit:
	case owed == nil && w.note.State == s.State:
		return
	case owed != nil && owed.State == s.State:
		s = *owed // this sync had nothing to do; that one had
	}
	w.begin(ctx, commit)
	w.note.Owed = &s
	w.keep(ctx)
	w.write(ctx, s)
}

// write writes a status of the last commit and keeps the answer. It returns false when there is none.
func (w *Writer) write(ctx context.Context, s forge.CommitStatus) (answered bool) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.Context, s.URL = "limpet/"+w.name(), w.Page
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

// maxText bounds the text of a refusal and of a failure. Unit: bytes.
const maxText = 500

// Condition returns the condition of the Repository: that the host refuses, or none.
func (w *Writer) Condition() api.Condition {
	c := api.Condition{Type: api.ConditionCommitStatus}
	if w != nil && w.note.Refused != "" {
		c.Status, c.Reason, c.Message = "False", "NotAllowed", w.note.Refused
	}
	return c
}

// describe returns the status for the end of a sync. Warnings are a success that says so.
func describe(out jobs.Outcome, summary []api.JobSummary) forge.CommitStatus {
	if out.State == api.StateError {
		reasons := strings.Join(out.Errors, "; ")
		return forge.CommitStatus{State: forge.CommitFailure, Text: text.Redact(text.Line(cmp.Or(reasons, out.Message), maxText))}
	}
	var created, updated, deleted, warnings int64
	for _, kind := range summary {
		created, updated, deleted, warnings = created+kind.Create, updated+kind.Update, deleted+kind.Delete, warnings+kind.Warning
	}
	var parts []string
	for _, count := range []struct {
		n    int64
		what string
	}{{created, "created"}, {updated, "updated"}, {deleted, "deleted"}} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count.n, count.what))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no changes")
	}
	if warnings > 0 {
		parts = append(parts, text.Plural(int(warnings), "warning"))
	}
	return forge.CommitStatus{State: forge.CommitSuccess, Text: strings.Join(parts, ", ")}
}
