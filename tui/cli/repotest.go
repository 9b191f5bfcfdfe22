package cli

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/admission"
	"limpet/sync/api"
	"limpet/sync/socket"
)

type repoTestCmd struct {
	Name string `arg:"" optional:"" help:"Name of the repository; with --file the one to take of several."`
	File string `short:"f" help:"Test the repository of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (repoTestCmd) Help() string {
	return "It asks what the controller asks: the rules, the credentials, the remote, the branch. Nothing is written. " +
		"A daemon that holds the state file is asked, because the credentials are there; else it is done from here."
}

func (c repoTestCmd) Run(ctx context.Context, r *run) error {
	if c.Name == "" && c.File == "" {
		return usage("limpet repo test NAME    # or -f FILE", "which repository? give its name, or a file with --file")
	}
	var given *unstructured.Unstructured
	again := "limpet repo test " + c.Name
	if c.File != "" {
		var err error
		if given, err = r.repositoryIn(c.File, c.Name); err != nil {
			return err
		}
		again = strings.TrimRight(again, " ") + " -f " + c.File
	}
	return r.withTester(ctx, func(s *session, who socket.Tester) error {
		u, err := given, error(nil)
		if u == nil {
			u, err = s.find(ctx, api.Repositories, r.g.listNamespace(), c.Name)
		}
		if apierrors.IsNotFound(err) {
			return fail(ExitError, "limpet repo list", "repository %q not found", c.Name)
		}
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return r.printResults(results, "repository/"+u.GetName(), again)
	})
}

// repositoryIn reads the one Repository of a file, or that of a name.
func (r *run) repositoryIn(file, name string) (*unstructured.Unstructured, error) {
	data, err := r.readFile(file)
	if err != nil {
		return nil, usage("limpet repo test -f FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := parseObjects(file, data)
	if err != nil {
		return nil, err
	}
	var names []string
	objects = slices.DeleteFunc(objects, func(o manifestObject) bool {
		if o.u.GetKind() != "Repository" {
			return true
		}
		names = append(names, o.u.GetName())
		return name != "" && o.u.GetName() != name
	})
	switch {
	case len(objects) == 0:
		return nil, usage("limpet repo validate "+file, "%s holds no repository %s", file, name)
	case len(objects) > 1:
		return nil, usage("limpet repo test "+names[0]+" -f "+file, "%s holds several repositories: %s", file, strings.Join(names, ", "))
	}
	u := objects[0].u
	if u.GetNamespace() == "" {
		u.SetNamespace(r.g.oneNamespace())
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for field := range secure {
		value, _, _ := unstructured.NestedString(u.Object, "secure", field, "create")
		api.RegisterSecret([]byte(value))
	}
	admission.Default(u)
	return u, nil
}
