package repo

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the repository; with --file the one to take of several."`
	File string `short:"f" help:"Test the repository of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	return Test(ctx, e, api.Repositories, c.Name, c.File)
}

type connectionTestCmd struct {
	Name string `arg:"" help:"Name of the connection."`
}

func (c connectionTestCmd) Run(ctx context.Context, e *command.Env) error {
	return Test(ctx, e, api.Connections, c.Name, "")
}

// Test tests the object of a file, else that of a name on the API, with the credentials of the
// agent, and prints the results.
func Test(ctx context.Context, e *command.Env, resource command.Resource, name, file string) (err error) {
	var given *unstructured.Unstructured
	kind := command.KindOf(resource)
	call := kind.Noun + " test"
	if kind.Noun == "source" && resource != api.GitRepositories {
		call += " --kind " + kind.Singular
	}
	again := strings.TrimSpace(call + " " + name)
	switch {
	case file != "":
		again += " -f " + text.ShellWord(file)
		if given, err = readOne(e, call, kind.Kind, name, file); err != nil {
			return err
		}
	case name == "":
		return command.Usagef("limpet "+call+" NAME    # or -f FILE", "give the name of a %s, or a file with --file", kind.Singular)
	}
	return e.WithTester(ctx, false, func(s *command.Session, who control.Tester) error {
		u, namespace := given, ""
		if u == nil {
			if u, err = e.FindObject(ctx, s, resource, name); err != nil {
				return err
			}
			namespace = u.GetNamespace()
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return e.PrintResults(results, kind.Singular+"/"+u.GetName(), command.CommandFor(namespace, again))
	})
}

// readOne returns the only object of the kind in a file, or that of a name, with defaults.
func readOne(e *command.Env, call, kind, name, file string) (*unstructured.Unstructured, error) {
	objects, err := object.ReadFile(e, file, "limpet "+call+" -f FILE")
	if err != nil {
		return nil, err
	}
	var names []string
	objects = slices.DeleteFunc(objects, func(o object.Manifest) bool {
		if o.Object.GetKind() != kind || name != "" && o.Object.GetName() != name {
			return true
		}
		names = append(names, o.Object.GetName())
		return false
	})
	switch len(objects) {
	case 0:
		return nil, command.Usagef("limpet repo validate "+text.ShellWord(file), "%s holds no %s", file, strings.TrimSpace(kind+" "+name))
	case 1:
	default:
		return nil, command.Usagef("limpet "+call+" "+names[0]+" -f "+text.ShellWord(file), "%s holds several of kind %s: %s", file, kind,
			strings.Join(names, ", "))
	}
	u := objects[0].Object
	if u.GetNamespace() == "" {
		u.SetNamespace(e.Flags.OneNamespace())
	}
	object.RegisterSecrets(u)
	admission.Default(u)
	return u, nil
}
