// Package worker does the work of jobs. A worker knows the rules of Grafana for its action and
// nothing of claims and leases: it gets a task, works until it is done or its context ends, and
// reports what it did.
//
//	pull.go      the run of a pull: resolve, fetch, verify, compare, write, status
//	checkout     the commit of a Repository: its remote, its signatures, its files
//	target       where its files go: the objects of an API, or a directory
//	pullobjects.go, pullsink.go  the pull into each of them
//	unread.go    the files that it could not use
//	repository.go the Repository, and what it says of both
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
	"errors"
	"fmt"
	"log/slog"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/status"
	"limpet/sync/worker/status/commitstatus"
	"limpet/sync/worker/target"
)

// maxErrors is the number of errors after which a pull stops. Source: Grafana.
const maxErrors = 20

// PullOptions configure a Pull.
type PullOptions struct {
	Client *kube.Client // of repositories and jobs
	// Dashboards and Folders are the servers of those groups; nil means Client.
	Dashboards, Folders *kube.Client
	Source              checkout.Source // its Now is the time of Client
	Store               *state.Store
	// Space is asked before many objects are created; nil = they are not stored on this host.
	Space Space
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
	Parallel     int
	Hosts        *forge.Hosts // for commit statuses and comments
	CommitStatus bool         // of Repositories without the annotation as well
	GrafanaURL   string       // base of its pages; "" = the API is not Grafana's
	Logger       *slog.Logger // nil = slog.Default()
}

// Space is that of the objects which are stored on this host.
type Space interface {
	// SpaceFor returns an error, with figures, if n more objects like those of a sample do not fit.
	SpaceFor(ctx context.Context, n int, sample func(context.Context) ([][]byte, error)) error
}

// Pull makes the dashboards and folders of a Repository equal to its branch, or to the tag or
// commit that it names instead.
type Pull struct {
	o        PullOptions
	programs sink.Programs
	looks    looks
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
	o.Source.Now = func() time.Time { return o.Client.Now() }
	return &Pull{o: o, looks: looks{of: map[string]look{}}}
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
	err := p.o.Source.CheckCredentials(ctx, t.Repo, t.Repository)
	if err != nil && !jobs.Transient(passing(err)) {
		return err
	}
	if repo := t.Repository; repo.Spec.Type == "local" && !git.PermitsDir(p.o.LocalDirs, repo.Spec.Local.Path) {
		return fmt.Errorf("repository %q: spec.local.path is not below a --local-prefix of this agent", t.Repo.GetName())
	}
	return nil
}

// terms are what a pull may do.
type terms struct {
	incremental bool // it may be, as far as its job says
	corrects    bool // what was edited on the target is written again
	massDelete  bool
	last        bool          // no other attempt follows
	after       *commit.Saved // the write of the job to Git before the pull; nil = none
}

// termsOf returns the terms of a job. A pull corrects edits if it is a full one that was requested.
// One that only follows a write to Git, or a comparison of commits that was not sufficient, leaves
// edits to the check for drift.
func termsOf(t *jobs.Task, after *commit.Saved) terms {
	incremental := t.Job.Spec.Pull != nil && t.Job.Spec.Pull.Incremental
	return terms{
		incremental: incremental && t.Attempt <= 1 && len(t.Mark) == 0,
		corrects:    !incremental && after == nil,
		massDelete:  t.Object.GetAnnotations()[api.AnnoAllowMassDelete] == "true",
		last:        t.Last,
		after:       after,
	}
}

// pull is one run of a pull.
type pull struct {
	terms    terms
	worker   *Pull
	repo     repository
	status   *status.Sync
	unread   *unread
	progress *jobs.Progress
	log      *slog.Logger
	commit   *commitstatus.Writer // nil = no status is wanted

	at        *checkout.Checkout
	content   *checkout.Content
	objects   *target.Objects   // nil = they were not reached
	directory *target.Directory // that gets the tree in their place; nil = none
	early     *target.Early     // writes its files while they come; nil = none
	prepared  *target.Prepared  // objects of the files that came; nil = none
	counted   target.Counts     // of the Repository at the end of the run; nil = unknown
	partial   bool              // the run is incremental
	applying  bool              // it has begun to write
}

// newPull returns a run for a Repository.
func (p *Pull) newPull(
	ctx context.Context, repo repository, status *status.Sync, t terms, progress *jobs.Progress, log *slog.Logger,
) (*pull, error) {
	unread, err := newUnread(ctx, p.o.Store, repo, progress)
	return &pull{terms: t, worker: p, repo: repo, status: status, unread: unread, progress: progress, log: log}, err
}

// withoutJob returns a run that is not of a job.
func (p *Pull) withoutJob(ctx context.Context, repo repository, t terms) (*pull, error) {
	status := &status.Sync{Client: p.o.Client, Namespace: repo.namespace(), Name: repo.name(), Object: repo.object}
	if err := status.Read(); err != nil {
		return nil, err
	}
	return p.newPull(ctx, repo, status, t, jobs.NewProgress(), p.o.Logger)
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
	t.Progress.SetMessage(ctx, "update sync status at start")
	status := &status.Sync{Client: p.o.Client, Namespace: t.Namespace, Name: name}
	if err := status.Start(ctx, t.Repo, t.Name); err != nil {
		err = fmt.Errorf("update repository with job status at start: %w", err)
		if kube.RefusesGitHost(err.Error()) {
			err = fmt.Errorf("%w; try: %s", err, kube.AllowedGitURLs)
		}
		return err
	}
	repo, err := p.read(status.Object) // a later change of it comes after the start of the pull
	if err != nil {
		return err
	}
	r, err := p.newPull(ctx, repo, status, termsOf(t, after), t.Progress, cmp.Or(t.Log, p.o.Logger))
	if err != nil {
		return err
	}
	t.Progress.SetMessage(ctx, "execute sync job")
	t.Progress.StrictMaxErrors(maxErrors)
	if after == nil && len(t.Mark) > 0 {
		// A resumed pull reports every remaining difference, and former errors may be gone.
		r.log.Info("resuming after an interruption", "step", "plan")
		t.Progress.ResetResults()
	}
	err = passing(r.sync(ctx))
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	return r.finish(ctx, err)
}

// sync does the work between the two status updates.
func (r *pull) sync(ctx context.Context) error {
	began := time.Now()
	var err error
	if r.at, err = r.worker.checkout(ctx, r.repo, r.progress, r.log); err != nil {
		return err
	}
	if r.repo.object.GetDeletionTimestamp() != nil { // its finalizers do not see what is made after them
		return fmt.Errorf("repository %q is being deleted: nothing was done", r.repo.name())
	}
	r.commit = r.commitStatus(ctx)
	if r.directory, err = r.worker.directory(r.repo, r.progress); err != nil {
		return err
	}
	if r.directory != nil && !checkout.Submodules(r.repo.object) {
		r.early = r.directory.Early(ctx)
	}
	r.prepared = r.prepare()
	r.at.Remote.Dir = r.at.Dir // of what comes
	switch {
	case r.early != nil:
		defer r.early.Close()
		r.at.Remote.Receiver = r.early
	case r.prepared != nil:
		defer r.prepared.Close()
		r.at.Remote.Receiver = r.prepared
	}
	same, err := r.fetch(ctx)
	if same {
		return err
	}
	defer func() {
		kind := jobs.SyncFull
		if r.partial {
			kind = jobs.SyncIncremental
		}
		r.progress.Phase(kind, "", time.Since(began))
	}()
	if err != nil {
		return err
	}
	defer r.content.Close()
	if r.directory != nil {
		return r.syncDirectory(ctx)
	}
	return r.syncObjects(ctx)
}

// fetch finds the commit and brings it into the mirror, verified. same reports that there is nothing
// more to do: the target holds the commit, or it was not found.
func (r *pull) fetch(ctx context.Context) (same bool, err error) {
	for _, step := range []func(context.Context) error{r.at.ReadTrust, r.at.LookUp} {
		if err := step(ctx); err != nil {
			return true, err
		}
	}
	last := r.status.LastRef
	r.partial = r.mayBePartial(last)
	same = r.partial && r.at.Ref.Hash == last && r.unread.before.Count() == 0 &&
		(r.directory == nil || r.directory.Holds(last) == nil)
	if !same || r.at.Trust != nil {
		if err := r.at.Fetch(ctx); err != nil {
			return same, err
		}
	}
	if !same {
		r.commit.Pending(ctx, r.at.Ref.Hash)
	}
	if err := r.at.VerifyFetched(ctx); err != nil {
		return same, err
	}
	if same && r.at.Ref.Hash == last { // the branch may have moved before the fetch
		if left := r.unread.before.LeftOut; left != "" {
			r.unread.warn(ctx, left)
		}
		r.progress.SetFinalMessage("same commit as last sync")
		return true, nil
	}
	// The changes of a commit do not include those inside a submodule.
	r.partial = r.partial && !checkout.Submodules(r.repo.object)
	r.content = r.at.Content()
	return false, nil
}

// tree reads the tree of the commit, and notes what is left out of it.
func (r *pull) tree(ctx context.Context) (git.Tree, error) {
	read := r.content.Tree
	if r.directory == nil { // objects are planned by names and hashes alone
		read = r.content.Names
	}
	t, err := read(ctx)
	if err == nil {
		r.see(ctx, t)
	}
	return t, err
}

// see notes what is left out of a tree.
func (r *pull) see(ctx context.Context, t git.Tree) {
	if harmless := r.unread.see(ctx, t, r.directory == nil || r.directory.Strict); harmless != "" {
		r.log.Info(harmless, "step", "read")
	}
}

func (r *pull) finish(ctx context.Context, err error) error {
	if r.objects != nil {
		if failed := keepVersions(ctx, r.worker.o.Store, r.repo, r.objects.API.Written()); failed != nil {
			r.log.Warn("versions of the objects not kept", "step", "status", "err", failed)
		}
	}
	switch {
	case errors.Is(context.Cause(ctx), jobs.ErrLost):
		return err // another agent has the job and owns the status
	case errors.Is(err, jobs.ErrShutdown):
		r.status.Queued(ctx)
		return err
	case jobs.Transient(err) && !r.terms.last:
		// The pull will be retried. An unavailable API gets no further request.
		if since, _ := r.worker.o.Client.Down(); since.IsZero() {
			r.status.Queued(ctx)
		}
		return err
	}
	r.progress.SetMessage(ctx, "update status and stats")
	if via := r.at.Ref.Via.String(); via != "" && err == nil {
		r.progress.SetFinalMessage(r.progress.Outcome(nil).Message + "; " + via)
	}
	end := status.End{
		Outcome:     r.progress.Outcome(err),
		Ref:         r.at.Ref.Hash,
		Incremental: r.partial,
		Stats:       r.counted,
		LeftOut:     r.unread.quota,
		Verified:    r.at.Verified,
		From:        api.SyncSource{Hash: r.repo.sourceHash(), AllowMassDelete: r.terms.massDelete},
	}
	end.Partly = r.applying && end.Outcome.State == api.StateError
	if r.at.Ref.Hash != "" {
		end.Commit = r.commit.Condition()
	}
	switch {
	case err != nil:
	case r.directory != nil:
		end.Sink = status.SinkReady
	default:
		end.Sink.Type = api.ConditionSinkReady // none: it is removed
	}
	if end.Outcome.State != api.StateError {
		if failed := r.unread.keep(ctx, r.worker.o.Store, r.repo, r.at.Ref.Hash); failed != nil {
			r.log.Warn("list of unread files not kept", "step", "status", "err", failed)
		}
	}
	if failed := r.status.End(ctx, end); failed != nil {
		return errors.Join(err, fmt.Errorf("update repository with job final status: %w", failed))
	}
	r.commit.Done(ctx, r.at.Ref.Hash, end.Outcome.State, err, r.progress.Summary())
	return err
}

// commitStatus returns the writer of the status of the commit, nil if none is wanted.
func (r *pull) commitStatus(ctx context.Context) *commitstatus.Writer {
	asked, named := r.repo.object.GetAnnotations()[api.AnnoCommitStatus]
	if r.at.Remote.Down != nil || asked != "true" && (named || !r.worker.o.CommitStatus) {
		return nil
	}
	page := r.repo.grafanaURL(r.worker.o.GrafanaURL)
	if page != "" {
		page += "/admin/provisioning/" + r.repo.name()
	}
	return commitstatus.Open(ctx, commitstatus.Writer{Hosts: r.worker.o.Hosts, Store: r.worker.o.Store, Repo: r.repo.object,
		Creds: r.at.Remote.Creds, Page: page, Log: r.log})
}

// mayBePartial reports whether the pull may be incremental. The changes have to be sufficient as well.
// The rules are those of Grafana for incremental syncs, which its controller applies; a pull has the
// commits. The target has to be what a pull with the same source has made of a commit, the
// controller has observed the present spec, and the last pull has not left out objects for the
// quota, or files that are not known here, which no later change would bring up again.
func (r *pull) mayBePartial(last string) bool {
	from := r.status.From.Hash
	if !r.terms.incremental || last == "" || from != "" && from != r.repo.sourceHash() {
		return false
	}
	known := r.unread.before.Ref == last && r.unread.before.More == 0
	for _, c := range r.repo.view.Status.Conditions {
		if c.Type == api.ConditionSyncStatus && (c.Reason == api.ReasonSyncQuotaExceeded ||
			c.Reason == api.ReasonSyncWarning && !known || c.Reason == api.ReasonSyncFailed && from == "") {
			return false
		}
	}
	seen := r.repo.view.Status.ObservedGeneration
	return seen == 0 || seen == r.repo.object.GetGeneration()
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
