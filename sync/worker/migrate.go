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
	"limpet/sync/auth"
	"limpet/sync/failpoint"
	"limpet/sync/jobs"
	"limpet/sync/resources"
)

// A migration exports objects with their UIDs. On the branch of the Repository a full pull then takes them over; on
// another one they are deleted, and come back when that branch is merged. What was exported is kept with the resource
// versions: an object that somebody has changed since is neither overwritten nor deleted.

// exported is an object that is in the commit.
type exported struct {
	Kind    string `json:"k"`
	Name    string `json:"n"`
	Version string `json:"v"` // its resourceVersion
}

func (e exported) identity() resources.Identity {
	if e.Kind == "Folder" {
		return resources.Identity{Group: api.FolderGroup, Kind: e.Kind, Name: e.Name}
	}
	return resources.Identity{Group: api.DashboardGroup, Kind: e.Kind, Name: e.Name}
}

// takeOver returns the objects that a pull takes over, with their resource versions. A folder may have changed: its file
// has all that is synced of it.
func (s *staged) takeOver() map[resources.Identity]string {
	out := map[resources.Identity]string{}
	if s == nil {
		return out
	}
	for _, e := range s.Exported {
		if out[e.identity()] = e.Version; e.Kind == "Folder" {
			out[e.identity()] = ""
		}
	}
	return out
}

// NewMigrate returns the worker of migrate jobs, which move the folders and dashboards without a manager, or some
// dashboards, into a Repository. p pulls them; keys may be nil.
func NewMigrate(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "migrate", func(t *jobs.Task) (order, error) {
		o, target := t.Job.Spec.Migrate, t.Repository.Spec.Sync.Target
		if o != nil && len(o.Resources) > 0 && target == "instance" {
			return order{}, fmt.Errorf(`spec.migrate.resources: sync target "instance" takes all resources; only "folder" and "folderless" take some`)
		}
		if dir := t.Repo.GetAnnotations()[api.AnnoSinkDir]; dir != "" {
			return order{}, fmt.Errorf("repository %q is pulled into a directory (annotation %s), which cannot take objects over",
				t.Repo.GetName(), api.AnnoSinkDir)
		}
		return exportOrder(t, o, true, func(ctx context.Context, r *staging) error {
			switch {
			case r.order.ref != "" && r.order.ref != r.note.Own:
				if r.link(); o.SkipResourceDeletion {
					return nil
				}
				return r.removeExported(ctx, false)
			case len(r.note.Exported) == 0:
				r.link()
				return nil
			}
			r.order.ref = ""
			if err := pullAfter(ctx, r); err != nil || target != "instance" || r.Progress.Outcome(nil).State != api.StateSuccess {
				return err
			}
			return r.removeExported(ctx, true)
		})
	}}
}

// removeExported deletes the exported objects that are unchanged and have no manager: the dashboards, and with folders
// those that are empty then.
func (r *staging) removeExported(ctx context.Context, folders bool) error {
	r.Progress.SetMessage(ctx, "delete exported objects")
	versions := map[resources.Identity]string{}
	for _, e := range r.note.Exported {
		versions[e.identity()] = e.Version
	}
	s, inside := r.server(r.Namespace, r.Last), map[string]int{} // objects by folder
	var gone []resources.Live
	ref := resources.Ref{Group: api.DashboardGroup, Resource: resources.DashboardResource}
	err := pages(ctx, s, ref, metadataList, func(_ string, page []resources.Live) error {
		for _, live := range page {
			if _, listed := versions[resources.Identity{Group: ref.Group, Kind: "Dashboard", Name: live.Name}]; listed && !resources.Managed(live.Annotations) {
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
			left, err := r.removeOne(within, s, ref, &live, versions)
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
	return r.removeFolders(ctx, s, versions, inside)
}

// removeFolders deletes the exported folders that are empty, the deepest first.
func (r *staging) removeFolders(ctx context.Context, s *server, versions map[resources.Identity]string, inside map[string]int) error {
	all, err := s.folderList(ctx)
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
			_, listed := versions[resources.Identity{Group: ref.Group, Kind: "Folder", Name: f.Name}]
			if done[f.Name] || !listed || resources.Managed(f.Annotations) || inside[f.Name] > 0 {
				continue
			}
			left, err := r.removeOne(ctx, s, ref, f, versions)
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

// removeOne deletes an object if it is the exported one, and records that. It reports whether the object is left.
func (r *staging) removeOne(ctx context.Context, s *server, ref resources.Ref, live *resources.Live, versions map[resources.Identity]string) (left bool, err error) {
	item := live.Item(ref.Group, ref.Resource)
	ref.Name = live.Name
	res := resources.Result{Action: resources.Deleted, Group: ref.Group, Kind: item.Kind(), Name: live.Name}
	within, cancel := context.WithTimeoutCause(ctx, resources.ItemTimeout, errors.New("no answer"))
	defer cancel()
	changed := versions[item.Identity()] != live.ResourceVersion
	if !changed {
		err = s.Delete(within, ref, live.UID, live.ResourceVersion)
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
	r.Progress.Record(ctx, res)
	return res.Err != nil || res.Warning != nil, cmp.Or(failpoint.Pass(failpoint.Applying), r.Progress.TooManyErrors())
}
