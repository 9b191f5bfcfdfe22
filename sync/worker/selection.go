package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/commit"
)

// deleteOrder removes files and directories from the branch of a Repository or from another one.
func deleteOrder(w *Write, t *jobs.Task) (order, error) {
	o := t.Job.Spec.Delete
	if err := checkSelection(t, o); err != nil {
		return order{}, err
	}
	return w.selectionOrder(o, "Delete from Grafana "+t.Name, resources.Deleted, nil), nil
}

// moveOrder moves files and directories to another directory of a Repository, where they keep their
// names.
func moveOrder(w *Write, t *jobs.Task) (order, error) {
	o := t.Job.Spec.Move
	if err := checkSelection(t, o); err != nil {
		return order{}, err
	}
	target := strings.TrimPrefix(o.TargetPath, "/")
	if o.TargetPath == "" || !repopath.IsDir(target) {
		return order{}, fmt.Errorf("spec.move.targetPath is %q: it has to be a directory, with a slash at its end", o.TargetPath)
	}
	if err := repopath.CheckPath(target); err != nil {
		return order{}, fmt.Errorf("spec.move.targetPath: %w", err)
	}
	to := func(path string) string {
		if repopath.IsDir(path) {
			return target + repopath.Base(path) + "/"
		}
		return target + repopath.Base(path)
	}
	return w.selectionOrder(o, "Move files from Grafana "+t.Name, resources.Renamed, to), nil
}

// selectionOrder returns one edit for each path of the job and of its resources, which are looked up
// once. to returns where a path goes.
func (w *Write) selectionOrder(
	o *api.SelectionOptions, message string, action resources.Action, to func(path string) string,
) order {
	changes := func(ctx context.Context, r *commit.Run) (c commit.Changes, err error) {
		if r.Saved.Paths == nil {
			if r.Saved.Paths, err = w.paths(ctx, r.Task, o, action); err != nil {
				return c, err
			}
		}
		for _, path := range r.Saved.Paths {
			e := commit.Edit{
				File:   git.Edit{Path: within(r.Checkout.Dir, path)},
				Result: resources.Result{Action: action, Path: path},
			}
			if to != nil {
				e.File.To = within(r.Checkout.Dir, to(path))
			}
			c.Edits = append(c.Edits, e)
		}
		return c, nil
	}
	return order{Order: commit.Order{Ref: o.Ref, Message: message, Changes: changes}, then: w.pullAfter}
}

// checkRef validates the name of a branch in an option of the job.
func checkRef(t *jobs.Task, option, ref string) error {
	if err := auth.CheckRefName(ref); ref != "" && err != nil {
		return fmt.Errorf("spec.%s.%s: %w", t.Job.Spec.Action, option, err)
	}
	return nil
}

// checkSelection validates the options of a job that names what it changes.
func checkSelection(t *jobs.Task, o *api.SelectionOptions) error {
	switch {
	case o == nil:
		return fmt.Errorf("the job has no options: spec.%s is missing", t.Job.Spec.Action)
	case len(o.Paths)+len(o.Resources) == 0:
		return fmt.Errorf("spec.%s names no path and no resource", t.Job.Spec.Action)
	}
	for _, path := range o.Paths {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	return checkRef(t, "ref", o.Ref)
}

// checkPath returns an error for a path outside of the directory of the Repository, and for the
// directory itself.
func checkPath(path string) error {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return errors.New("a path is empty; the whole repository is never meant")
	}
	return repopath.CheckPath(path)
}

// paths returns the paths of a job, without those inside a directory that is listed too.
func (w *Write) paths(
	ctx context.Context, t *jobs.Task, o *api.SelectionOptions, action resources.Action,
) ([]string, error) {
	var all []string
	for _, path := range o.Paths {
		all = append(all, strings.TrimPrefix(path, "/"))
	}
	if len(o.Resources) > 0 {
		t.Progress.SetMessage(ctx, "find the files of the resources")
	}
	for _, ref := range o.Resources {
		path, err := w.locate(ctx, t, ref)
		if jobs.Transient(err) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			err = fmt.Errorf("find the file of %s %s: %w", ref.Kind, ref.Name, err)
			t.Progress.Record(ctx, resources.Result{Action: action, Group: ref.Group, Kind: ref.Kind, Name: ref.Name, Err: err})
			return nil, err
		}
		all = append(all, path)
	}
	out := []string{}
	for _, path := range all {
		covered := slices.ContainsFunc(all, func(dir string) bool {
			return dir != path && repopath.IsDir(dir) && strings.HasPrefix(path, dir)
		})
		if !covered && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// locate returns the file or the directory that an object was created from.
func (w *Write) locate(ctx context.Context, t *jobs.Task, ref api.ResourceRef) (string, error) {
	server, err := w.pull.server(ctx, t.Namespace, t.Last)
	if err != nil {
		return "", err
	}
	kind := server.Kinds.Of(ref.Group, ref.Kind)
	if i := slices.IndexFunc(server.Kinds, func(k resources.Kind) bool { return k.Kind == ref.Kind }); ref.Group == "" && i >= 0 {
		kind = server.Kinds[i]
	}
	if kind.Refused != "" {
		return "", fmt.Errorf("kind %s is %s", ref.Kind, kind.Refused)
	}
	what := resources.Ref{Group: kind.Group, Resource: kind.Resource, Name: ref.Name}
	live, err := server.Get(ctx, what, false)
	switch {
	case apierrors.IsNotFound(err):
		return "", errors.New("there is no such object")
	case err != nil:
		return "", err
	case !resources.Manages(t.Repo.GetName(), live.Annotations):
		return "", fmt.Errorf("it does not belong to repository %q", t.Repo.GetName())
	}
	path := live.Annotations[api.AnnoSourcePath]
	if what.Group == api.FolderGroup && path != "" {
		path = repopath.AsDir(path)
	}
	return path, checkPath(path)
}

// within converts a path relative to the directory of a Repository to one relative to the root of
// its Git repository.
func within(dir, path string) string {
	if dir == "" {
		return path
	}
	return dir + "/" + path
}
