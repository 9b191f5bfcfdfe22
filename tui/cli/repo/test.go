package repo

import (
	"context"
	"slices"
	"strings"

	"limpet/tui/cli/command"
	"limpet/tui/cli/object"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/control"
	"limpet/sync/text"
)

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the repository; with --file the one to take of several."`
	File string `short:"f" help:"Test the repository of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (testCmd) Help() string {
	return "It asks what the controller asks: the rules, the credentials, the remote, the branch. Nothing is written. " +
		"A daemon that holds the state file is asked, because the credentials are there; else it is done from here."
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	given, again, err := Given(e, "repo test", "repository", "Repository", c.Name, c.File)
	if err != nil {
		return err
	}
	return e.WithTester(ctx, func(s *command.Session, who control.Tester) error {
		u, err := given, error(nil)
		if u == nil {
			u, err = e.FindObject(ctx, s, api.Repositories, c.Name)
		}
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return e.PrintResults(results, "repository/"+u.GetName(), again(u))
	})
}

// Given returns the object of a file to test, with defaults, nil where the object is on the API; again is the
// command that repeats the test. Call, noun and kind name what is tested.
func Given(e *command.Env, call, noun, kind, name, file string) (u *unstructured.Unstructured,
	again func(*unstructured.Unstructured) string, err error) {
	words := strings.TrimSpace(call + " " + name)
	switch {
	case file != "":
		u, err = objectIn(e, file, name, call, noun, kind)
		return u, func(*unstructured.Unstructured) string {
			return command.CommandFor("", words+" -f "+command.ShellWord(file))
		}, err
	case name == "":
		return nil, nil, command.Usagef("limpet "+call+" NAME    # or -f FILE", "which %s? give its name, or a file with --file", noun)
	}
	return nil, func(u *unstructured.Unstructured) string { return command.CommandFor(u.GetNamespace(), words) }, nil
}

// objectIn reads the only object of a kind in a file, or that of a name.
func objectIn(e *command.Env, file, name, call, noun, kind string) (*unstructured.Unstructured, error) {
	data, err := e.ReadFile(file)
	if err != nil {
		return nil, command.Usagef("limpet "+call+" -f FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := object.ParseObjects(file, data)
	if err != nil {
		return nil, err
	}
	var names []string
	objects = slices.DeleteFunc(objects, func(o object.Manifest) bool {
		if o.Object.GetKind() != kind {
			return true
		}
		names = append(names, o.Object.GetName())
		return name != "" && o.Object.GetName() != name
	})
	switch {
	case len(objects) == 0:
		return nil, command.Usagef("limpet repo validate "+command.ShellWord(file), "%s holds no %s", file,
			strings.TrimSpace(noun+" "+name))
	case len(objects) > 1:
		return nil, command.Usagef("limpet "+call+" "+names[0]+" -f "+command.ShellWord(file), "%s holds several %s: %s", file,
			map[string]string{"repository": "repositories", "source": "sources"}[noun], strings.Join(names, ", "))
	}
	u := objects[0].Object
	if u.GetNamespace() == "" {
		u.SetNamespace(e.Flags.OneNamespace())
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for field := range secure {
		value, _, _ := unstructured.NestedString(u.Object, "secure", field, "create")
		text.RegisterSecret([]byte(value))
	}
	admission.Default(u)
	return u, nil
}
