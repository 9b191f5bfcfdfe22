package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/pr"
	"limpet/sync/worker/target"
)

// PullRequest is the worker of pr jobs. A pull request is reviewed as its pull would work: the same
// plan is carried out by an API that writes nothing. The result is one comment, which is found again
// by its marker: a job that is repeated edits it.
type PullRequest struct{ pull *Pull }

// NewPullRequest returns the worker of pr jobs. p reads Git and the API.
func NewPullRequest(p *Pull) *PullRequest { return &PullRequest{p} }

// Action implements jobs.Worker.
func (w *PullRequest) Action() string { return "pr" }

// Ready implements jobs.Worker.
func (w *PullRequest) Ready(ctx context.Context, t jobs.Task) error {
	return w.pull.checkCredentials(ctx, t)
}

// Run implements jobs.Worker.
func (w *PullRequest) Run(ctx context.Context, t *jobs.Task) error {
	if o := t.Job.Spec.PR; o == nil || o.Number <= 0 {
		return errors.New("the job has no options: spec.pr with the number of a pull request is missing")
	}
	t.Progress.ResetResults() // of an earlier run
	r := &review{worker: w.pull, task: t, repo: repository{t.Repo, t.Repository, w.pull.o.Kinds},
		log: cmp.Or(t.Log, w.pull.o.Logger), number: t.Job.Spec.PR.Number, results: map[string][]resources.Result{}}
	err := r.run(ctx)
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	return passing(err)
}

// review is one run of a pr job.
type review struct {
	worker *Pull
	task   *jobs.Task
	repo   repository
	log    *slog.Logger
	number int64

	at   *checkout.Checkout // of what the pull request is merged to, or of its branch
	spec resources.Target
	host *forge.Remote
	of   forge.PullRequest
	base git.Ref // the branch of the Repository
	from string  // the commit that the pull request is compared with
	head string  // the commit of its branch

	mu      sync.Mutex                    // guards results
	results map[string][]resources.Result // by path
}

func (r *review) run(ctx context.Context) (err error) {
	r.at, err = r.worker.o.Source.Open(ctx, r.repo.object, r.repo.view, checkout.Options{Progress: r.task.Progress,
		Meter: r.task.Progress.Transfer, Log: r.log})
	if err != nil {
		return err
	}
	if r.host, err = r.worker.o.Hosts.Remote(ctx, forge.TargetOf(r.repo.object), r.at.Remote.Creds); err != nil {
		return err
	}
	r.task.Progress.SetMessage(ctx, fmt.Sprintf("read pull request %d", r.number))
	if r.of, err = r.host.PullRequest(ctx, r.number); err != nil {
		return err
	}
	if r.of.URL != "" { // Grafana knows no link of this meaning but compareURL
		r.task.Progress.SetURLs(map[string]string{"pullRequestURL": r.of.URL, "compareURL": r.of.URL})
	}
	if !r.of.Open {
		r.task.Progress.SetFinalMessage("the pull request is closed")
		return nil
	}
	if r.base, err = r.at.Get(ctx, r.at.Selector); err != nil {
		return err
	}
	if r.of.Base != r.base.Branch() {
		r.task.Progress.SetFinalMessage("the pull request is not for " + r.base.Branch())
		return nil
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	compared, err := r.worker.o.Source.Git.Changes(ctx, r.at.Remote, r.from, r.at.Ref.Hash, r.at.Dir)
	if err != nil {
		return err
	}
	diff := compared.Files
	unchecked := 0 // other files cost no request until there are many of them
	if files := slices.DeleteFunc(slices.Clone(diff), notResource); len(files) > maxChecked || len(diff) > 10*maxChecked {
		diff = files[:min(len(files), maxChecked)]
		unchecked = len(files) - len(diff)
	}
	content := r.at.Content()
	defer content.Close()
	parsed, err := r.rehearse(ctx, content, diff)
	if err != nil {
		return err
	}
	out := pr.Review{Repository: r.repo.namespace() + "/" + r.repo.name(), Commit: r.head, Fork: r.of.Fork, Parsed: parsed,
		Unchecked: unchecked}
	for _, c := range diff {
		if !notResource(c) {
			out.Files = append(out.Files, r.file(ctx, content, c))
		}
	}
	return r.comment(ctx, out)
}

// maxChecked bounds the files of a pull request that are parsed and sent to the API; the comment
// shows 10 of them.
const maxChecked = 100

// notResource reports that a change is none of a resource file.
func notResource(c git.Change) bool {
	return !repopath.IsResourceFile(c.Path) || repopath.IsHidden(repopath.CheckPath(c.Path))
}

// compare finds the two commits whose difference is what the pull request changes: those of its
// merge where the host has made it of the present branch, else its branch and where that has left
// the branch of the Repository.
func (r *review) compare(ctx context.Context) error {
	headRef, mergeRef := r.host.PullRefs(r.number)
	want := gitref.Selector{Name: headRef}
	switch {
	case headRef == "" && r.of.Fork: // a branch of this name is another one
		return fmt.Errorf("pull request %d is of a fork, whose commits this host does not give out", r.number)
	case headRef == "":
		want = gitref.Branch(r.of.Branch)
	}
	head, err := r.at.Get(ctx, want)
	if err != nil {
		return err
	}
	r.head = head.Hash
	defer r.task.Progress.SetRefs(cmp.Or(r.of.Branch, head.Short()), r.base.Hash, head.Hash)
	if mergeRef != "" {
		merged, err := r.at.Get(ctx, gitref.Selector{Name: mergeRef})
		if err != nil && git.KindOf(err) != git.BranchNotFound { // a conflict, or a host that makes none
			return err
		}
		if err == nil {
			info, err := r.worker.o.Source.Git.Commit(ctx, r.at.Remote, merged.Hash)
			if err != nil || slices.Equal(info.Parents, []string{r.base.Hash, head.Hash}) {
				r.from = r.base.Hash
				return err
			}
		}
	}
	if r.from, err = r.host.MergeBase(ctx, r.of, r.base.Hash, head.Hash); err == nil {
		_, err = r.at.Get(ctx, gitref.Selector{Commit: r.from})
	}
	r.at.Ref = head
	return err
}

// rehearse carries the plan of the changes out without an effect. parsed reports that the API took
// no part.
func (r *review) rehearse(ctx context.Context, content *checkout.Content, diff []git.Change) (parsed bool, err error) {
	var objects *target.Objects
	r.spec = r.repo.target()
	_, r.spec.Directory = r.repo.object.GetAnnotations()[api.AnnoSinkDir]
	if !r.spec.Directory {
		objects, err = r.worker.objects(ctx, r.repo, content, r.task.Progress, r.task.Last)
	}
	switch {
	case r.spec.Directory || target.Absent(err):
		objects = &target.Objects{API: target.NoAPI(), Spec: r.spec, Namespace: r.repo.namespace(), Content: content,
			Progress: r.task.Progress, Parallel: r.worker.o.Parallel}
	case err != nil:
		return false, err
	default:
		r.spec = objects.Spec
		objects.API.DryRun(ctx)
	}
	tree, err := content.Tree(ctx)
	if err != nil {
		return false, err
	}
	left := &unread{progress: r.task.Progress}
	if harmless := left.see(ctx, tree, true); harmless != "" {
		r.log.Info(harmless, "step", "read")
	}
	folders, err := objects.API.ManagedFolders(ctx, r.spec.Repository)
	if err != nil {
		return false, err
	}
	plan, err := objects.Increment(ctx, treeOf(tree), folders, fileChanges(diff), nil)
	if err != nil {
		return false, err
	}
	plan.Fetch(ctx)
	r.task.Progress.SetMessage(ctx, "validate files")
	err = plan.Validate(ctx, r)
	return objects.API.Off(), err
}

// Record implements resources.Recorder. What is wrong with a file is a warning of the job.
func (r *review) Record(ctx context.Context, res resources.Result) {
	r.mu.Lock()
	r.results[res.Path] = append(r.results[res.Path], res)
	r.mu.Unlock()
	res.Action, res.Warning, res.Err = resources.Ignored, cmp.Or(res.Warning, res.Err), nil
	r.task.Progress.Record(ctx, res)
}

// TooManyErrors implements resources.Recorder: all files are validated.
func (r *review) TooManyErrors() error { return nil }

// file describes a change. What cannot be read has no title.
func (r *review) file(ctx context.Context, content *checkout.Content, c git.Change) pr.File {
	f := pr.File{Action: c.Type, Path: c.Path}
	name := ""
	if data, err := content.Read(ctx, cmp.Or(c.Hash, c.FromHash)); err == nil {
		file := resources.File{Repository: r.repo.name(), Namespace: r.repo.namespace(), Path: c.Path, Kinds: r.spec.Kinds}
		if repopath.IsFolderFile(c.Path) {
			meta := resources.ParseFolderFile(c.Path, c.Hash, data)
			f.Kind, name, f.Title = "Folder", meta.UID, cmp.Or(meta.Title, repopath.Base(repopath.Parent(c.Path)))
		} else if o, err := resources.Parse(file, data); err == nil {
			f.Kind, name, f.Title = o.GVK.Kind, o.Name, cmp.Or(o.Title(), o.Name)
		}
	}
	base := r.repo.grafanaURL(r.worker.o.GrafanaURL)
	if base != "" && name != "" && c.Type != git.ChangeAdded {
		f.Current = pr.Current(base, f.Kind, name, f.Title)
	}
	if base != "" && f.Kind == "Dashboard" && c.Type != git.ChangeDeleted && !r.of.Fork {
		f.Preview = pr.Preview(base, r.repo.name(), c.Path, r.of.Branch, r.of.URL)
	}
	for _, res := range slices.Concat(r.results[c.Path], r.results[repopath.Parent(c.Path)]) {
		if err := cmp.Or(res.Warning, res.Err); err != nil && (res.Path == c.Path || repopath.IsFolderFile(c.Path)) {
			if parse, is := errors.AsType[*resources.ParseError](err); is {
				err = parse.Err // the path is beside it
			}
			if res.Err != nil { // the job has the text, which may name hosts that readers of the comment must not know
				err = errors.New("the API refuses it: " + resources.Reason(err))
			}
			f.Problems = append(f.Problems, text.Redact(err.Error()))
		}
	}
	return f
}

// comment writes the comment. A pull request without resource files gets none, unless an earlier
// push had some.
func (r *review) comment(ctx context.Context, out pr.Review) error {
	r.task.Progress.SetMessage(ctx, "comment on the pull request")
	marker := "limpet/" + out.Repository
	if r.repo.object.GetAnnotations()[api.AnnoPRComment] == "new" {
		marker += "@" + r.head
	}
	err := r.host.Comment(ctx, r.number, marker, out.Markdown(), len(out.Files) == 0)
	if err != nil {
		return fmt.Errorf("comment on pull request %d: %w", r.number, err)
	}
	r.task.Progress.SetFinalMessage(text.Plural(len(out.Files), "file") + " of the pull request validated")
	return nil
}
