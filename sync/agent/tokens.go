package agent

import (
	"context"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/repos"
)

// tokensToMint is how the controller of Repositories gets tokens: from the memory
// that the pulls of this agent are served from.
func (a *Agent) tokensToMint() *repos.Tokens {
	return &repos.Tokens{Mint: a.mintFor, Seals: a.sealsValues}
}

// mintFor mints for a Repository what its Connection can mint.
func (a *Agent) mintFor(ctx context.Context, u *object) (auth.Token, error) {
	repo, err := api.RepositoryView(u)
	if err != nil || repo.Spec.Connection == nil {
		return auth.Token{}, err
	}
	found, err := a.connection(ctx, u.GetNamespace(), repo.Spec.Connection.Name)
	if err != nil || found == nil {
		return auth.Token{}, err
	}
	c, err := forge.ConnectionOf(found)
	if err != nil || !c.Mints() {
		return auth.Token{}, err
	}
	return a.minter.MintFor(ctx, c, forge.TargetOf(u))
}

// sealsValues says whether the API takes secure values and seals them: the embedded
// one does, and Grafana's own. A plain Kubernetes API would store them as they are.
func (a *Agent) sealsValues(ctx context.Context) (bool, error) {
	if a.embedded != nil {
		return true, nil
	}
	return a.client.Serves(ctx, "repositories/webhook")
}

// factsOf asks the host of a Repository about it.
func (a *Agent) factsOf(ctx context.Context, u *object, creds *auth.Credentials) (forge.Facts, error) {
	remote, err := a.hosts.Remote(ctx, forge.TargetOf(u), creds)
	if err != nil {
		return forge.Facts{}, err
	}
	return remote.Facts(ctx)
}
