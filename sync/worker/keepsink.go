package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// A job writes the directory of one host, and status.sync.lastRef is the commit of all. Each agent
// compares its own disk with it and writes what is missing without a job: the pull may have run on
// another host, and files may be gone since.

// KeepSink brings the directory of a Repository on this host to the commit of the last pull and
// returns the number of its files when it has written any. It does nothing for a Repository whose
// directory is not below a prefix of this agent.
func (p *Pull) KeepSink(ctx context.Context, repo *unstructured.Unstructured) (int, error) {
	target, named, err := p.sinkOf(repo)
	if !named || err != nil {
		return 0, nil
	}
	view, err := api.RepositoryView(repo)
	if err != nil || !p.pulled(repo, view) {
		return 0, err
	}
	name, job := repo.GetName(), &unstructured.Unstructured{Object: map[string]any{}}
	api.SetAnnotation(job, api.AnnoAllowMassDelete, strconv.FormatBool(view.Status.Sync.Source.AllowMassDelete))
	r := &pull{Pull: p, log: p.o.Logger, target: resources.Target{Repository: name, Kinds: p.o.Kinds},
		Task: &jobs.Task{Object: job, Repo: repo, Repository: view, Namespace: repo.GetNamespace(), Progress: jobs.NewProgress(),
			Job: api.Job{Spec: api.JobSpec{Pull: &api.PullOptions{Incremental: true}}}},
		sink:    true,
		keepAll: view.Status.Sync.Source.Hash == "",
		status: &syncStatus{client: p.o.Client, namespace: repo.GetNamespace(), name: name, object: repo,
			lastRef: view.Status.Sync.LastRef, maxResources: view.Status.Quota.MaxResourcesPerRepository}}
	edited := keepsEdits(repo)
	if edited {
		has, _, _ := sink.Check(target, r.owner())
		edited = has == r.status.lastRef
	}
	if !edited && r.inSink(target, r.status.lastRef) != nil {
		if err = r.restoreSink(ctx, target); err == nil {
			err = r.reportSink(ctx, nil) // before the program, which may hang
		}
	}
	if err == nil {
		err = r.execSink(ctx, target)
	}
	done := int(r.counted[sinkFiles])
	if ctx.Err() != nil || errors.Is(err, errNotNow) {
		return done, context.Cause(ctx)
	}
	return done, errors.Join(err, r.reportSink(ctx, err))
}

// execSink runs the program of the Repository if its directory was switched.
func (r *pull) execSink(ctx context.Context, target sink.Target) error {
	annotation := api.Annotation(r.Repo, api.AnnoSinkExec)
	if annotation == "" {
		return nil
	}
	argv, err := sink.PermitExec(annotation, r.o.SinkPrograms)
	if err != nil {
		return fmt.Errorf("annotation %s of repository %s: %w", api.AnnoSinkExec, r.target.Repository, err)
	}
	output, ran, err := r.programs.Run(ctx, target, r.owner(), r.status.lastRef, argv)
	if ran && err == nil {
		r.log.Info("sink exec succeeded", "repo", r.target.Repository, "namespace", r.Namespace, "program", argv[0], "output", output)
	}
	return err
}

// keepsEdits reports whether a Repository says that edits of its directory stay. Without a word
// they are taken back, as ever.
func keepsEdits(repo *unstructured.Unstructured) bool {
	mode := api.Annotation(repo, api.AnnoDrift)
	return mode == api.DriftReport || mode == api.DriftOff
}

// errNotNow reports that the Repository has changed or that a pull of it runs: the watch brings it
// again.
var errNotNow = errors.New("the repository changes")

// pulled reports whether the last pull that has succeeded was one of the present spec, as far as it
// is known, and is to stay on the disk.
func (p *Pull) pulled(repo *unstructured.Unstructured, view api.Repository) bool {
	source := view.Status.Sync.Source.Hash
	return view.Status.Sync.LastRef != "" && view.Spec.Sync.Enabled && (source == "" || source == p.sourceHash(repo, view)) &&
		repo.GetDeletionTimestamp() == nil && repo.GetLabels()[api.LabelPendingDelete] == ""
}

// inSink returns an error unless the directory is at a commit and of the present source, as far as
// the sizes and the times of its files tell. Another host that has pulled the same commit from
// another path leaves this one's source as it was.
func (r *pull) inSink(target sink.Target, commit string) error {
	has, source, err := sink.Check(target, r.owner())
	switch {
	case err != nil:
		return err
	case has != commit:
		return fmt.Errorf("%s is at commit %s", target, checkout.ShortHash(has))
	case source != "" && source != r.sourceHash(r.Repo, r.Repository):
		return fmt.Errorf("%s was written with other settings", target)
	}
	return nil
}

// restoreSink writes the commit of the last pull into the directory. A commit in the mirror needs
// no request.
func (r *pull) restoreSink(ctx context.Context, target sink.Target) error {
	var err error
	if r.at, err = r.checkout(ctx, r.Task, r.log); err != nil {
		return err
	}
	if err := r.trusted(ctx); err != nil {
		return err
	}
	if r.at.Trust == nil || !r.at.Trust.Tag() { // else the tag object is verified as well
		r.at.Selector = gitref.Selector{Commit: r.status.lastRef}
	}
	for _, step := range []func(context.Context) error{r.at.LookUp, r.at.Fetch, r.verify} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if r.at.Ref.Hash != r.status.lastRef {
		return errNotNow
	}
	r.content = r.at.Content()
	defer r.content.Close()
	tree, err := r.gitTree(ctx)
	if err != nil {
		return err
	}
	dir, err := sink.Open(ctx, target, r.owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := r.stillLast(ctx, target); err != nil {
		return err
	}
	return r.writeTree(ctx, target, dir, tree)
}

// stillLast returns errNotNow unless the commit is still that of the last pull. The caller has the
// lock of the directory: a pull of this host that has written a later commit has ended, or its
// state is still working.
func (r *pull) stillLast(ctx context.Context, target sink.Target) error {
	now, err := r.o.Client.Resource(api.Repositories).Namespace(r.Namespace).Get(ctx, r.target.Repository, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errNotNow
	}
	if err != nil {
		return err
	}
	view, err := api.RepositoryView(now)
	if err != nil {
		return err
	}
	sync, dir := view.Status.Sync, now.GetAnnotations()[api.AnnoSinkDir]
	_, _, broken := sink.Check(target, r.owner())
	running := sync.State == api.StateWorking || sync.State == api.StatePending
	if !r.pulled(now, view) || now.GetUID() != r.Repo.GetUID() || dir != r.Repo.GetAnnotations()[api.AnnoSinkDir] ||
		sync.LastRef != r.status.lastRef || sync.Source != r.Repository.Status.Sync.Source || running && broken == nil {
		return errNotNow
	}
	r.status.object = now
	return nil
}

// sinkReady is the condition of a directory that holds the commit of the last pull.
var sinkReady = api.Condition{Type: api.ConditionSinkReady, Status: "True", Reason: "UpToDate", Message: "The directory is up to date"}

// maxSinkError bounds the message of the condition. Unit: bytes.
const maxSinkError = 500

// reportSink writes the condition where it differs. A problem of another host is left to that host,
// and to the next pull.
func (r *pull) reportSink(ctx context.Context, problem error) error {
	host, _ := os.Hostname()
	ready := sinkReady
	if problem != nil {
		ready.Status, ready.Reason = "False", "WriteFailed"
		if e, is := errors.AsType[*sink.ExecError](problem); is {
			ready.Reason = e.Reason
		}
		ready.Message = text.Line(host+": "+text.Redact(problem.Error()), maxSinkError)
	}
	return r.status.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		list, _, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
		if _, old := api.FindCondition(list, ready.Type); old["status"] == "False" && !strings.HasPrefix(fmt.Sprint(old["message"]), host+": ") {
			return nil
		}
		list, changed := api.SetConditions(repo, r.status.now(), ready)
		if !changed {
			return nil
		}
		return []patch.Op{patch.Version(repo), patch.Add("/status/conditions", list)}
	})
}
