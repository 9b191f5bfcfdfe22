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
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// PreviewQuery selects a pull, or another job that writes to Git.
type PreviewQuery struct {
	Namespace       string         `json:"namespace"`
	Repository      string         `json:"repository"`
	Incremental     bool           `json:"incremental"`
	AllowMassDelete bool           `json:"allowMassDelete"`
	Job             map[string]any `json:"job,omitempty"` // its spec; nil = that of a pull
}

// Preview is what a pull would do now, or the commit that another job would push. It fetches into
// the mirror, which is a cache.
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

	mu sync.Mutex // guards Changes
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
	of, err := p.read(repo)
	if err != nil {
		return nil, err
	}
	return p.previewOf(ctx, of, q)
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
	view, err := api.RepositoryView(repo)
	if err != nil {
		return nil, err
	}
	o, r, err := all[i].begin(&jobs.Task{Object: new(unstructured.Unstructured), Job: job, Repo: repo, Repository: view,
		Namespace: q.Namespace, Progress: jobs.NewProgress()})
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

// previewOf plans a pull without its job: what sync does until it writes.
func (p *Pull) previewOf(ctx context.Context, repo repository, q PreviewQuery) (*Preview, error) {
	if !repo.view.Spec.Sync.Enabled {
		return nil, fmt.Errorf("sync is not enabled for repository %q; set spec.sync.enabled to true to pull it", q.Repository)
	}
	may := terms{incremental: q.Incremental, corrects: !q.Incremental, massDelete: q.AllowMassDelete}
	r, err := p.withoutJob(ctx, repo, may)
	if err != nil {
		return nil, err
	}
	out := &Preview{Action: "pull", Namespace: q.Namespace, Repository: q.Repository, From: r.status.LastRef, Changes: []PreviewChange{}}
	if r.at, err = p.checkout(ctx, repo, r.progress, r.log); err != nil {
		return nil, passing(err)
	}
	if r.directory, err = p.directory(repo, r.progress); err != nil {
		return nil, err
	}
	same, err := r.fetch(ctx)
	if err == nil && !same {
		defer r.content.Close()
		if r.directory != nil {
			err = out.directory(ctx, r)
		} else {
			err = out.objects(ctx, r)
		}
	}
	if err != nil {
		return nil, passing(err)
	}
	out.To, out.Incremental = r.at.Ref.Hash, r.partial
	if done := r.progress.Outcome(nil); done.Message != "completed successfully" {
		out.Message = text.Redact(strings.Join(append(done.Warnings, done.Message), "; "))
	}
	out.sort()
	return out, nil
}

// objects adds what a pull would do with the objects of the API, and the files that stay.
func (p *Preview) objects(ctx context.Context, r *pull) error {
	if err := r.reachObjects(ctx); err != nil {
		return err
	}
	tree, err := r.content.Names(ctx)
	if err != nil {
		return err
	}
	plan, err := r.plan(ctx)
	if err != nil {
		return err
	}
	held := map[string]resources.Item{}
	if plan.plan != nil {
		if p.guarded(plan.refused); !r.partial && plan.plan.Empty() {
			r.progress.SetFinalMessage("no changes to sync")
		} else if err := plan.plan.Rehearse(ctx, p); err != nil {
			return err
		}
		for _, item := range plan.plan.Held() {
			held[item.Path] = item
		}
	}
	p.unchanged(tree.Files, func(name string) (kind, object string, is bool) {
		is = repopath.Check(name, false) == nil && repopath.IsResourceFile(name) && !repopath.IsFolderFile(name)
		return held[name].Kind, held[name].Name, is
	})
	return nil
}

// directory adds what a pull would do with the files of a directory.
func (p *Preview) directory(ctx context.Context, r *pull) error {
	tree, err := r.tree(ctx)
	if err != nil {
		return err
	}
	dir, err := sink.Look(ctx, r.directory.At, r.directory.Owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	plan, err := r.planDirectory(ctx, dir, tree, p)
	if err != nil {
		return err
	}
	p.guarded(r.terms.guard(r.repo, len(plan.Removed), dir.Files()))
	plan.Rehearse(ctx, p)
	r.remark(r.unread.none() && plan.Unchanged(), plan.Hidden)
	p.unchanged(tree.Files, func(name string) (kind, object string, is bool) {
		resource := repopath.IsResourceFile(name) && !repopath.IsFolderFile(name)
		return target.SinkKind, path.Base(name), repopath.Check(name, true) == nil && (resource || !r.directory.Strict)
	})
	return nil
}

// guarded keeps why the pull would be refused.
func (p *Preview) guarded(refused error) {
	if refused != nil {
		p.Guarded = refused.Error()
	}
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

// unchanged adds the files that stay as they are. describe reports whether a file is one of those
// that a pull uses.
func (p *Preview) unchanged(files []git.File, describe func(path string) (kind, name string, is bool)) {
	seen := map[string]bool{}
	for _, c := range p.Changes {
		seen[c.Path] = true
	}
	for _, f := range files {
		kind, name, is := describe(f.Path)
		if is && !seen[f.Path] {
			p.Changes = append(p.Changes, PreviewChange{Action: PreviewNoop, Path: f.Path, Kind: kind, Name: name})
		}
	}
}

// sort sorts the changes: what is changed in the order of the actions, then by path.
func (p *Preview) sort() {
	order := []string{"delete", "create", "update", "rename", PreviewGuarded, PreviewIgnored, PreviewNoop}
	slices.SortFunc(p.Changes, func(a, b PreviewChange) int {
		return cmp.Or(slices.Index(order, a.Action)-slices.Index(order, b.Action), strings.Compare(a.Path, b.Path),
			strings.Compare(a.Name, b.Name))
	})
}
