package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
)

// A preview is a run of a pull with the same code, whose writes are not sent. It fetches into the
// mirror, which is a cache.

// PreviewQuery selects a pull, or another job that writes to Git.
type PreviewQuery struct {
	Namespace       string         `json:"namespace"`
	Repository      string         `json:"repository"`
	Incremental     bool           `json:"incremental"`
	AllowMassDelete bool           `json:"allowMassDelete"`
	Job             map[string]any `json:"job,omitempty"` // its spec; nil = that of a pull
}

// Preview is what a pull would do now, or the commit that another job would push.
type Preview struct {
	Action      string          `json:"action"`
	Namespace   string          `json:"namespace"`
	Repository  string          `json:"repository"`
	From        string          `json:"from,omitempty"`   // commit of the last pull
	To          string          `json:"to"`               // commit that would be pulled, or the parent of the new one
	Branch      string          `json:"branch,omitempty"` // that the commit would be pushed to
	Incremental bool            `json:"incremental"`
	Message     string          `json:"message,omitempty"` // why nothing would be done, else a remark
	Guarded     string          `json:"guarded,omitempty"` // why the pull would be refused as a whole
	Missing     []string        `json:"missing,omitempty"` // paths of a delete or move that the branch does not have
	Changes     []PreviewChange `json:"changes"`

	mu   sync.Mutex // guards Changes
	held []resources.Item
	of   api.Repository
}

// PreviewChange is what a pull would do with one file or object.
type PreviewChange struct {
	Action string `json:"action"`
	Kind   string `json:"kind,omitempty"`
	Name   string `json:"name,omitempty"`
	Path   string `json:"path,omitempty"`
	From   string `json:"from,omitempty"`   // previous path of a renamed one
	Reason string `json:"reason,omitempty"` // of a guarded or ignored one
	why    error  // behind Reason
}

// Actions of a PreviewChange.
const (
	PreviewNoop    = "no-op"
	PreviewGuarded = "guarded" // by the guard of mass deletions, or because the object has another owner
	PreviewIgnored = "ignored" // with a warning
)

var previewActions = map[resources.Action]string{
	resources.Created: "create", resources.Updated: "update", resources.Deleted: "delete", resources.Renamed: "rename",
	resources.Ignored: PreviewNoop,
}

// Preview returns what a job would do now. It writes nothing to the API, to a directory or to Git.
// Errors of the Git host that may pass are *jobs.TransientError.
func (p *Pull) Preview(ctx context.Context, q PreviewQuery) (*Preview, error) {
	repo, err := p.o.Client.Resource(api.Repositories).Namespace(q.Namespace).Get(ctx, q.Repository, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if action := q.Job["action"]; action != nil && action != "pull" {
		return p.previewWrite(ctx, repo, q)
	}
	return p.previewOf(ctx, repo, q)
}

// previewWrite returns the plan of a job that writes to Git: all that it does before it makes the
// commit.
func (p *Pull) previewWrite(ctx context.Context, repo *unstructured.Unstructured, q PreviewQuery) (*Preview, error) {
	job, err := api.JobView(&unstructured.Unstructured{Object: map[string]any{"spec": q.Job}})
	if err != nil {
		return nil, err
	}
	all := NewWrites(p, nil)
	i := slices.IndexFunc(all, func(w *Write) bool { return w.action == job.Spec.Action })
	if i < 0 {
		return nil, fmt.Errorf("action %q has no dry run", job.Spec.Action)
	}
	run, err := p.apart(ctx, repo)
	if err != nil {
		return nil, err
	}
	run.Job = job
	o, r, err := all[i].begin(run.Task)
	if err != nil {
		return nil, err
	}
	made, err := r.Plan(ctx)
	out := &Preview{Action: job.Spec.Action, Namespace: q.Namespace, Repository: q.Repository, To: r.Base.Hash,
		Branch: cmp.Or(o.Ref, r.Base.Branch()), Changes: []PreviewChange{}}
	for _, e := range r.Edits {
		if e.Result.Err != nil && !e.Others {
			err = e.Result.Err
		}
		if e.Missing {
			out.Missing = append(out.Missing, e.Result.Path)
		}
		if e.File.To != "" {
			e.Result.PreviousPath, e.Result.Path = e.Result.Path, strings.TrimPrefix(e.File.To, within(r.Checkout.Dir, ""))
		}
		out.Record(ctx, e.Result)
	}
	if err != nil {
		return nil, passing(err)
	}
	if made.Empty() {
		out.Message = "nothing to commit"
	}
	out.sort()
	return out, nil
}

func (p *Pull) previewOf(ctx context.Context, repo *unstructured.Unstructured, q PreviewQuery) (*Preview, error) {
	r, err := p.apart(ctx, repo)
	if err != nil {
		return nil, err
	}
	if !r.Repository.Spec.Sync.Enabled {
		return nil, fmt.Errorf("sync is not enabled for repository %q; set spec.sync.enabled to true to pull it", q.Repository)
	}
	out := &Preview{Action: "pull", Namespace: q.Namespace, Repository: q.Repository, From: r.status.lastRef, Changes: []PreviewChange{},
		of: r.Repository}
	r.preview, r.Job.Spec.Pull = out, &api.PullOptions{Incremental: q.Incremental}
	if q.AllowMassDelete {
		api.SetAnnotation(r.Object, api.AnnoAllowMassDelete, "true")
	}
	if err := passing(r.sync(ctx)); err != nil {
		return nil, err
	}
	out.To, out.Incremental = r.at.Ref.Hash, r.partial
	if done := r.Progress.Outcome(nil); done.Message != "completed successfully" {
		out.Message = text.Redact(strings.Join(append(done.Warnings, done.Message), "; "))
	}
	out.finish(r)
	return out, nil
}

// apart returns a run of a pull that is no job's.
func (p *Pull) apart(ctx context.Context, repo *unstructured.Unstructured) (*pull, error) {
	view, err := api.RepositoryView(repo)
	if err != nil {
		return nil, err
	}
	name, namespace := repo.GetName(), repo.GetNamespace()
	r := &pull{Pull: p, log: p.o.Logger,
		Task: &jobs.Task{Object: &unstructured.Unstructured{Object: map[string]any{}}, Repo: repo, Repository: view, Namespace: namespace,
			Progress: jobs.NewProgress()},
		status: &syncStatus{client: p.o.Client, namespace: namespace, name: name, object: repo}}
	r.target = p.targetOf(r.Task)
	if err = r.status.read(); err == nil && p.o.Store != nil {
		var before, failed = p.o.Store.Unread(ctx, namespace, name, string(repo.GetUID()))
		if err = failed; err == nil {
			r.unread.before = *before
		}
	}
	return r, err
}

// Record implements resources.Recorder.
func (p *Preview) Record(_ context.Context, res resources.Result) {
	c := PreviewChange{Action: previewActions[res.Action], Kind: res.Kind, Name: res.Name, Path: res.Path, From: res.PreviousPath}
	c.why = cmp.Or(res.Err, res.Warning)
	switch why := c.why; {
	case errors.As(why, new(*resources.OwnershipError)):
		c.Action, c.Reason = PreviewGuarded, why.Error()
	case why != nil:
		c.Action, c.Reason = PreviewIgnored, text.Redact(text.Line(why.Error(), maxReason))
	case c.Action == "delete" && p.Guarded != "":
		c.Action, c.Reason = PreviewGuarded, "mass deletion"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Changes = append(p.Changes, c)
}

// TooManyErrors implements resources.Recorder.
func (p *Preview) TooManyErrors() error { return nil }

func (p *Preview) sink(ctx context.Context, r *pull, plan *sink.Plan, bad map[string]error) {
	add := func(action resources.Action, name string) {
		r.recordFile(ctx, resources.Result{Action: action, Path: name, Warning: bad[name]})
	}
	for _, f := range plan.Added {
		add(resources.Created, f.Path)
	}
	for _, f := range plan.Changed {
		add(resources.Updated, f.Path)
	}
	for _, name := range plan.Removed {
		add(resources.Deleted, name)
	}
}

// finish adds the files that stay as they are, and sorts: what is changed in the order of the
// actions, then by path.
func (p *Preview) finish(r *pull) {
	seen, held := map[string]bool{}, map[string]resources.Item{}
	for _, c := range p.Changes {
		seen[c.Path] = true
	}
	for _, item := range p.held {
		held[item.Path] = item
	}
	for name := range r.unread.tree {
		resource := repopath.IsResourceFile(name) && !repopath.IsFolderFile(name)
		if seen[name] || repopath.IsDir(name) || repopath.Check(name, r.sink) != nil || !resource && (!r.sink || r.strict()) {
			continue
		}
		c := PreviewChange{Action: PreviewNoop, Path: name, Kind: held[name].Kind, Name: held[name].Name}
		if r.sink {
			c.Kind, c.Name = sinkKind, path.Base(name)
		}
		p.Changes = append(p.Changes, c)
	}
	p.sort()
}

func (p *Preview) sort() {
	order := []string{"delete", "create", "update", "rename", PreviewGuarded, PreviewIgnored, PreviewNoop}
	slices.SortFunc(p.Changes, func(a, b PreviewChange) int {
		return cmp.Or(slices.Index(order, a.Action)-slices.Index(order, b.Action), strings.Compare(a.Path, b.Path),
			strings.Compare(a.Name, b.Name))
	})
}
