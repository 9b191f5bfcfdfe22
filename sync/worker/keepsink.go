package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// KeepSink brings the directory of a Repository on this host to the commit of the last pull and
// returns the number of its files when it has written any. It does nothing for a Repository whose
// directory is not below a prefix of this agent.
//
// A job writes the directory of one host, and status.sync.lastRef is the commit of all. Each agent
// compares its own disk with it and writes what is missing without a job: the pull may have run on
// another host, and files may be gone since.
func (p *Pull) KeepSink(ctx context.Context, object *unstructured.Unstructured) (int, error) {
	if _, named, err := p.sinkOf(object); !named || err != nil {
		return 0, nil
	}
	repo, err := p.read(object)
	if err != nil || !repo.pulled() {
		return 0, err
	}
	status := &syncStatus{client: p.o.Client, namespace: repo.namespace(), name: repo.name(), object: object}
	if err := status.read(); err != nil {
		return 0, err
	}
	progress, may := jobs.NewProgress(), terms{massDelete: repo.view.Status.Sync.Source.AllowMassDelete}
	r := &pull{terms: may, worker: p, repo: repo, status: status, unread: &unread{progress: progress}, progress: progress, log: p.o.Logger}
	if r.directory, err = p.directory(repo, progress); err != nil {
		return 0, err
	}
	edited := false
	if repo.keepsEdits() {
		has, _, _ := sink.Check(r.directory.At, r.directory.Owner())
		edited = has == status.lastRef
	}
	if !edited && r.directory.Holds(status.lastRef) != nil {
		if err = r.restoreSink(ctx); err == nil {
			err = status.reportSink(ctx, nil) // before the program, which may hang
		}
	}
	if err == nil {
		err = p.execSink(ctx, repo, r.directory)
	}
	done := int(r.counted[target.SinkFiles])
	if ctx.Err() != nil || errors.Is(err, errNotNow) {
		return done, context.Cause(ctx)
	}
	return done, errors.Join(err, status.reportSink(ctx, err))
}

// execSink runs the program of the Repository if its directory was switched.
func (p *Pull) execSink(ctx context.Context, repo repository, directory *target.Directory) error {
	annotation := api.Annotation(repo.object, api.AnnoSinkExec)
	if annotation == "" {
		return nil
	}
	name := repo.name()
	argv, err := sink.PermitExec(annotation, p.o.SinkPrograms)
	if err != nil {
		return fmt.Errorf("annotation %s of repository %s: %w", api.AnnoSinkExec, name, err)
	}
	output, ran, err := p.programs.Run(ctx, directory.At, directory.Owner(), repo.view.Status.Sync.LastRef, argv)
	if ran && err == nil {
		p.o.Logger.Info("sink exec succeeded", "repo", name, "namespace", repo.namespace(), "program", argv[0], "output", output)
	}
	return err
}

// errNotNow reports that the Repository has changed or that a pull of it runs: the watch brings it
// again.
var errNotNow = errors.New("the repository changes")

// pulled reports whether the last pull that has succeeded was one of the present spec, as far as it
// is known, and is to stay on the disk.
func (r repository) pulled() bool {
	sync := r.view.Status.Sync
	return sync.LastRef != "" && r.view.Spec.Sync.Enabled && (sync.Source.Hash == "" || sync.Source.Hash == r.sourceHash()) &&
		r.object.GetDeletionTimestamp() == nil && r.object.GetLabels()[api.LabelPendingDelete] == ""
}

// restoreSink writes the commit of the last pull into the directory. A commit in the mirror needs
// no request.
func (r *pull) restoreSink(ctx context.Context) error {
	var err error
	if r.at, err = r.worker.checkout(ctx, r.repo, r.progress, r.log); err != nil {
		return err
	}
	if err := r.at.ReadTrust(ctx); err != nil {
		return err
	}
	if r.at.Trust == nil || !r.at.Trust.Tag() { // else the tag object is verified as well
		r.at.Selector = gitref.Selector{Commit: r.status.lastRef}
	}
	for _, step := range []func(context.Context) error{r.at.LookUp, r.at.Fetch, r.at.VerifyFetched} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if r.at.Ref.Hash != r.status.lastRef {
		return errNotNow
	}
	r.content = r.at.Content()
	defer r.content.Close()
	tree, err := r.tree(ctx)
	if err != nil {
		return err
	}
	dir, err := sink.Open(ctx, r.directory.At, r.directory.Owner())
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := r.stillLast(ctx); err != nil {
		return err
	}
	plan, err := r.planDirectory(ctx, dir, tree, r.unread)
	if err != nil {
		return err
	}
	if r.repo.view.Status.Sync.Source.Hash == "" && len(plan.Removed) > 0 {
		return errNotNow // no pull has deleted as much
	}
	return r.writeDirectory(ctx, dir, plan)
}

// stillLast returns errNotNow unless the commit is still that of the last pull. The caller has the
// lock of the directory: a pull of this host that has written a later commit has ended, or its
// state is still working.
func (r *pull) stillLast(ctx context.Context) error {
	object, err := r.worker.o.Client.Resource(api.Repositories).Namespace(r.repo.namespace()).Get(ctx, r.repo.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errNotNow
	}
	if err != nil {
		return err
	}
	now, err := r.worker.read(object)
	if err != nil {
		return err
	}
	sync, dir := now.view.Status.Sync, object.GetAnnotations()[api.AnnoSinkDir]
	_, _, broken := sink.Check(r.directory.At, r.directory.Owner())
	running := sync.State == api.StateWorking || sync.State == api.StatePending
	if !now.pulled() || now.uid() != r.repo.uid() || dir != r.repo.object.GetAnnotations()[api.AnnoSinkDir] ||
		sync.LastRef != r.status.lastRef || sync.Source != r.repo.view.Status.Sync.Source || running && broken == nil {
		return errNotNow
	}
	r.status.object = object
	return nil
}

// sinkReady is the condition of a directory that holds the commit of the last pull.
var sinkReady = api.Condition{Type: api.ConditionSinkReady, Status: "True", Reason: "UpToDate", Message: "The directory is up to date"}

// maxSinkError bounds the message of the condition. Unit: bytes.
const maxSinkError = 500

// reportSink writes the condition where it differs. A problem of another host is left to that host,
// and to the next pull.
func (s *syncStatus) reportSink(ctx context.Context, problem error) error {
	host, _ := os.Hostname()
	ready := sinkReady
	if problem != nil {
		ready.Status, ready.Reason = "False", "WriteFailed"
		if e, is := errors.AsType[*sink.ExecError](problem); is {
			ready.Reason = e.Reason
		}
		ready.Message = text.Line(host+": "+text.Redact(problem.Error()), maxSinkError)
	}
	return s.patch(ctx, func(repo *unstructured.Unstructured) []patch.Op {
		list, _, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
		if _, old := api.FindCondition(list, ready.Type); old["status"] == "False" && !strings.HasPrefix(fmt.Sprint(old["message"]), host+": ") {
			return nil
		}
		list, changed := api.SetConditions(repo, s.now(), ready)
		if !changed {
			return nil
		}
		return []patch.Op{patch.Version(repo), patch.Add("/status/conditions", list)}
	})
}
