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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// nouns are the names of kinds in other commands.
var nouns = map[string]string{"repo": "repositories", "repos": "repositories", "source": "gitrepositories", "sources": "gitrepositories"}

// KindNamed finds a kind by plural, singular, short name or Kind, with or without its group behind a dot, and
// by the noun of its command.
func KindNamed(word string) (api.Kind, error) {
	name, group, _ := strings.Cut(strings.ToLower(word), ".")
	if group == "" {
		name = cmp.Or(nouns[name], name)
	}
	for _, k := range api.Kinds {
		if group != "" && group != k.Group {
			continue
		}
		if slices.Contains(append([]string{k.Plural, k.Singular, strings.ToLower(k.Kind)}, k.Short...), name) {
			return k, nil
		}
	}
	return api.Kind{}, unknownKind(fmt.Sprintf("unknown kind %q", word), name)
}

// Resource returns the resource of a kind, in the version that the API prefers.
func Resource(ctx context.Context, s *command.Session, k api.Kind) (command.Resource, error) {
	version := k.Versions[0]
	if k.Group == api.DashboardGroup || k.Group == api.FolderGroup {
		v, err := s.Client.PreferredVersion(ctx, k.Group)
		if err != nil {
			return command.Resource{}, err
		}
		version = v
	}
	return command.Resource{Group: k.Group, Version: version, Resource: k.Plural}, nil
}

// GetCommand is 'limpet get'.
type GetCommand struct {
	Kind     string `arg:"" help:"Kind: repositories, jobs, historicjobs, connections, dashboards, folders, gitrepositories, secrets, events, leases."`
	Name     string `arg:"" optional:"" help:"Name of one object."`
	Selector string `short:"l" help:"Label selector."`
	Limit    uint   `help:"Maximum number; 0 = all." default:"0"`
}

func (c GetCommand) Run(ctx context.Context, e *command.Env) error {
	k, err := KindNamed(c.Kind)
	if err != nil {
		return err
	}
	if _, err := labels.Parse(c.Selector); err != nil {
		return command.Usagef("limpet get "+k.Plural+" -l site=east", "--selector %s: %w", c.Selector, err)
	}
	return e.With(ctx, command.Needs{API: true, Group: k.Group}, func(s *command.Session) error {
		res, err := Resource(ctx, s, k)
		if err != nil {
			return err
		}
		if c.Name != "" {
			u, err := findOne(ctx, e, s, k, res, c.Name)
			if err != nil {
				return err
			}
			return e.PrintOne(u.Object, k.Singular+"/"+u.GetName(), func(w io.Writer) {
				_ = kindTable(k, []unstructured.Unstructured{*u}).Write(w, e.Flags.Output == "wide", !e.Flags.NoHeaders)
			})
		}
		items, err := s.List(ctx, res, e.Flags.ListNamespace(), c.Selector, nil, c.Limit)
		if err != nil {
			return err
		}
		objects := make([]any, len(items))
		for i := range items {
			objects[i] = items[i].Object
		}
		return e.PrintList(objects, kindTable(k, items))
	})
}

// findOne returns the object of a name.
func findOne(ctx context.Context, e *command.Env, s *command.Session, k api.Kind, res command.Resource,
	name string) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, res, e.Flags.ListNamespace(), name)
	if apierrors.IsNotFound(err) {
		err = command.Errorf(command.ExitError, "limpet get "+k.Plural, "%s %q not found", k.Singular, name)
	}
	return u, err
}

// kindTable shows objects in the printer columns of their kind.
func kindTable(k api.Kind, items []unstructured.Unstructured) command.Table {
	t := command.Table{Wide: []string{"UID"}}
	for _, col := range k.Columns {
		t.Columns = append(t.Columns, strings.ToUpper(col.Name))
	}
	now := time.Now()
	for i := range items {
		u := &items[i]
		var row []string
		for _, col := range k.Columns {
			cell := col.Text(u.Object)
			if at, err := time.Parse(time.RFC3339, cell); err == nil && col.Type == "date" {
				cell = command.Since(now, at)
			}
			row = append(row, text.OrDash(cell))
		}
		t.Add(u.GetNamespace(), k.Singular+"/"+u.GetName(), append(row, string(u.GetUID()))...)
	}
	return t
}
