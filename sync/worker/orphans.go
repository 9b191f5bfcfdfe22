package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/failpoint"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// Orphans removes or releases the objects that a deleted Repository manages, or the files of its
// directory. Both operations are idempotent, so an interrupted one is simply repeated.
type Orphans struct{ pull *Pull }

// NewOrphans takes the options of the pulls that made the objects.
func NewOrphans(o PullOptions) *Orphans {
	o.Parallel = cmp.Or(o.Parallel, resources.DefaultParallel)
	return &Orphans{NewPull(o)}
}

// RemainingError names the objects that could not be deleted or released.
type RemainingError struct {
	Remaining []Remaining // sorted: the same each time, because it goes into a status
	verb      string      // "deleted" or "released"
	total     int         // number of objects at the start
}

// Remaining is an object that is left, and why.
type Remaining struct {
	Item resources.Item
	Err  error
}

func (l Remaining) String() string { return fmt.Sprintf("%s: %v", l.Item.Identity(), l.Err) }

// mostNames limits the objects that an error names: it goes into a status.
const mostNames = 10

func (e *RemainingError) Error() string {
	var names []string
	for _, l := range e.Remaining[:min(len(e.Remaining), mostNames)] {
		names = append(names, l.String())
	}
	if more := len(e.Remaining) - mostNames; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of %d objects could not be %s: %s", len(e.Remaining), e.total, e.verb, strings.Join(names, "; "))
}

// Unwrap lets a caller detect an unavailable server.
func (e *RemainingError) Unwrap() (errs []error) {
	for _, l := range e.Remaining {
		errs = append(errs, l.Err)
	}
	return errs
}

// Remove deletes everything that repo manages and returns the number of objects: first objects,
// concurrently, then folders, the deepest first. A folder that is not empty stays, and the error
// names it with the reason.
func (o *Orphans) Remove(ctx context.Context, repo *unstructured.Unstructured) (int, error) {
	return o.clean(ctx, repo, true, false, jobs.NewProgress())
}

// Release removes the manager annotations from everything that repo manages; the objects stay,
// without a manager: first folders from the top, then objects, concurrently.
func (o *Orphans) Release(ctx context.Context, repo *unstructured.Unstructured) (int, error) {
	return o.clean(ctx, repo, false, false, jobs.NewProgress())
}

// cleanup is one run over the objects of a repository.
type cleanup struct {
	parallel   int
	server     *target.API
	repository string
	action     resources.Action // of the results
	progress   *jobs.Progress

	mu        sync.Mutex // guards the fields below
	remaining RemainingError
	done      int
	blocked   map[string]bool // folders that are not empty
	away      bool            // the server cannot be reached
}

// clean removes or releases what repo manages, and returns the number of objects. last reports
// whether it is not repeated.
func (o *Orphans) clean(ctx context.Context, repo *unstructured.Unstructured, remove, last bool, progress *jobs.Progress) (int, error) {
	if _, named := repo.GetAnnotations()[api.AnnoSinkDir]; named {
		return o.cleanSink(ctx, repo, remove)
	}
	server, err := o.pull.server(ctx, repo.GetNamespace(), last)
	if err != nil {
		return 0, err
	}
	l := &cleanup{parallel: o.pull.o.Parallel, repository: repo.GetName(), blocked: map[string]bool{}, server: server, action: resources.Updated,
		progress: progress}
	progress.SetMessage(ctx, "list the objects of the repository")
	items, err := l.server.Managed(ctx, l.repository)
	if err != nil {
		return 0, err
	}
	objects, folders := resources.Leaving(items) // the deepest folder first
	progress.SetTotal(ctx, len(items))
	if remove {
		l.action = resources.Deleted
		progress.SetMessage(ctx, "delete the objects of the repository")
		l.remaining = RemainingError{verb: "deleted", total: len(items)}
		l.each(ctx, objects, l.remove)
		for _, folder := range folders {
			if l.blocked[folder.Name] {
				l.fail(ctx, folder, &resources.SkippedError{Reason: "something in it is left"})
			} else {
				l.one(ctx, folder, l.remove)
			}
		}
	} else {
		progress.SetMessage(ctx, "release the objects of the repository")
		l.remaining = RemainingError{verb: "released", total: len(items)}
		for _, folder := range slices.Backward(folders) {
			l.one(ctx, folder, l.release)
		}
		l.each(ctx, objects, l.release)
	}
	switch {
	case ctx.Err() != nil:
		return l.done, context.Cause(ctx)
	case len(l.remaining.Remaining) > 0:
		slices.SortFunc(l.remaining.Remaining, func(a, b Remaining) int {
			return strings.Compare(a.Item.Identity().String(), b.Item.Identity().String())
		})
		return l.done, &l.remaining
	}
	return l.done, nil
}

// deleteOrRelease is done with an object; done is false for one that is not there or has another
// manager now.
type deleteOrRelease func(context.Context, resources.Item) (done bool, err error)

func (l *cleanup) each(ctx context.Context, items []resources.Item, do deleteOrRelease) {
	var g errgroup.Group
	g.SetLimit(l.parallel)
	for _, item := range items {
		g.Go(func() error { l.one(ctx, item, do); return nil })
	}
	_ = g.Wait()
}

// one processes one object within its timeout.
func (l *cleanup) one(ctx context.Context, item resources.Item, do deleteOrRelease) {
	l.mu.Lock()
	away := l.away
	l.mu.Unlock()
	if ctx.Err() != nil || away {
		return
	}
	within, cancel := context.WithTimeout(ctx, resources.ItemTimeout)
	defer cancel()
	done, err := do(within, item)
	err = cmp.Or(err, failpoint.Pass(failpoint.Applying))
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && within.Err() != nil:
		err = fmt.Errorf("not done within %s: %w", resources.ItemTimeout, err)
		fallthrough
	case err != nil:
		l.fail(ctx, item, err)
		return
	}
	action := l.action
	if !done {
		action = resources.Ignored
	}
	l.record(ctx, item, action, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
}

func (l *cleanup) record(ctx context.Context, item resources.Item, action resources.Action, err error) {
	r := resources.Result{Action: action, Group: item.Group, Kind: item.Kind, Name: item.Name, Path: item.Path, Err: err}
	if err != nil && resources.IsWarning(err) {
		r.Err, r.Warning = nil, err
	}
	l.progress.Record(ctx, r)
}

func (l *cleanup) fail(ctx context.Context, item resources.Item, err error) {
	away := errors.As(err, new(*kube.UnavailableError))
	if !away { // else the whole is tried again
		l.record(ctx, item, l.action, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = l.away || away
	l.remaining.Remaining = append(l.remaining.Remaining, Remaining{item, err})
	l.blocked[item.Folder] = true
}

// objectTries is the maximum number of attempts for an object that changes meanwhile.
const objectTries = 3

// owned calls do with the current object, and again if it has changed, unless it is deleted or has
// another manager now.
func (l *cleanup) owned(ctx context.Context, item resources.Item, do func(resources.Ref, *resources.Live) error) (done bool, err error) {
	ref := resources.Ref{Group: item.Group, Resource: item.Resource, Name: item.Name}
	for range objectTries {
		var live *resources.Live
		if live, err = l.server.Get(ctx, ref, false); err == nil {
			if !resources.Manages(l.repository, live.Annotations) {
				return false, nil
			}
			err = do(ref, live)
		}
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return err == nil, nil
		case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err): // a patch whose test fails is answered as invalid
			return false, err
		}
	}
	return false, err
}

func (l *cleanup) remove(ctx context.Context, item resources.Item) (bool, error) {
	return l.owned(ctx, item, func(ref resources.Ref, live *resources.Live) error {
		return l.server.Delete(ctx, ref, live.UID, live.ResourceVersion)
	})
}

// marks are the annotations by which an object belongs to a repository.
var marks = []string{api.AnnoManagedBy, api.AnnoManagerID, api.AnnoSourcePath, api.AnnoSourceChecksum}

func (l *cleanup) release(ctx context.Context, item resources.Item) (bool, error) {
	return l.owned(ctx, item, func(ref resources.Ref, live *resources.Live) error {
		ops := []patch.Op{patch.Test(annotation(api.AnnoManagerID), l.repository)}
		for _, key := range marks {
			if _, set := live.Annotations[key]; set {
				ops = append(ops, patch.Op{Op: "remove", Path: annotation(key)})
			}
		}
		return l.server.Patch(ctx, ref, ops)
	})
}

// annotation returns the JSON pointer of an annotation.
func annotation(name string) string { return "/metadata/annotations/" + patch.Escape(name) }

// cleanSink removes the manifest of the repository's directory, and with remove also the files.
func (o *Orphans) cleanSink(ctx context.Context, repo *unstructured.Unstructured, remove bool) (int, error) {
	target, _, err := o.pull.sinkOf(repo)
	if err != nil {
		return 0, err
	}
	return sink.Leave(ctx, target, repo.GetNamespace()+"/"+repo.GetName(), remove)
}

// Leave is the worker of the actions on what a deleted Repository has left behind.
type Leave struct {
	orphans *Orphans
	action  string
	remove  bool
}

// NewRelease returns the worker of releaseResources, which takes the objects from the Repository
// and keeps them.
func NewRelease(o *Orphans) *Leave { return &Leave{o, "releaseResources", false} }

// NewRemove returns the worker of deleteResources, which deletes the objects.
func NewRemove(o *Orphans) *Leave { return &Leave{o, "deleteResources", true} }

// Action implements jobs.Worker.
func (l *Leave) Action() string { return l.action }

// Ready implements jobs.Worker.
func (l *Leave) Ready(context.Context, jobs.Task) error { return nil }

// Run implements jobs.Worker. The Repository is read again, because one of that name may have been
// created meanwhile.
func (l *Leave) Run(ctx context.Context, t *jobs.Task) error {
	repo, err := l.orphans.pull.o.Client.Resource(api.Repositories).Namespace(t.Namespace).Get(ctx, t.Job.Spec.Repository, metav1.GetOptions{})
	switch {
	case kube.IsAbsent(err):
		repo = new(unstructured.Unstructured)
		repo.SetNamespace(t.Namespace)
		repo.SetName(t.Job.Spec.Repository)
	case err != nil:
		return kube.AsUnavailable(err)
	case repo.GetDeletionTimestamp() == nil:
		return fmt.Errorf("%s needs repository %q to be deleted first, but it exists", l.action, repo.GetName())
	}
	n, err := l.orphans.clean(ctx, repo, l.remove, t.Last, t.Progress)
	if errors.As(err, new(*RemainingError)) && !jobs.Transient(err) {
		return nil // each of its objects is recorded
	}
	if err == nil && n == 0 {
		t.Progress.SetFinalMessage("no resources of the repository are left")
	}
	return err
}
