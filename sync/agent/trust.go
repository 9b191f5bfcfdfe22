package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/worker"
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

// signing chains the places where keys to sign with are looked up: those of credentials,
// in the same order.
func (a *Agent) signing() auth.SigningSource {
	sources := []auth.SigningSource{auth.SigningSecrets(a.secret)}
	if a.embedded != nil {
		sources = append(sources, auth.SigningFields(a.sealedOfRepository))
	}
	if dir := a.cfg.CredentialsDir; dir != "" {
		from := auth.SigningDir(dir)
		sources = append(sources, func(ctx context.Context, l auth.Lookup) (*auth.Signing, error) {
			a.sawFiles(l.Namespace, l.Repository, l.Connection)
			return from(ctx, l)
		})
	}
	if rules := a.cfg.GitRules; len(rules) > 0 {
		from := auth.SigningRules(rules)
		sources = append(sources, func(ctx context.Context, l auth.Lookup) (*auth.Signing, error) {
			a.sawPaths(l.URL)
			return from(ctx, l)
		})
	}
	return auth.ChainSigning(sources...)
}

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

// SignersAt are the signers of an agent as another program sees them, with its own rights
// to Secrets and files.
func SignersAt(client *kube.Client, dir string, rules []auth.Rule, demands []auth.Demand) *worker.Signers {
	sources := []auth.TrustSource{auth.TrustRules(rules)}
	if dir != "" {
		sources = append([]auth.TrustSource{auth.TrustDir(dir)}, sources...)
	}
	if client != nil {
		sources = append([]auth.TrustSource{auth.TrustSecrets(secretsOf(client))}, sources...)
	}
	return worker.NewSigners(auth.ChainTrust(sources...), demands, nil)
}

// SigningAt is the same for the keys that commits are signed with. Those that the
// embedded API keeps are seen by its own agent only.
func SigningAt(client *kube.Client, dir string, rules []auth.Rule) *worker.SigningKeys {
	sources := []auth.SigningSource{auth.SigningRules(rules)}
	if dir != "" {
		sources = append([]auth.SigningSource{auth.SigningDir(dir)}, sources...)
	}
	if client != nil {
		sources = append([]auth.SigningSource{auth.SigningSecrets(secretsOf(client))}, sources...)
	}
	return worker.NewSigningKeys(auth.ChainSigning(sources...))
}

// secretsOf reads Secrets.
func secretsOf(client *kube.Client) func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	return func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		u, err := client.Resource(api.Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		return secretData(namespace, name, u, err)
	}
}
