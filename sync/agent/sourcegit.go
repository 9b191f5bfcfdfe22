package agent

import (
	"context"

	"limpet/sync/source"
)

// describeSourceSigners returns for a test which signatures a GitRepository requires,
// and the state of their keys.
func (a *Agent) describeSourceSigners(ctx context.Context, from source.Git) (string, error) {
	found, err := from.NamedSigners(ctx, a.places())
	if err != nil {
		return "", err
	}
	look, err := a.signers.LookAtKeys(from.Verify, "spec.verify", found, a.serverTime())
	return signersText(look), err
}
