package cli

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/control"
	"limpet/sync/text"
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
	given, again, err := r.given("repo test", "repository", "Repository", c.Name, c.File)
	if err != nil {
		return err
	}
	return r.withTester(ctx, func(s *session, who control.Tester) error {
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
		return r.printResults(results, "repository/"+u.GetName(), again(u))
	})
}

// given is the object to test that a file holds, as an API would keep it, nil where it
// is on the API; again is the call that tests one once more. Command, noun and kind say
// what is tested.
func (r *run) given(command, noun, kind, name, file string) (u *unstructured.Unstructured, again func(*unstructured.Unstructured) string, err error) {
	words := strings.TrimSpace(command + " " + name)
	switch {
	case file != "":
		u, err = r.objectIn(file, name, command, noun, kind)
		return u, func(*unstructured.Unstructured) string { return next("", words+" -f "+shellWord(file)) }, err
	case name == "":
		return nil, nil, usage("limpet "+command+" NAME    # or -f FILE", "which %s? give its name, or a file with --file", noun)
	}
	return nil, func(u *unstructured.Unstructured) string { return next(u.GetNamespace(), words) }, nil
}

// objectIn reads the one object of a kind in a file, or that of a name.
func (r *run) objectIn(file, name, command, noun, kind string) (*unstructured.Unstructured, error) {
	data, err := r.readFile(file)
	if err != nil {
		return nil, usage("limpet "+command+" -f FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := parseObjects(file, data)
	if err != nil {
		return nil, err
	}
	var names []string
	objects = slices.DeleteFunc(objects, func(o manifestObject) bool {
		if o.u.GetKind() != kind {
			return true
		}
		names = append(names, o.u.GetName())
		return name != "" && o.u.GetName() != name
	})
	switch {
	case len(objects) == 0:
		return nil, usage("limpet repo validate "+shellWord(file), "%s holds no %s", file, strings.TrimSpace(noun+" "+name))
	case len(objects) > 1:
		return nil, usage("limpet "+command+" "+names[0]+" -f "+shellWord(file), "%s holds several %s: %s", file, map[string]string{"repository": "repositories", "source": "sources"}[noun], strings.Join(names, ", "))
	}
	u := objects[0].u
	if u.GetNamespace() == "" {
		u.SetNamespace(r.g.oneNamespace())
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for field := range secure {
		value, _, _ := unstructured.NestedString(u.Object, "secure", field, "create")
		text.RegisterSecret([]byte(value))
	}
	admission.Default(u)
	return u, nil
}
