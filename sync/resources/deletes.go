package resources

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
)

// deleteFile deletes the object of a file that is gone.
func (r *run) deleteFile(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	done, err := r.remove(item, *c.Existing)
	r.record(ctx, item, c, c.Existing.Identity(), done, err)
}

// deleteFolder deletes the folder of a directory that is gone, or that has
// another one now, unless something in it is still there.
func (r *run) deleteFolder(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	id := c.Existing.Identity()
	r.mu.Lock()
	kept := r.failed[c.Path] || r.broken[c.Path] || r.occupied[c.Existing.Name]
	r.mu.Unlock()
	if kept {
		r.keepFolder(c.Existing.Folder)
		r.record(ctx, item, c, id, Ignored, &SkippedError{Reason: fmt.Sprintf("%s was not deleted, because a change in %s did not succeed", id, c.Path)})
		return
	}
	done, err := r.remove(item, *c.Existing)
	r.record(ctx, item, c, id, done, err)
}

// sweep deletes what files had before they named another object, unless another
// file has taken it over.
func (r *run) sweep(ctx context.Context) error {
	var changes []Change
	for _, c := range r.plan.WriteFiles {
		for _, item := range c.Replaces {
			if !r.claims.taken(item.Identity()) {
				changes = append(changes, Change{Action: Deleted, Path: c.Path, Existing: &item})
			}
		}
	}
	return r.parallel(ctx, changes, r.deleteFile)
}

// remove deletes the object if it still is what the item says: managed by this
// repository and made from that path. An object that is gone already counts as
// deleted; one that belongs to another path now is left to that path.
func (r *run) remove(ctx context.Context, item Item) (Action, error) {
	ref := Ref{Group: item.Group, Resource: item.Resource, Name: item.Name}
	old := item.live()
	var err error
	for range conflicts {
		if old == nil {
			if old, err = r.Server.Get(ctx, ref, false); apierrors.IsNotFound(err) {
				r.unmade(item.Resource)
				return Deleted, nil
			} else if err != nil {
				return Deleted, err
			}
			if err = checkManaged(r.plan.target.Repository, item.Identity(), old.Annotations); err != nil {
				return Deleted, err
			}
			if was := (Item{Group: item.Group, Path: old.Annotations[api.AnnoSourcePath]}).normal().Path; was != item.Path {
				return Ignored, nil
			}
		}
		err = r.Server.Delete(ctx, ref, old.UID, old.ResourceVersion)
		if err == nil || apierrors.IsNotFound(err) {
			r.unmade(item.Resource)
			return Deleted, nil
		}
		if !apierrors.IsConflict(err) {
			return Deleted, err
		}
		old = nil
	}
	return Deleted, err
}
