package agent

import (
	"context"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/repos"
	"limpet/sync/worker"
)

// verification returns the verifier of signatures for the controller of Repositories.
func (a *Agent) verification() repos.Verification {
	return repos.Verification{Signers: a.signers, Git: a.mirrors, Now: a.serverTime}
}

// describeSigning returns for a test the key that signs the commits of a Repository.
func (a *Agent) describeSigning(from auth.SigningSource) func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
	return func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
		look, err := worker.NewSigningKeys(from).Look(ctx, namespace, name, repo, a.signers, a.serverTime())
		if look.Soon != "" {
			look.Text += "; but " + look.Soon
		}
		return look.Text, err
	}
}

// describeSigners returns for a test which signatures a Repository requires, and the
// state of their keys.
func (a *Agent) describeSigners(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
	look, err := a.signers.Look(ctx, namespace, name, repo, a.serverTime())
	return signersText(look), err
}

func signersText(look worker.SignersLook) string {
	if look.Soon != "" {
		look.Text += "; to be replaced: " + look.Soon
	}
	return look.Text
}
