package object

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/tui/cli/command"
)

// DeleteCommand is 'limpet delete'.
type DeleteCommand struct {
	Kind  string `arg:"" help:"Kind of the object, as for get."`
	Name  string `arg:"" help:"Name of the object."`
	Force bool   `help:"Also if a file of --manifests declares it, a repository uses it (connection), or it has content (folder)."`
}

func (c DeleteCommand) Run(ctx context.Context, e *command.Env) error {
	k, version, err := KindNamed(c.Kind)
	if err != nil {
		return err
	}
	needs := command.Needs{API: true, Group: k.Group}
	var u *unstructured.Unstructured
	var res command.Resource
	effect := ""
	err = e.With(ctx, needs, func(s *command.Session) error {
		if res, err = Resource(ctx, s, k, version); err != nil {
			return err
		}
		if u, err = e.FindObject(ctx, s, res, c.Name); err == nil {
			err = OwnedByFile(u, k, "delete "+k.Singular+" "+c.Name, c.Force)
		}
		if err == nil {
			effect = deletionEffect(ctx, s, k, u)
		}
		return err
	})
	if err != nil {
		return err
	}
	// The state file is free for others while the question is open.
	if err := e.Confirm(ctx, fmt.Sprintf("This deletes %s %s for good%s.", k.Singular, u.GetNamespace()+"/"+u.GetName(), effect)); err != nil {
		return err
	}
	uid := u.GetUID() // protects another object that has the name by now
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if c.Force {
		o.GracePeriodSeconds = new(int64)
	}
	err = e.With(ctx, needs, func(s *command.Session) error {
		return s.Client.Resource(res).Namespace(u.GetNamespace()).Delete(ctx, c.Name, o)
	})
	if k.Kind == "Connection" && apierrors.IsInvalid(err) {
		return command.WithHint(err, command.CommandFor(u.GetNamespace(), "delete connection "+c.Name+" --force"))
	}
	if err != nil {
		return err
	}
	result, text := "deleted", fmt.Sprintf("deleted from namespace %s%s", u.GetNamespace(), effect)
	if len(u.GetFinalizers()) > 0 {
		result = "deleting"
		show := cmp.Or(map[string]string{"Repository": "repo show ", "GitRepository": "source show "}[k.Kind], "get "+k.Singular+" ")
		text = fmt.Sprintf("is being deleted from namespace %s%s; %s    # tells what keeps it, if anything does", u.GetNamespace(), effect,
			e.CommandFor(u.GetNamespace(), show+c.Name))
	}
	return e.PrintDone(map[string]string{"kind": k.Kind, "namespace": u.GetNamespace(), "name": c.Name, "result": result},
		k.Singular+"/"+c.Name, "%s/%s %s", k.Singular, c.Name, text)
}

// deletionEffect describes what happens to what belongs to a deleted object, behind a colon; "" for
// nothing.
func deletionEffect(ctx context.Context, s *command.Session, k api.Kind, u *unstructured.Unstructured) string {
	switch k.Kind {
	case "Repository":
		// Its finalizers say what becomes of its resources.
		has := func(finalizer string) bool { return slices.Contains(u.GetFinalizers(), finalizer) }
		what, end, dir := "its folders and dashboards", " stay", u.GetAnnotations()[api.AnnoSinkDir]
		if dir != "" {
			what = "its files in " + dir
		}
		if has(api.FinalizerRemove) && !has(api.FinalizerRelease) {
			end = " are deleted too"
		} else if has(api.FinalizerRelease) && dir == "" {
			end = " stay, unmanaged"
		}
		if has(api.FinalizerRemoveJobs) {
			end += ", its waiting jobs are deleted, one that runs is waited for"
		}
		return ": " + what + end
	case "GitRepository":
		if dir := u.GetAnnotations()[api.AnnoSinkDir]; dir != "" {
			remove := slices.Contains(u.GetFinalizers(), api.FinalizerRemove) && !slices.Contains(u.GetFinalizers(), api.FinalizerRelease)
			return ": its files in " + dir + map[bool]string{true: " are deleted too", false: " stay"}[remove]
		}
	case "Connection":
		using, err := ConnectionUsers(ctx, s, u.GetNamespace())
		if err == nil && len(using.Of(u)) > 0 {
			return ": without its credentials are " + strings.Join(using.Of(u), ", ")
		}
	case "Job":
		if u.GetLabels()[api.LabelClaim] != "" {
			return ": it runs, is cut off, and leaves no record"
		}
		return ": it is not run"
	}
	return ""
}
