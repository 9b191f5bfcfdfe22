package agent

import (
	"context"

	"limpet/sync/auth"
	"limpet/sync/source"
)

// sourceCredentials chains the places where the credentials of GitRepositories are looked
// up: the Secret that one names, or the files that stand for it; for one that names none
// the rules of the configuration.
func (a *Agent) sourceCredentials() auth.Source {
	secrets, rules := auth.SecretSource(a.secret), auth.Chain()
	if a.cfg.CredentialsDir != "" {
		secrets = auth.Chain(secrets, a.files(auth.DirSource(a.cfg.CredentialsDir)))
	}
	if len(a.cfg.GitRules) > 0 {
		rules = a.ruleFiles(auth.RuleSource(a.cfg.GitRules))
	}
	return a.identities.Source(auth.Lines(auth.NamedSecret(secrets, rules), a.cfg.GitRules, a.proxySecret))
}

// lookAtSourceSigners tells for a test what has to be signed in a GitRepository, and how
// the keys for it are.
func (a *Agent) lookAtSourceSigners(ctx context.Context, from source.Git) (string, error) {
	found, err := from.NamedSigners(ctx, a.secret, a.cfg.CredentialsDir)
	if err != nil {
		return "", err
	}
	look, err := a.signers.LookAtKeys(from.Verify, "spec.verify", found, trusting{a}.now())
	return lookText(look), err
}
