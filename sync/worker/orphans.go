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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/resources"
	"limpet/sync/worker/sink"
)

// Orphans removes or releases the objects that a deleted Repository manages, or the files of its directory. Both
// operations are idempotent, so an interrupted one is simply repeated.
type Orphans struct{ pull *Pull }

// NewOrphans takes the options of the pulls that made the objects.
func NewOrphans(o PullOptions) *Orphans {
	o.Parallel = cmp.Or(o.Parallel, resources.DefaultParallel)
	return &Orphans{NewPull(o)}
}

// leftError names the objects that could not be deleted or released.
type leftError struct {
	verb  string   // "deleted" or "released"
	total int      // number of objects at the start
	names []string // of the objects that are left, with the reasons
	errs  []error
}

// leftNames limits the objects that an error names: it goes into a status.
const leftNames = 10

func (e *leftError) Error() string {
	txt := fmt.Sprintf("%d of %d objects could not be %s: %s", len(e.names), e.total, e.verb,
		strings.Join(e.names[:min(len(e.names), leftNames)], "; "))
	if more := len(e.names) - leftNames; more > 0 {
		txt += fmt.Sprintf("; and %d more", more)
	}
	return txt
}

// Unwrap lets a caller detect an unavailable server.
func (e *leftError) Unwrap() []error { return e.errs }

// Remove deletes everything that repo manages and returns the number of objects: first objects, concurrently, then
// folders, the deepest first. A folder that is not empty stays, and the error names it with the reason.
func (o *Orphans) Remove(ctx context.Context, repo *unstructured.Unstructured) (int, error) {
	return o.leave(ctx, repo, true)
}

// Release removes the manager annotations from everything that repo manages; the objects stay, without a manager: first
// folders from the top, then objects, concurrently.
func (o *Orphans) Release(ctx context.Context, repo *unstructured.Unstructured) (int, error) {
	return o.leave(ctx, repo, false)
}

// leaving is one run over the objects of a repository.
type leaving struct {
	*Orphans
	server     *server
	repository string

	mu      sync.Mutex // guards the fields below
	left    leftError
	done    int
	blocked map[string]bool // folders that are not empty
}

func (o *Orphans) leave(ctx context.Context, repo *unstructured.Unstructured, remove bool) (int, error) {
	if _, named := repo.GetAnnotations()[api.AnnoSinkDir]; named {
		return o.leaveSink(ctx, repo, remove)
	}
	l := &leaving{Orphans: o, repository: repo.GetName(), blocked: map[string]bool{}, server: o.pull.server(repo.GetNamespace(), false)}
	items, err := l.server.managed(ctx, o.pull.o.Client, l.repository)
	if err != nil {
		return 0, err
	}
	objects, folders := resources.Leaving(items) // the deepest folder first
	if remove {
		l.left = leftError{verb: "deleted", total: len(items)}
		l.each(ctx, objects, l.remove)
		for _, folder := range folders {
			if l.blocked[folder.Name] {
				l.fail(folder, errors.New("something in it is left"))
			} else {
				l.one(ctx, folder, l.remove)
			}
		}
	} else {
		l.left = leftError{verb: "released", total: len(items)}
		for _, folder := range slices.Backward(folders) {
			l.one(ctx, folder, l.release)
		}
		l.each(ctx, objects, l.release)
	}
	switch {
	case ctx.Err() != nil:
		return l.done, context.Cause(ctx)
	case len(l.left.names) > 0:
		slices.Sort(l.left.names) // the same text each time: it goes into a status
		return l.done, &l.left
	}
	return l.done, nil
}

func (l *leaving) each(ctx context.Context, items []resources.Item, do func(context.Context, resources.Item) error) {
	var g errgroup.Group
	g.SetLimit(l.pull.o.Parallel)
	for _, item := range items {
		g.Go(func() error { l.one(ctx, item, do); return nil })
	}
	_ = g.Wait()
}

// one processes one object within its timeout.
func (l *leaving) one(ctx context.Context, item resources.Item, do func(context.Context, resources.Item) error) {
	if ctx.Err() != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, resources.ItemTimeout)
	defer cancel()
	if err := do(within, item); err != nil {
		l.fail(item, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
}

func (l *leaving) fail(item resources.Item, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left.names, l.left.errs = append(l.left.names, fmt.Sprintf("%s: %v", item.Identity(), err)), append(l.left.errs, err)
	l.blocked[item.Folder] = true
}

// objectTries is the maximum number of attempts for an object that changes meanwhile.
const objectTries = 3

// owned calls do with the current object, and again if it has changed. It returns nil for an object that is deleted or
// has another manager now.
func (l *leaving) owned(ctx context.Context, item resources.Item, do func(resources.Ref, *resources.Live) error) (err error) {
	ref := resources.Ref{Group: item.Group, Resource: item.Resource, Name: item.Name}
	for range objectTries {
		var live *resources.Live
		if live, err = l.server.Get(ctx, ref, false); err == nil {
			if !resources.Manages(l.repository, live.Annotations) {
				return nil
			}
			err = do(ref, live)
		}
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err): // a patch whose test fails is answered as invalid
			return err
		}
	}
	return err
}

func (l *leaving) remove(ctx context.Context, item resources.Item) error {
	return l.owned(ctx, item, func(ref resources.Ref, live *resources.Live) error {
		return l.server.Delete(ctx, ref, live.UID, live.ResourceVersion)
	})
}

// marks are the annotations by which an object belongs to a repository.
var marks = []string{api.AnnoManagedBy, api.AnnoManagerID, api.AnnoSourcePath, api.AnnoSourceChecksum}

func (l *leaving) release(ctx context.Context, item resources.Item) error {
	return l.owned(ctx, item, func(ref resources.Ref, live *resources.Live) error {
		ops := []op{{"test", "/metadata/annotations/" + pointer(api.AnnoManagerID), l.repository}}
		for _, key := range marks {
			if _, set := live.Annotations[key]; set {
				ops = append(ops, op{"remove", "/metadata/annotations/" + pointer(key), nil})
			}
		}
		return l.server.patch(ctx, ref, ops)
	})
}

// pointer escapes a member name for a JSON pointer.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// leaveSink removes the manifest of the repository's directory, and with remove also the files.
func (o *Orphans) leaveSink(ctx context.Context, repo *unstructured.Unstructured, remove bool) (int, error) {
	target, _, err := o.pull.sinkOf(repo)
	if err != nil {
		return 0, err
	}
	dir, err := sink.Open(ctx, target, repo.GetNamespace()+"/"+repo.GetName())
	if err != nil {
		if errors.As(err, new(*sink.ForeignError)) {
			return 0, nil // it never belonged to the repository, or is released already
		}
		return 0, err
	}
	defer dir.Close()
	files := dir.Files()
	if remove && files > 0 {
		plan, err := dir.Plan("", nil)
		if err != nil {
			return 0, err
		}
		if err := dir.Write(ctx, plan, nil, func(sink.File) {}); err != nil {
			return 0, err
		}
	}
	return files, dir.Release()
}
