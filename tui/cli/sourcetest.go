package cli

import (
	"context"

	"limpet/sync/control"
)

type sourceTestCmd struct {
	Name string `arg:"" optional:"" help:"Name of the source; with --file the one to take of several."`
	File string `short:"f" help:"Test the source of this YAML or JSON file, which need not be on the API; - is stdin." placeholder:"FILE"`
}

// Help is the long help of the command.
func (sourceTestCmd) Help() string {
	return "It asks from here what the source asks for, with the identity that it names: the rules, the credentials and their provider, the keys of signers, the remote, the revision. Nothing is written or fetched, " +
		"and its controller is not asked. A daemon that holds the state file is asked, because the credentials are there; else it is done from here. Secrets are those of the API and of --credentials-dir, also with --file."
}

func (c sourceTestCmd) Run(ctx context.Context, r *run) error {
	given, again, err := r.given("source test", "source", "GitRepository", c.Name, c.File)
	if err != nil {
		return err
	}
	return r.withTester(ctx, func(s *session, who control.Tester) error {
		u, err := given, error(nil)
		if u == nil {
			u, err = r.findSource(ctx, s, c.Name)
		}
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return r.printResults(results, "gitrepository/"+u.GetName(), again(u))
	})
}
