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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// KindNamed finds a kind by plural, singular, short name, Kind or noun of its command, with or
// without .GROUP or .VERSION.GROUP. version is "" unless the word has one.
func KindNamed(word string) (k api.Kind, version string, err error) {
	full, short := schema.ParseResourceArg(strings.ToLower(word))
	for _, k := range api.Kinds {
		names := append([]string{k.Plural, k.Singular, strings.ToLower(k.Kind)}, k.Short...)
		if k.Noun != "" {
			names = append(names, k.Noun, k.Noun+"s")
		}
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

// Resource returns the resource of a kind, in a version or, for "", in the one that the API
// prefers.
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
		return e.PrintObjects(ctx, s, []command.Resource{res}, c.Selector, nil, c.Limit, t, row)
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

// Users are the Repositories that name a Connection, by its namespace and name; nil where they may
// not be listed.
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
