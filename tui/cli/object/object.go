package object

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// nouns are the names of kinds in other commands.
var nouns = map[string]string{"repo": "repositories", "repos": "repositories", "source": "gitrepositories", "sources": "gitrepositories"}

// KindNamed finds a kind by plural, singular, short name, Kind or noun of its command, with or without .GROUP or
// .VERSION.GROUP. version is "" unless the word has one.
func KindNamed(word string) (k api.Kind, version string, err error) {
	full, short := schema.ParseResourceArg(strings.ToLower(word))
	if short.Group == "" {
		short.Resource = cmp.Or(nouns[short.Resource], short.Resource)
	}
	for _, k := range api.Kinds {
		names := append([]string{k.Plural, k.Singular, strings.ToLower(k.Kind)}, k.Short...)
		switch {
		case !slices.Contains(names, short.Resource):
		case short.Group == "" || short.Group == k.Group:
			return k, "", nil
		case full != nil && full.Group == k.Group:
			return k, full.Version, nil
		}
	}
	return api.Kind{}, "", unknownKind(fmt.Sprintf("unknown kind %q", word), short.Resource)
}

// Resource returns the resource of a kind, in a version or, for "", in the one that the API prefers.
func Resource(ctx context.Context, s *command.Session, k api.Kind, version string) (command.Resource, error) {
	if version == "" && k.Provisioned() {
		_, v, err := s.Client.Kind(ctx, k.Group, k.Kind)
		if err != nil {
			return command.Resource{}, err
		}
		version = v
	}
	return command.Resource{Group: k.Group, Version: cmp.Or(version, k.Versions[0]), Resource: k.Plural}, nil
}

// GetCommand is 'limpet get'.
type GetCommand struct {
	Kind string `arg:"" help:"repositories, jobs, connections, gitrepositories, dashboards, folders, secrets or another kind."`

	Name     string `arg:"" optional:"" help:"Name of one object."`
	Selector string `short:"l" help:"Label selector."`
	Limit    uint   `help:"Maximum number; 0 = all." default:"0"`
}

func (c GetCommand) Run(ctx context.Context, e *command.Env) error {
	k, version, err := KindNamed(c.Kind)
	if err != nil {
		return err
	}
	if _, err := labels.Parse(c.Selector); err != nil {
		return command.Usagef("limpet get "+k.Plural+" -l site=east", "--selector %s: %w", c.Selector, err)
	}
	return e.With(ctx, command.Needs{API: true, Group: k.Group}, func(s *command.Session) error {
		res, err := Resource(ctx, s, k, version)
		if err != nil {
			return err
		}
		t, row := kindTable(k)
		if c.Name != "" {
			u, err := e.FindObject(ctx, s, res, c.Name)
			if err == nil && version == "" {
				u, _, err = s.Client.Stored(ctx, res, u)
			}
			if err != nil {
				return err
			}
			return e.PrintOne(u.Object, k.Singular+"/"+u.GetName(), func(w io.Writer) {
				cells, _ := row(u)
				t.Add(u.GetNamespace(), "", cells...)
				t.Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
			})
		}
		return e.PrintObjects(ctx, s, res, c.Selector, nil, c.Limit, t, row)
	})
}

// kindTable returns a table with the printer columns of a kind, and what makes its rows.
func kindTable(k api.Kind) (t command.Table, row func(*unstructured.Unstructured) ([]string, error)) {
	t.Wide = []string{"UID"}
	for _, col := range k.Columns {
		t.Columns = append(t.Columns, strings.ToUpper(col.Name))
	}
	return t, func(u *unstructured.Unstructured) (cells []string, _ error) {
		for _, col := range k.Columns {
			cell := col.Text(u.Object)
			if at, err := time.Parse(time.RFC3339, cell); err == nil && col.Type == "date" {
				cell = command.Since(time.Now(), at)
			}
			cells = append(cells, text.OrDash(cell))
		}
		return append(cells, string(u.GetUID())), nil
	}
}

// DeleteCommand is 'limpet delete'.
type DeleteCommand struct {
	Kind  string `arg:"" help:"Kind of the object, as for get."`
	Name  string `arg:"" help:"Name of the object."`
	Force bool   `help:"Also if a file of --manifests declares it, a repository uses it (connection), or it has content (folder)."`
}

// Help is the long help of the command.
func (DeleteCommand) Help() string {
	return "Asks on a terminal only. A repository takes its waiting jobs with it and, as its finalizers say, " +
		"the files of its sink directory or its folders and dashboards."
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

// deletionEffect describes what happens to what belongs to a deleted object, behind a colon; "" for nothing.
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
