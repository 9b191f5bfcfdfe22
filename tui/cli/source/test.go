package source

import (
	"context"

	"limpet/sync/control"
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
	given, again, err := repo.Given(e, "source test", "source", "GitRepository", c.Name, c.File)
	if err != nil {
		return err
	}
	return e.WithTester(ctx, func(s *command.Session, who control.Tester) error {
		u, err := given, error(nil)
		if u == nil {
			u, err = findSource(ctx, e, s, c.Name)
		}
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return e.PrintResults(results, "gitrepository/"+u.GetName(), again(u))
	})
}
