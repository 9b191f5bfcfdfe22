// Package worker does the work of jobs. A worker knows the rules of Grafana for its action and
// nothing of claims and leases: it gets a task, works until it is done or its context ends, and
// reports what it did.
//
//	pull.go      the run of a pull: resolve, fetch, verify, compare, write, status
//	checkout     the commit of a Repository: its remote, its signatures, its files
//	pulltree.go  the tree of the commit, as resources
//	pullapply.go the plan of package resources and its application; pullsink.go a directory
//	unread.go    the files that it could not use
//	write.go     the actions that write to Git: selection.go (delete, move), export.go (push),
//	             migrate.go, fixfolders.go; package commit makes the commit and pushes it
//	pullrequest.go the review of a pull request; package pr renders its comment
//	preview.go   the plan of a pull, without its writes
//	drift.go     what a server has else than Git; package drift compares
//	orphans.go   what a deleted Repository has left
package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/commitstatus"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// maxErrors is the number of errors after which a pull stops. Source: Grafana.
const maxErrors = 20

// PullOptions configure a Pull.
type PullOptions struct {
	Client *kube.Client // of repositories and jobs
	// Dashboards and Folders are the servers of those groups; nil means Client.
	Dashboards, Folders *kube.Client
	Git                 checkout.Git
	Credentials         auth.Source       // nil = none
	Signers             *checkout.Signers // the signature policies and their keys; nil = no keys
	Store               *state.Store
	// SinkPrefixes are the directories under which a Repository may have its tree written instead of
	// the API.
	SinkPrefixes []string
	SinkPrograms []string        // that AnnoSinkExec may run
	Kinds        resources.Kinds // that files may hold; nil = those of DefaultKinds
	// LocalDirs are the directories under which a Repository of type local may be.
	LocalDirs []string
	// MaxIncremental is the maximum number of changes of an incremental pull; 0 = no limit.
	MaxIncremental int
	// Parallel is the number of concurrent writes of dashboards; 0 means 10.
	Parallel int
	// AllowInsecure lets credentials travel over plain http.
	AllowInsecure bool
	Hosts         *forge.Hosts // for commit statuses and comments
	CommitStatus  bool         // of Repositories without the annotation as well
	GrafanaURL    string       // base of its pages; "" = the API is not Grafana's
	Logger        *slog.Logger // nil = slog.Default()
}

// Pull makes the dashboards and folders of a Repository equal to its branch, or to the tag or
// commit that it names instead.
type Pull struct {
	o        PullOptions
	source   checkout.Source
	programs sink.Programs
}

var _ jobs.Worker = (*Pull)(nil)

// NewPull returns the worker of pull jobs.
func NewPull(o PullOptions) *Pull {
	if o.Dashboards == nil {
		o.Dashboards = o.Client
	}
	if o.Folders == nil {
		o.Folders = o.Client
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Kinds == nil {
		o.Kinds, _ = resources.ParseKinds(nil) // a constant
	}
	source := checkout.Source{Git: o.Git, Credentials: o.Credentials, Signers: o.Signers, AllowInsecure: o.AllowInsecure,
		Now: func() time.Time { return o.Client.Now() }}
	return &Pull{o: o, source: source}
}

// server returns the servers of the objects of a namespace.
func (p *Pull) server(ctx context.Context, namespace string, last bool) (*target.API, error) {
	servers := target.Servers{Dashboards: p.o.Dashboards, Folders: p.o.Folders, Others: p.o.Client}
	return target.Open(ctx, servers, p.o.Kinds, namespace, last)
}

// Action implements jobs.Worker.
func (p *Pull) Action() string { return "pull" }

// Ready implements jobs.Worker. It returns an error for a job that only another agent may be able
// to run: this one has no credentials for the repository, cannot read that type of repository, or
// may not write to its directory. An invalid job is ready: it is claimed and ends with an error.
func (p *Pull) Ready(ctx context.Context, t jobs.Task) error {
	if t.Repo == nil || !t.Repository.Spec.Sync.Enabled {
		return nil
	}
	if err := p.checkCredentials(ctx, t); err != nil {
		return err
	}
	_, _, err := p.sinkOf(t.Repo)
	return err
}

// checkCredentials returns an error if this agent has no credentials for the repository.
func (p *Pull) checkCredentials(ctx context.Context, t jobs.Task) error {
	err := p.source.CheckCredentials(ctx, t.Repo, t.Repository)
	if err != nil && !jobs.Transient(passing(err)) {
		return err
	}
	if repo := t.Repository; repo.Spec.Type == "local" && !git.PermitsDir(p.o.LocalDirs, repo.Spec.Local.Path) {
		return fmt.Errorf("repository %q: spec.local.path is not below a --local-prefix of this agent", t.Repo.GetName())
	}
	return nil
}

// checkout opens the Git side of the Repository of a job that pulls.
func (p *Pull) checkout(ctx context.Context, t *jobs.Task, log *slog.Logger) (*checkout.Checkout, error) {
	return p.source.Open(ctx, t.Repo, t.Repository, checkout.Options{Mirrors: true, Last: t.Repository.Status.Sync.LastRef,
		Progress: t.Progress, Meter: t.Progress.Transfer, Log: log})
}

// pull is one run of a pull job.
type pull struct {
	*Pull
	*jobs.Task
	log      *slog.Logger
	server   *target.API
	target   resources.Target
	status   *syncStatus
	at       *checkout.Checkout
	counted  stats // of the repository at the end of the run; nil = unknown
	partial  bool  // the run is incremental
	applying bool  // it has begun to write
	content  *checkout.Content
	sink     bool // the tree goes to a directory
	keepAll  bool // nothing may be removed from it
	leftOut  atomic.Int64
	hidden   int // files that a directory does not get
	unread   unread
	verified *api.Condition // the result of the verification; nil = unchanged
	after    *commit.Saved  // the write of the job to Git before the pull; nil = none
	commit   *commitstatus.Writer
	preview  *Preview // receives what would be done, instead of the servers; nil = it is done
}

// Run implements jobs.Worker.
func (p *Pull) Run(ctx context.Context, t *jobs.Task) error { return p.run(ctx, t, nil) }

// run is Run for a job that may have written to Git before.
func (p *Pull) run(ctx context.Context, t *jobs.Task, after *commit.Saved) error {
	if t.Repo == nil {
		return fmt.Errorf("repository %q does not exist", t.Job.Spec.Repository)
	}
	name := t.Repo.GetName()
	if !t.Repository.Spec.Sync.Enabled {
		return fmt.Errorf("sync is not enabled for repository %q; set spec.sync.enabled to true to pull it", name)
	}
	r := &pull{Pull: p, Task: t, log: cmp.Or(t.Log, p.o.Logger),
		target: p.targetOf(t),
		status: &syncStatus{client: p.o.Client, namespace: t.Namespace, name: name},
		after:  after,
	}
	r.target.TakeOver = after.TakeOver()
	t.Progress.SetMessage(ctx, "update sync status at start")
	if err := r.status.start(ctx, t.Repo, t.Name); err != nil {
		err = fmt.Errorf("update repository with job status at start: %w", err)
		if kube.RefusesGitHost(err.Error()) {
			err = fmt.Errorf("%w; try: %s", err, kube.AllowedGitURLs)
		}
		return err
	}
	if err := r.refresh(); err != nil {
		return err
	}
	before, err := p.o.Store.Unread(ctx, t.Namespace, name, string(r.Repo.GetUID()))
	if err != nil {
		return fmt.Errorf("read the list of unread files: %w", err)
	}
	r.unread.before = *before
	t.Progress.SetMessage(ctx, "execute sync job")
	t.Progress.StrictMaxErrors(maxErrors)
	if after == nil && len(t.Mark) > 0 {
		// A resumed pull reports every remaining difference, and former errors may be gone.
		r.log.Info("resuming after an interruption", "step", "plan")
		r.Progress.ResetResults()
	}
	err = passing(r.sync(ctx))
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	return r.finish(ctx, err)
}

// targetOf returns where the resources of a Repository go.
func (p *Pull) targetOf(t *jobs.Task) resources.Target {
	target := resources.Target{Repository: t.Repo.GetName(), Kinds: p.o.Kinds}
	if t.Repository.Spec.Sync.Target == "folder" {
		target.Root, target.RootTitle = target.Repository, cmp.Or(t.Repository.Spec.Title, target.Repository)
	}
	return target
}

// refresh replaces the Repository by the one with the sync status of this pull: a later change of
// it comes after the start of the pull.
func (r *pull) refresh() error {
	repo, err := api.RepositoryView(r.status.object)
	if err != nil {
		return err
	}
	task := *r.Task
	task.Repo, task.Repository = r.status.object, repo
	r.Task = &task
	return nil
}

func (r *pull) finish(ctx context.Context, err error) error {
	r.keepVersions(ctx)
	switch {
	case errors.Is(context.Cause(ctx), jobs.ErrLost):
		return err // another agent has the job and owns the status
	case errors.Is(err, jobs.ErrShutdown):
		r.status.queued(ctx)
		return err
	case jobs.Transient(err) && !r.Last:
		// The pull will be retried. An unavailable API gets no further request.
		if since, _ := r.o.Client.Down(); since.IsZero() {
			r.status.queued(ctx)
		}
		return err
	}
	r.Progress.SetMessage(ctx, "update status and stats")
	if via := r.at.Ref.Via.String(); via != "" && err == nil {
		r.Progress.SetFinalMessage(r.Progress.Outcome(nil).Message + "; " + via)
	}
	end := syncEnd{
		outcome:     r.Progress.Outcome(err),
		ref:         r.at.Ref.Hash,
		incremental: r.partial,
		stats:       r.counted,
		leftOut:     r.leftOut.Load(),
		verified:    r.verified,
		from: api.SyncSource{Hash: r.sourceHash(r.Repo, r.Repository),
			AllowMassDelete: r.Object.GetAnnotations()[api.AnnoAllowMassDelete] == "true"},
	}
	end.partly = r.applying && end.outcome.State == api.StateError
	if r.at.Ref.Hash != "" {
		end.commit = r.commit.Condition()
	}
	switch {
	case err != nil:
	case r.sink:
		end.sink = sinkReady
	default:
		end.sink.Type = api.ConditionSinkReady // none: it is removed
	}
	if end.outcome.State != api.StateError {
		r.keepUnread(ctx)
	}
	if failed := r.status.end(ctx, end); failed != nil {
		return errors.Join(err, fmt.Errorf("update repository with job final status: %w", failed))
	}
	r.commit.Done(ctx, r.at.Ref.Hash, end.outcome.State, err, r.Progress.Summary())
	return err
}

// commitStatus returns the writer of the status of the commit, nil if none is wanted.
func (r *pull) commitStatus(ctx context.Context) *commitstatus.Writer {
	asked, named := r.Repo.GetAnnotations()[api.AnnoCommitStatus]
	if r.at.Remote.Down != nil || asked != "true" && (named || !r.o.CommitStatus) {
		return nil
	}
	page := r.grafanaURL(r.Repository)
	if page != "" {
		page += "/admin/provisioning/" + r.target.Repository
	}
	return commitstatus.Open(ctx, commitstatus.Writer{Hosts: r.o.Hosts, Store: r.o.Store, Repo: r.Repo, Creds: r.at.Remote.Creds, Page: page,
		Log: r.log})
}

// grafanaURL returns the base of the pages of Grafana for a Repository, "" where the API is not
// Grafana's.
func (p *Pull) grafanaURL(repo api.Repository) string {
	base := p.o.GrafanaURL
	if hook := repo.Spec.Webhook; hook != nil && base != "" {
		base = cmp.Or(hook.BaseURL, base)
	}
	return strings.TrimRight(base, "/")
}

// sync does the work between the two status updates.
func (r *pull) sync(ctx context.Context) error {
	began := time.Now()
	var err error
	if r.at, err = r.checkout(ctx, r.Task, r.log); err != nil {
		return err
	}
	if r.preview == nil {
		r.commit = r.commitStatus(ctx)
	}
	dir, sink, err := r.sinkOf(r.Repo)
	if err != nil {
		return err
	}
	r.sink = sink
	if err := r.trusted(ctx); err != nil {
		return err
	}
	if err := r.at.LookUp(ctx); err != nil {
		return err
	}
	last := r.status.lastRef
	r.partial = r.incremental(last)
	same := r.partial && r.at.Ref.Hash == last && r.unread.before.Count() == 0 && (!sink || r.inSink(dir, last) == nil)
	if !same {
		defer func() {
			kind := jobs.SyncFull
			if r.partial {
				kind = jobs.SyncIncremental
			}
			r.Progress.Phase(kind, "", time.Since(began))
		}()
	}
	if !same || r.at.Trust != nil {
		if err := r.at.Fetch(ctx); err != nil {
			return err
		}
	}
	if !same {
		r.commit.Pending(ctx, r.at.Ref.Hash)
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	if same && r.at.Ref.Hash == last { // the branch may have moved before the fetch
		if left := r.unread.before.LeftOut; left != "" {
			r.warn(ctx, left)
		}
		r.Progress.SetFinalMessage("same commit as last sync")
		return nil
	}
	// The changes of a commit do not include those inside a submodule.
	r.partial = r.partial && !checkout.Submodules(r.Repo)
	r.content = r.at.Content()
	defer r.content.Close()
	if sink {
		r.unread.known, r.partial = r.partial, false
		return r.writeSink(ctx, dir)
	}
	if r.server, err = r.Pull.server(ctx, r.Namespace, r.Last); err != nil {
		return err
	}
	r.target.Kinds = r.server.Kinds
	tree, err := r.tree(ctx)
	if err != nil {
		return err
	}
	if r.partial {
		done, err := r.pullChanges(ctx, tree, last)
		if done || err != nil {
			return err
		}
		r.partial = false
	}
	return r.pullAll(ctx, tree)
}

// mark is the resume mark of a job. For a pull it is a hint: a resumed pull compares with the
// server, and does not repeat writes that are done.
type mark struct {
	Ref    string        `json:"ref"`
	Done   int           `json:"done"`
	Staged *commit.Saved `json:"staged,omitempty"` // of a job that writes to Git
}

// An incremental pull becomes a full one where the changes are not sufficient. Source: Grafana's
// policy for incremental syncs, which its controller applies; here the pull applies it, because it
// has the commits.

// sourceHash is a hash of what a pull depends on beside the commit: pulls of one commit with equal
// hashes have one result.
func (p *Pull) sourceHash(repo *unstructured.Unstructured, view api.Repository) string {
	notes, block := repo.GetAnnotations(), view.Spec.Block()
	if block == nil {
		block = &api.GitBlock{}
	}
	_, sink := notes[api.AnnoSinkDir]
	root := ""
	if view.Spec.Sync.Target == "folder" {
		root = view.Spec.Title
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %t %t %t %t %+v", block.URL, block.Branch, strings.Trim(block.Path, "/"),
		view.Spec.Sync.Target, root, sink, notes[api.AnnoSinkStrict] == "true", checkout.Submodules(repo), notes[api.AnnoGitLFS] == "false",
		p.o.Kinds))
	return hex.EncodeToString(sum[:8])
}

// incremental reports whether the pull may be incremental: the job requests it, the target is what
// a pull with the same source has made of a commit, no earlier attempt of the job may have begun to
// write, the controller has observed the present spec, and the last pull has not left out objects
// for the quota, or files that are not known here, which no later change would bring up again.
func (r *pull) incremental(last string) bool {
	o, from := r.Job.Spec.Pull, r.status.from.Hash
	if o == nil || !o.Incremental || last == "" || r.Attempt > 1 || len(r.Mark) > 0 {
		return false
	}
	if from != "" && from != r.sourceHash(r.Repo, r.Repository) {
		return false
	}
	known := r.unread.before.Ref == last && r.unread.before.More == 0
	for _, c := range r.Repository.Status.Conditions {
		if c.Type == api.ConditionSyncStatus && (c.Reason == api.ReasonSyncQuotaExceeded ||
			c.Reason == api.ReasonSyncWarning && !known || c.Reason == api.ReasonSyncFailed && from == "") {
			return false
		}
	}
	seen := r.Repository.Status.ObservedGeneration
	return seen == 0 || seen == r.Repo.GetGeneration()
}

// corrects reports whether what was edited on the target is written again: a full pull that was
// requested. One that only follows a write to Git, or a comparison of commits that was not
// sufficient, leaves edits to the check for drift.
func (r *pull) corrects() bool {
	o := r.Job.Spec.Pull
	return r.after == nil && (o == nil || !o.Incremental)
}

// fullPullReason returns the reason for which these changes require a full pull; "" for none. most
// is the maximum number of changes of an incremental pull; 0 = no limit. unread are the files that
// the last pull could not use: the object of one is that of an earlier commit.
func fullPullReason(diff []git.Change, most int, unread []state.UnreadFile) string {
	if most > 0 && len(diff) > most {
		return fmt.Sprintf("%d changes are more than %d", len(diff), most)
	}
	var gone []string
	for _, c := range diff {
		if slices.ContainsFunc(unread, func(f state.UnreadFile) bool { return f.Path == c.Path || f.Path == c.From }) {
			return fmt.Sprintf("file %q could not be used before", cmp.Or(c.From, c.Path))
		}
		switch c.Type {
		case git.ChangeDeleted:
			gone = append(gone, c.Path)
		case git.ChangeRenamed:
			gone = append(gone, c.From)
		}
	}
	if dir, is := resources.LostMarker(gone); is {
		return fmt.Sprintf("directory %q lost the file that stands for it", "/"+dir)
	}
	return ""
}

// passing wraps a transient error of a Git host, or of the host of a Connection, which creates
// tokens, in a *jobs.TransientError and returns any other error unchanged. Errors of the API are
// classified where the API is called. Invalid certificates count as unreachable: a wrong clock
// after boot and a captive portal are more frequent at a site than a wrong certificate.
func passing(err error) error {
	if e, ok := errors.AsType[*netx.Error](err); ok {
		switch e.Kind {
		case netx.Unavailable, netx.RateLimited, netx.Protocol:
			return &jobs.TransientError{Err: err, After: e.RetryAfter}
		}
	} else if e, ok := errors.AsType[*git.Error](err); ok {
		switch e.Kind {
		case git.Unreachable, git.Throttled, git.Timeout, git.Moved, git.Overtaken:
			return &jobs.TransientError{Err: err, After: e.RetryAfter}
		}
	}
	return err
}
