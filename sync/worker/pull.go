// Package worker does the work of jobs. A worker knows the rules of Grafana for its action and nothing of claims and
// leases: it gets a task, works until it is done or its context ends, and reports what it did.
//
//	pull.go      the run of a pull: resolve, fetch, verify, compare, write, status
//	pulltree.go  the tree of the commit; content.go reads its files, also from Git LFS
//	pullapply.go the plan of package resources and its application; pullsink.go a directory
//	unread.go    the files that it could not use
//	stage.go     the write of a job to Git; a new action that writes is an order for it
//	pullrequest.go the review of a pull request; package pr renders its comment
//	remote.go    where the Git side of a Repository is; signers.go who may sign its commits
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
	"limpet/sync/failpoint"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/commitstatus"
	"limpet/sync/worker/sink"
)

// maxErrors is the number of errors after which a pull stops. Source: Grafana.
const maxErrors = 20

// PullOptions configure a Pull.
type PullOptions struct {
	Client *kube.Client // of repositories and jobs
	// Dashboards and Folders are the servers of those groups; nil means Client.
	Dashboards, Folders *kube.Client
	Git                 Git
	Credentials         auth.Source // nil = none
	Signers             *Signers    // the signature policies and their keys; nil = no keys
	Store               *state.Store
	// SinkPrefixes are the directories under which a Repository may have its tree written instead of the API.
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

// Pull makes the dashboards and folders of a Repository equal to its branch, or to the tag or commit that it names
// instead.
type Pull struct {
	o        PullOptions
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
	return &Pull{o: o}
}

// Action implements jobs.Worker.
func (p *Pull) Action() string { return "pull" }

// Ready implements jobs.Worker. It returns an error for a job that only another agent may be able to run: this one has
// no credentials for the repository, cannot read that type of repository, or may not write to its directory. An invalid
// job is ready: it is claimed and ends with an error.
func (p *Pull) Ready(ctx context.Context, t jobs.Task) error {
	if t.Repo == nil || !t.Repository.Spec.Sync.Enabled {
		return nil
	}
	if err := p.credible(ctx, t); err != nil {
		return err
	}
	_, _, err := p.sinkOf(t.Repo)
	return err
}

// credible returns an error if this agent has no credentials for the repository.
func (p *Pull) credible(ctx context.Context, t jobs.Task) error {
	src, err := sourceOf(t.Namespace, t.Repo.GetName(), t.Repository)
	if err != nil {
		return err
	}
	if repo := t.Repository; repo.Spec.Type == "local" && !git.PermitsDir(p.o.LocalDirs, repo.Spec.Local.Path) {
		return fmt.Errorf("repository %q: spec.local.path is not below a --local-prefix of this agent", t.Repo.GetName())
	}
	if _, err := src.credentials(ctx, p.o.Credentials); err != nil && !jobs.Transient(passing(err)) {
		return err
	}
	return nil
}

// pull is one run of a pull job.
type pull struct {
	*Pull
	*jobs.Task
	remoteFor
	log      *slog.Logger
	server   *server
	target   resources.Target
	status   *syncStatus
	ref      git.Ref
	counted  stats // of the repository at the end of the run; nil = unknown
	partial  bool  // the run is incremental
	applying bool  // it has begun to write
	content  *content
	sink     bool // the tree goes to a directory
	keepAll  bool // nothing may be removed from it
	leftOut  atomic.Int64
	hidden   int // files that a directory does not get
	unread   unread
	trust    *trust         // the signature policy; nil = none
	verified *api.Condition // the result of the verification; nil = unchanged
	after    *staged        // the write of the job to Git before the pull; nil = none
	commit   *commitstatus.Writer
	preview  *Preview // receives what would be done, instead of the servers; nil = it is done
}

// Run implements jobs.Worker.
func (p *Pull) Run(ctx context.Context, t *jobs.Task) error { return p.run(ctx, t, nil) }

// run is Run for a job that may have written to Git before.
func (p *Pull) run(ctx context.Context, t *jobs.Task, after *staged) error {
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
	r.target.TakeOver = after.takeOver()
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

// refresh replaces the Repository by the one with the sync status of this pull: a later change of it comes after the
// start of the pull.
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
	if via := r.ref.Via.String(); via != "" && err == nil {
		r.Progress.SetFinalMessage(r.Progress.Outcome(nil).Message + "; " + via)
	}
	end := syncEnd{
		outcome:     r.Progress.Outcome(err),
		ref:         r.ref.Hash,
		incremental: r.partial,
		stats:       r.counted,
		leftOut:     r.leftOut.Load(),
		verified:    r.verified,
		from: api.SyncSource{Hash: r.sourceHash(r.Repo, r.Repository),
			AllowMassDelete: r.Object.GetAnnotations()[api.AnnoAllowMassDelete] == "true"},
	}
	end.partly = r.applying && end.outcome.State == api.StateError
	if r.ref.Hash != "" {
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
	r.commit.Done(ctx, r.ref.Hash, end.outcome.State, err, r.Progress.Summary())
	return err
}

// commitStatus returns the writer of the status of the commit, nil if none is wanted.
func (r *pull) commitStatus(ctx context.Context) *commitstatus.Writer {
	asked, named := r.Repo.GetAnnotations()[api.AnnoCommitStatus]
	if r.remote.Down != nil || asked != "true" && (named || !r.o.CommitStatus) {
		return nil
	}
	page := r.grafanaURL(r.Repository)
	if page != "" {
		page += "/admin/provisioning/" + r.target.Repository
	}
	return commitstatus.Open(ctx, commitstatus.Writer{Hosts: r.o.Hosts, Store: r.o.Store, Repo: r.Repo, Creds: r.remote.Creds, Page: page,
		Log: r.log})
}

// grafanaURL returns the base of the pages of Grafana for a Repository, "" where the API is not Grafana's.
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
	if err := r.prepare(ctx, r.Pull, r.Task, true); err != nil {
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
	if err := r.resolve(ctx); err != nil {
		return err
	}
	last := r.status.lastRef
	r.partial = r.incremental(last)
	same := r.partial && r.ref.Hash == last && r.unread.before.Count() == 0 && (!sink || r.inSink(dir, last) == nil)
	if !same {
		defer func() {
			kind := jobs.SyncFull
			if r.partial {
				kind = jobs.SyncIncremental
			}
			r.Progress.Phase(kind, "", time.Since(began))
		}()
	}
	if !same || r.trust != nil {
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}
	if !same {
		r.commit.Pending(ctx, r.ref.Hash)
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	if same && r.ref.Hash == last { // the branch may have moved before the fetch
		if left := r.unread.before.LeftOut; left != "" {
			r.warn(ctx, left)
		}
		r.Progress.SetFinalMessage("same commit as last sync")
		return nil
	}
	// The changes of a commit do not include those inside a submodule.
	r.partial = r.partial && !submodules(r.Repo)
	r.content = newContent(r.o.Git, r.remote, r.ref, r.Task)
	defer r.content.close()
	if sink {
		r.unread.known, r.partial = r.partial, false
		return r.writeSink(ctx, dir)
	}
	if r.server, err = r.Pull.server(ctx, r.Namespace, r.Last); err != nil {
		return err
	}
	r.target.Kinds = r.server.kinds
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

// resolve asks the remote for the commit of the branch: the only request of a pull without changes. A commit that is
// pulled by its hash needs none.
func (r *pull) resolve(ctx context.Context) error {
	r.Progress.Step("look up " + r.src.sel.String())
	ref, err := r.remoteFor.resolve(ctx, r.Pull, r.Task, r.src.sel, true)
	if err != nil {
		return err
	}
	if via := ref.Via.String(); via != "" && via != r.ref.Via.String() {
		r.log.Warn(via, "step", "fetch")
	}
	r.ref = ref
	r.Progress.SetRefs(ref.Short(), r.status.lastRef, ref.Hash)
	return nil
}

// fetchTries is the number of times a branch may move between its look-up and its fetch.
const fetchTries = 3

func (r *pull) fetch(ctx context.Context) error {
	var err error
	for range fetchTries {
		r.Progress.SetMessage(ctx, "fetch "+short(r.ref.Hash))
		var stats git.Stats
		if stats, err = r.o.Git.Fetch(ctx, r.remote, r.ref); err == nil {
			r.log.Debug("fetched", "step", "fetch", "bytes", stats.Bytes, "full", stats.Full)
			if stats.Bytes > 0 {
				r.Progress.StepNote(text.Size(stats.Bytes))
			}
			// The next steps read the commit too, so an error is theirs; that of a directory says nothing.
			if info, err := r.o.Git.Commit(ctx, r.remote, r.ref.Hash); err == nil && r.Repository.Spec.Type != "local" {
				name, _, _ := strings.Cut(info.Author, " <")
				r.Progress.SetCommit(state.Commit{Subject: text.Redact(info.Subject), Author: name, At: api.Time(info.When)})
			}
			return failpoint.Pass(failpoint.Fetched)
		}
		if git.KindOf(err) != git.Moved {
			return err
		}
		if err := r.resolve(ctx); err != nil {
			return err
		}
	}
	return err
}

func short(hash string) string { return hash[:min(len(hash), 7)] }

// mark is the resume mark of a job. For a pull it is a hint: a resumed pull compares with the server, and does not
// repeat writes that are done.
type mark struct {
	Ref    string  `json:"ref"`
	Done   int     `json:"done"`
	Staged *staged `json:"staged,omitempty"` // of a job that writes to Git
}

// An incremental pull becomes a full one where the changes are not sufficient. Source: Grafana's policy for incremental
// syncs, which its controller applies; here the pull applies it, because it has the commits.

// sourceHash is a hash of what a pull depends on beside the commit: pulls of one commit with equal hashes have one result.
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
		view.Spec.Sync.Target, root, sink, notes[api.AnnoSinkStrict] == "true", submodules(repo), notes[api.AnnoGitLFS] == "false",
		p.o.Kinds))
	return hex.EncodeToString(sum[:8])
}

// incremental reports whether the pull may be incremental: the job requests it, the target is what a pull with the same
// source has made of a commit, no earlier attempt of the job may have begun to write, the controller has observed the
// present spec, and the last pull has not left out objects for the quota, or files that are not known here, which no later
// change would bring up again.
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

// corrects reports whether what was edited on the target is written again: a full pull that was requested. One that only
// follows a write to Git, or a comparison of commits that was not sufficient, leaves edits to the check for drift.
func (r *pull) corrects() bool {
	o := r.Job.Spec.Pull
	return r.after == nil && (o == nil || !o.Incremental)
}

// fullPullReason returns the reason for which these changes require a full pull; "" for none. most is the maximum
// number of changes of an incremental pull; 0 = no limit. unread are the files that the last pull could not use: the object
// of one is that of an earlier commit.
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
