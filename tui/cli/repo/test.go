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

// Help is the long help of the command.
func (testCmd) Help() string {
	return "It asks what the controller asks: the rules, the credentials, the remote, the branch. Nothing is written. " +
		"A daemon that holds the state file is asked, because the credentials are there; else it is done from here."
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	t := Test{Call: "repo test", Noun: "repository", Nouns: "repositories", Kind: "Repository"}
	return t.Run(ctx, e, c.Name, c.File, func(s *command.Session) (*unstructured.Unstructured, error) {
		return e.FindObject(ctx, s, api.Repositories, c.Name)
	})
}

type connectionTestCmd struct {
	Name string `arg:"" help:"Name of the connection."`
}

// Help is the long help of the command.
func (connectionTestCmd) Help() string {
	return "Nothing is written. A daemon that holds the state file is asked, because the credentials are there."
}

func (c connectionTestCmd) Run(ctx context.Context, e *command.Env) error {
	t := Test{Call: "connection test", Noun: "connection", Kind: "Connection"}
	return t.Run(ctx, e, c.Name, "", func(s *command.Session) (*unstructured.Unstructured, error) {
		return e.FindObject(ctx, s, api.Connections, c.Name)
	})
}

// Test is a command that tests one object with the credentials of the agent.
type Test struct {
	Call        string // words of the command
	Noun, Nouns string // of the object
	Kind        string
}

// Run tests the object of a file, else the one that find returns, and prints the results.
func (t Test) Run(ctx context.Context, e *command.Env, name, file string,
	find func(*command.Session) (*unstructured.Unstructured, error)) (err error) {
	var given *unstructured.Unstructured
	again := strings.TrimSpace(t.Call + " " + name)
	switch {
	case file != "":
		again += " -f " + command.ShellWord(file)
		if given, err = t.read(e, name, file); err != nil {
			return err
		}
	case name == "":
		return command.Usagef("limpet "+t.Call+" NAME    # or -f FILE", "which %s? give its name, or a file with --file", t.Noun)
	}
	return e.WithTester(ctx, func(s *command.Session, who control.Tester) error {
		u, namespace := given, ""
		if u == nil {
			if u, err = find(s); err != nil {
				return err
			}
			namespace = u.GetNamespace()
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return e.PrintResults(results, strings.ToLower(t.Kind)+"/"+u.GetName(), command.CommandFor(namespace, again))
	})
}

// read returns the only object of the kind in a file, or that of a name, with defaults.
func (t Test) read(e *command.Env, name, file string) (*unstructured.Unstructured, error) {
	data, err := e.ReadFile(file)
	if err != nil {
		return nil, command.Usagef("limpet "+t.Call+" -f FILE    # - is stdin", "read objects: %w", err)
	}
	objects, err := object.ParseObjects(file, data)
	if err != nil {
		return nil, err
	}
	var names []string
	objects = slices.DeleteFunc(objects, func(o object.Manifest) bool {
		if o.Object.GetKind() != t.Kind {
			return true
		}
		names = append(names, o.Object.GetName())
		return name != "" && o.Object.GetName() != name
	})
	switch {
	case len(objects) == 0:
		return nil, command.Usagef("limpet repo validate "+command.ShellWord(file), "%s holds no %s", file, strings.TrimSpace(t.Noun+" "+name))
	case len(objects) > 1:
		return nil, command.Usagef("limpet "+t.Call+" "+names[0]+" -f "+command.ShellWord(file), "%s holds several %s: %s", file, t.Nouns,
			strings.Join(names, ", "))
	}
	u := objects[0].Object
	if u.GetNamespace() == "" {
		u.SetNamespace(e.Flags.OneNamespace())
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for field := range secure {
		value, _, _ := unstructured.NestedString(secure, field, "create")
		text.RegisterSecret([]byte(value))
	}
	admission.Default(u)
	return u, nil
}
