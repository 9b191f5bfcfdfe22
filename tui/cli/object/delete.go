package object

import (
	"context"
	"fmt"
	"io"
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
	Kind string `arg:"" help:"Kind of the object, as for get."`
	Name string `arg:"" help:"Name of the object."`
}

func (c DeleteCommand) Run(ctx context.Context, e *command.Env) error {
	k, err := KindNamed(c.Kind)
	if err != nil {
		return err
	}
	needs := command.Needs{API: true, Group: k.Group}
	var u *unstructured.Unstructured
	var res command.Resource
	effect := ""
	err = e.With(ctx, needs, func(s *command.Session) error {
		if res, err = Resource(ctx, s, k); err != nil {
			return err
		}
		if u, err = findOne(ctx, e, s, k, res, c.Name); err == nil {
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
	err = e.With(ctx, needs, func(s *command.Session) error {
		return s.Client.Resource(res).Namespace(u.GetNamespace()).Delete(ctx, c.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil {
		return err
	}
	result, text := "deleted", fmt.Sprintf("deleted from namespace %s%s", u.GetNamespace(), effect)
	if len(u.GetFinalizers()) > 0 {
		result = "deleting"
		text = fmt.Sprintf("is being deleted from namespace %s%s; %s    # tells what is in the way", u.GetNamespace(), effect,
			e.CommandFor(u.GetNamespace(), "get "+k.Singular+" "+c.Name))
	}
	return e.PrintOne(map[string]string{"kind": k.Kind, "namespace": u.GetNamespace(), "name": c.Name, "result": result},
		k.Singular+"/"+c.Name, func(w io.Writer) { fmt.Fprintf(w, "%s/%s %s\n", k.Singular, c.Name, text) })
}

// deletionEffect describes what happens to what belongs to a deleted object, behind a colon; "" for nothing.
func deletionEffect(ctx context.Context, s *command.Session, k api.Kind, u *unstructured.Unstructured) string {
	switch k.Kind {
	case "Repository":
		return ": " + repositoryEffect(u)
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

// repositoryEffect describes what the finalizers do with the resources of a Repository.
func repositoryEffect(u *unstructured.Unstructured) string {
	has := func(finalizer string) bool { return slices.Contains(u.GetFinalizers(), finalizer) }
	dir := u.GetAnnotations()[api.AnnoSinkDir]
	what := "the folders and dashboards that it has made"
	if dir != "" {
		what = "the files that it has made in " + dir
	}
	switch {
	case has(api.FinalizerRemove) && !has(api.FinalizerRelease):
		what += " are deleted too"
	case has(api.FinalizerRelease) && dir == "":
		what += " stay, and belong to nobody"
	default:
		what += " stay"
	}
	if has(api.FinalizerRemoveJobs) {
		what += ", its waiting jobs are deleted, one that runs is waited for"
	}
	return what
}

// Users are the Repositories that name a Connection, by its namespace and name; nil where they may not be listed.
type Users map[string][]string

func ConnectionUsers(ctx context.Context, s *command.Session, namespace string) (Users, error) {
	items, err := s.List(ctx, api.Repositories, namespace, "", nil, 0)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	out := Users{}
	for i := range items {
		if name, _, _ := unstructured.NestedString(items[i].Object, "spec", "connection", "name"); name != "" {
			key := items[i].GetNamespace() + "/" + name
			out[key] = append(out[key], items[i].GetName())
		}
	}
	return out, err
}

func (u Users) Of(connection *unstructured.Unstructured) []string {
	return u[connection.GetNamespace()+"/"+connection.GetName()]
}

func (u Users) Count(connection *unstructured.Unstructured) string {
	if u == nil {
		return "-"
	}
	return fmt.Sprint(len(u.Of(connection)))
}
