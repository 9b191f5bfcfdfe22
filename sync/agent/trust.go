package agent

import (
	"context"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/repos"
	"limpet/sync/worker"
)

// trusting judges for the controller of Repositories.
type trusting struct{ a *Agent }

var _ repos.Trust = trusting{}

func (t trusting) Asked(ctx context.Context, namespace, name string, repo api.Repository) (string, bool, error) {
	return t.a.signers.Asked(ctx, namespace, name, repo)
}

func (t trusting) Judge(ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref) (*api.Condition, error) {
	return t.a.signers.Judge(ctx, t.a.mirrors, namespace, name, repo, remote, ref, t.now())
}

// now is the time of the server, as far as it is known.
func (t trusting) now() time.Time {
	if now, _, ok := t.a.client.Clock().Now(); ok {
		return now
	}
	return time.Now()
}

// lookAtSigning tells for a test what the commits of a Repository are signed with, by
// the keys that from finds.
func (a *Agent) lookAtSigning(from auth.SigningSource) func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
	return func(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
		look, err := worker.NewSigningKeys(from).Look(ctx, namespace, name, repo, a.signers, trusting{a}.now())
		if look.Soon != "" {
			look.Text += "; but " + look.Soon
		}
		return look.Text, err
	}
}

// lookAtSigners tells for a test what has to be signed in a Repository, and how the keys
// for it are.
func (a *Agent) lookAtSigners(ctx context.Context, namespace, name string, repo api.Repository) (string, error) {
	look, err := a.signers.Look(ctx, namespace, name, repo, trusting{a}.now())
	return lookText(look), err
}

func lookText(look worker.SignersLook) string {
	if look.Soon != "" {
		look.Text += "; to be replaced: " + look.Soon
	}
	return look.Text
}
