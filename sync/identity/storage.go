package identity

import (
	"context"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// azureStorage is what tokens for buckets of Azure are made for. Source: Microsoft, "Authorize
// access to blobs using Microsoft Entra ID".
const azureStorage = "https://storage.azure.com"

// Storage returns the credentials for the buckets of a cloud: a token in Bearer, or for aws the ID of
// a key in Username, its secret in Password and the token of its session in Bearer. keys are those
// of the identity, named as for Repositories; none = the identity of this host. The caller sends
// them to hosts of the cloud alone.
func (i *Identities) Storage(
	ctx context.Context, provider, region, place string, keys map[string][]byte, proxy *netx.Proxy,
) (*auth.Credentials, error) {
	r := Request{Identity: auth.Identity{Provider: provider, Keys: keys}, Place: place, TLS: &auth.Credentials{Proxy: proxy},
		resource: azureStorage}
	switch p := i.providers[provider].(type) {
	case *aws:
		k, forget, err := p.keys(ctx, r, region)
		return &auth.Credentials{Username: k.ID, Password: k.Secret, Bearer: k.Session, Forget: forget}, err
	case *gcp:
		made, err := p.Credentials(ctx, r)
		if err == nil {
			made = &auth.Credentials{Bearer: made.Password, Forget: made.Forget}
		}
		return made, err
	case *azure:
		return p.Credentials(ctx, r)
	}
	return nil, invalid("use provider "+provider, "it has no buckets")
}
