package cli

import (
	"context"

	"limpet/sync/socket"
)

type sourceTestCmd struct {
	Name string `arg:"" help:"Name of the source."`
}

// Help is the long help of the command.
func (sourceTestCmd) Help() string {
	return "It asks from here what the source asks for, with the identity that it names: the rules, the credentials and their provider, the keys of signers, the remote, the revision. Nothing is written or fetched, " +
		"and its controller is not asked. A daemon that holds the state file is asked, because the credentials are there; else it is done from here."
}

func (c sourceTestCmd) Run(ctx context.Context, r *run) error {
	return r.withTester(ctx, func(s *session, who socket.Tester) error {
		u, err := r.findSource(ctx, s, c.Name)
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return r.printResults(results, "gitrepository/"+u.GetName(), "limpet source test "+c.Name)
	})
}
