package source

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/tui/cli/command"
	"limpet/tui/cli/repo"
)

type testCmd struct {
	Name string `arg:"" optional:"" help:"Name of the source; with --file the one to take of several."`
	File string `short:"f" help:"Test the source of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (testCmd) Help() string {
	return "It asks from here what the source asks for, with the identity that it names: the rules, the credentials and their provider, the keys of signers, the remote, the revision. Nothing is written or fetched, " +
		"and its controller is not asked. A daemon that holds the state file is asked, because the credentials are there; else it is done from here. Secrets are those of the API and of --credentials-dir, also with --file."
}

func (c testCmd) Run(ctx context.Context, e *command.Env) error {
	t := repo.Test{Call: "source test", Noun: "source", Nouns: "sources", Kind: "GitRepository"}
	return t.Run(ctx, e, c.Name, c.File, func(s *command.Session) (*unstructured.Unstructured, error) {
		return findSource(ctx, e, s, c.Name)
	})
}
