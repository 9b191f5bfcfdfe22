package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/target"
)

// A migration exports objects with their UIDs. On the branch of the Repository a full pull then
// takes them over; on another one they are deleted, and come back when that branch is merged. What
// was exported is kept with the resource versions: an object that somebody has changed since is
// neither overwritten nor deleted.

// migrateOrder moves the folders and dashboards without a manager, or some dashboards, into a
// Repository.
func migrateOrder(w *Write, t *jobs.Task) (order, error) {
	o, target := t.Job.Spec.Migrate, t.Repository.Spec.Sync.Target
	if o != nil && len(o.Resources) > 0 && target == "instance" {
		return order{}, errors.New(`spec.migrate.resources: sync target "instance" takes all; only "folder" and "folderless" take some`)
	}
	if t.Repo.GetAnnotations()[api.AnnoSinkDir] != "" {
		return order{}, fmt.Errorf("repository %q has the annotation %s: a directory cannot take objects over",
			t.Repo.GetName(), api.AnnoSinkDir)
	}
	exports, err := w.exportOrder(t, o, true)
	then := func(ctx context.Context, r *commit.Run) error {
		switch {
		case r.Order.Ref != "" && r.Order.Ref != r.Saved.Own:
			if r.Link(); o.SkipResourceDeletion {
				return nil
			}
			return w.removeExported(ctx, r, false)
		case len(r.Saved.Exported()) == 0:
			r.Link()
			return nil
		}
		err := w.pullOwn(ctx, r)
		pulled := err == nil && t.Repository.Spec.Sync.Enabled && r.Task.Progress.Outcome(nil).State == api.StateSuccess
		if !pulled || target != "instance" {
			return err
		}
		return w.removeExported(ctx, r, true)
	}
	return order{Order: exports, then: then}, err
}

// exportRemover deletes the objects of a migration.
type exportRemover struct {
	server   *target.API
	progress *jobs.Progress
	versions map[resources.Identity]string // of the exported objects
}

// removeExported deletes the exported objects that are unchanged and have no manager: the
// dashboards, and with folders those that are empty then.
func (w *Write) removeExported(ctx context.Context, r *commit.Run, folders bool) error {
	r.Task.Progress.SetMessage(ctx, "delete exported objects")
	versions := map[resources.Identity]string{}
	for _, e := range r.Saved.Exported() {
		versions[e.Identity()] = e.Version
	}
	s, err := w.pull.server(ctx, r.Task.Namespace, r.Task.Last)
	if err != nil {
		return err
	}
	remover := &exportRemover{server: s, progress: r.Task.Progress, versions: versions}
	inside := map[string]int{} // objects by folder
	var gone []resources.Live
	ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource}
	err = target.Each(ctx, s, ref, target.MetadataList, func(_ string, page []resources.Live) error {
		for _, live := range page {
			_, listed := versions[resources.Identity{Group: ref.Group, Kind: "Dashboard", Name: live.Name}]
			if listed && !resources.Managed(live.Annotations) {
				gone = append(gone, live)
			} else {
				inside[live.Annotations[api.AnnoFolder]]++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards inside
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(resources.DefaultParallel)
	for _, live := range gone {
		g.Go(func() error {
			left, err := remover.remove(within, ref, &live)
			if left {
				mu.Lock()
				defer mu.Unlock()
				inside[live.Annotations[api.AnnoFolder]]++
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || !folders {
		return err
	}
	return remover.folders(ctx, inside)
}

// folders deletes the exported folders that are empty, the deepest first.
func (r *exportRemover) folders(ctx context.Context, inside map[string]int) error {
	all, err := r.server.Folders(ctx, maxFolders)
	if err != nil {
		return err
	}
	for _, f := range all {
		inside[f.Annotations[api.AnnoFolder]]++
	}
	ref := resources.Ref{Group: api.FolderGroup, Resource: resources.FolderResource}
	done := map[string]bool{}
	for more := true; more; {
		more = false
		for _, f := range all {
			_, listed := r.versions[resources.Identity{Group: ref.Group, Kind: "Folder", Name: f.Name}]
			if done[f.Name] || !listed || resources.Managed(f.Annotations) || inside[f.Name] > 0 {
				continue
			}
			left, err := r.remove(ctx, ref, f)
			if err != nil {
				return err
			}
			if done[f.Name] = true; !left {
				inside[f.Annotations[api.AnnoFolder]]--
				more = true
			}
		}
	}
	return nil
}

// remove deletes an object if it is the exported one, and records that. It reports whether the object
// is left.
func (r *exportRemover) remove(ctx context.Context, ref resources.Ref, live *resources.Live) (left bool, err error) {
	item := live.Item(r.server.Kinds.Named(ref.Group, ref.Resource))
	ref.Name = live.Name
	res := resources.Result{Action: resources.Deleted, Group: ref.Group, Kind: item.Kind, Name: live.Name}
	within, cancel := context.WithTimeoutCause(ctx, resources.ItemTimeout, errors.New("no answer"))
	defer cancel()
	changed := r.versions[item.Identity()] != live.ResourceVersion
	if !changed {
		err = r.server.Delete(within, ref, live.UID, live.ResourceVersion)
	}
	switch {
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case jobs.Transient(err):
		return true, err
	case changed || apierrors.IsConflict(err):
		res.Action, res.Warning = resources.Ignored, fmt.Errorf("%s has changed since it was exported, so it was not deleted", item.Identity())
	case err != nil && !apierrors.IsNotFound(err):
		res.Err = err
	}
	r.progress.Record(ctx, res)
	return res.Err != nil || res.Warning != nil, cmp.Or(failpoint.Pass(failpoint.Applying), r.progress.TooManyErrors())
}
