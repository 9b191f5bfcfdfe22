package agent

import (
	"context"

	"limpet/sync/source"
)

// describeSourceSigners tells for a test what has to be signed in a GitRepository, and how
// the keys for it are.
func (a *Agent) describeSourceSigners(ctx context.Context, from source.Git) (string, error) {
	found, err := from.NamedSigners(ctx, a.places())
	if err != nil {
		return "", err
	}
	look, err := a.signers.LookAtKeys(from.Verify, "spec.verify", found, a.serverTime())
	return signersText(look), err
}
