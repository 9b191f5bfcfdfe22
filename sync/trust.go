package sync

import (
	"context"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/repos"
)

// trust chains the places where the keys of those who may sign are looked up: those of
// credentials, in the same order.
func (a *Agent) trust() auth.TrustSource {
	sources := []auth.TrustSource{auth.TrustSecrets(a.secret)}
	if dir := a.cfg.CredentialsDir; dir != "" {
		from := auth.TrustDir(dir)
		sources = append(sources, func(ctx context.Context, l auth.Lookup) (*auth.Trust, error) {
			a.sawFiles(l.Namespace, l.Repository, l.Connection)
			return from(ctx, l)
		})
	}
	if rules := a.cfg.GitRules; len(rules) > 0 {
		from := auth.TrustRules(rules)
		sources = append(sources, func(ctx context.Context, l auth.Lookup) (*auth.Trust, error) {
			a.sawPaths(l.URL)
			return from(ctx, l)
		})
	}
	return auth.ChainTrust(sources...)
}

// trusting judges for the controller of Repositories.
type trusting struct{ a *Agent }

var _ repos.Trust = trusting{}

func (t trusting) Asked(ctx context.Context, namespace, name string, repo api.Repository) (string, bool, error) {
	return t.a.signers.Asked(ctx, namespace, name, repo)
}

func (t trusting) Judge(ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref) (*api.Condition, error) {
	now, _, ok := t.a.client.Clock().Now()
	if !ok {
		now = time.Now()
	}
	return t.a.signers.Judge(ctx, t.a.mirrors, namespace, name, repo, remote, ref, now)
}
