package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git/gitref"
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
	r, err := p.withoutJob(ctx, repo, terms{massDelete: repo.view.Status.Sync.Source.AllowMassDelete})
	if err != nil {
		return 0, err
	}
	if r.directory, err = p.directory(repo, r.progress); err != nil {
		return 0, err
	}
	good := p.looks.spared(r.directory, r.status.LastRef)
	if !good && r.directory.KeepEdits {
		has, _, _ := sink.Check(r.directory.At, r.directory.Owner())
		good = has == r.status.LastRef
	}
	if !good && r.directory.Holds(r.status.LastRef) != nil {
		if err = r.restoreSink(ctx); err == nil {
			err = r.status.ReportSink(ctx, nil) // before the program, which may hang
		}
	}
	if err == nil {
		err = p.execSink(ctx, repo, r.directory)
	}
	done := int(r.counted[target.SinkFiles])
	if ctx.Err() != nil || errors.Is(err, errNotNow) {
		return done, context.Cause(ctx)
	}
	return done, errors.Join(err, r.status.ReportSink(ctx, err))
}

// looks are the times when all files of the directories of this host were compared with their
// manifests. A pull has just compared what it did not write.
type looks struct {
	mu sync.Mutex // guards of
	of map[string]look
}

type look struct {
	whole time.Time // the last comparison of all files
	wrote string    // the commit that a pull has written since; "" = none
}

// mostUnseen is how long a file may be edited in place without a comparison that finds it, while a
// pull follows the other.
const mostUnseen = time.Minute

// wrote notes a pull into a directory.
func (l *looks) wrote(d *target.Directory, commit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[d.At.String()] = look{l.of[d.At.String()].whole, commit}
}

// spared reports whether the pull of a commit has just ended, so that its files need no comparison.
// Otherwise the caller compares them.
func (l *looks) spared(d *target.Directory, commit string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, now := l.of[d.At.String()], time.Now()
	spared := last.wrote == commit && now.Sub(last.whole) < mostUnseen
	if !spared {
		last.whole = now
	}
	l.of[d.At.String()] = look{whole: last.whole}
	return spared
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
		r.at.Selector = gitref.Selector{Commit: r.status.LastRef}
	}
	for _, step := range []func(context.Context) error{r.at.LookUp, r.at.Fetch, r.at.VerifyFetched} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if r.at.Ref.Hash != r.status.LastRef {
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
		sync.LastRef != r.status.LastRef || sync.Source != r.repo.view.Status.Sync.Source || running && broken == nil {
		return errNotNow
	}
	r.status.Object = object
	return nil
}
