package sync

import (
	"context"

	"limpet/sync/auth"
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
