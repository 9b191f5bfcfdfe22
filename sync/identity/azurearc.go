package identity

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// A machine of one's own that is registered with Azure Arc has a managed identity
// too. Its agent wants to be shown that the caller may read a file of its group.
// Source: Microsoft, "Authenticate against Azure resources with Azure Arc-enabled
// servers".
const (
	arcEndpoint = "http://127.0.0.1:40342/metadata/identity/oauth2/token"
	arcAgent    = "/opt/azcmagent/bin/himds"
	arcTokens   = "/var/opt/azcmagent/tokens"
	arcVersion  = "2020-06-01"
	// arcMost is how long the file may be. Unit: bytes.
	arcMost = 4096
)

// onArc says whether the agent of Azure Arc answers here.
func (p *azure) onArc(env func(string) string) bool {
	if env("IDENTITY_ENDPOINT") != "" && env("IMDS_ENDPOINT") != "" {
		return true
	}
	_, err := os.Stat(p.arcAgent)
	return err == nil
}

// arc asks the agent, which names a file, and again with what is in it.
func (p *azure) arc(ctx context.Context, r Request, client, who string) (auth.Token, error) {
	query := url.Values{"api-version": {arcVersion}, "resource": {azureDevOps}}
	if client != "" {
		query.Set("client_id", client)
	}
	c := call{op: "get a token from the agent of Azure Arc", identity: who, method: http.MethodGet, near: true, also: http.StatusUnauthorized,
		url: cmp.Or(r.env(p.desk)("IDENTITY_ENDPOINT"), arcEndpoint) + "?" + query.Encode(), header: map[string]string{"Metadata": "true"}}
	got, err := p.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	_, file, ok := strings.Cut(got.header.Get("Www-Authenticate"), "Basic realm=")
	if !ok || filepath.Ext(file) != ".key" || filepath.Dir(file) != p.arcTokens {
		return auth.Token{}, c.fail(netx.Protocol, 0, errors.New("the answer names no key file below "+p.arcTokens))
	}
	secret, err := r.file(file)
	switch {
	case err != nil:
		return auth.Token{}, invalid(c.op, "%w (who runs limpet has to be in the group himds)", err)
	case len(secret) > arcMost || !printable(string(secret)):
		return auth.Token{}, c.fail(netx.Protocol, 0, errors.New("the key file is none"))
	}
	c.also, c.secrets = 0, []string{string(secret)}
	c.header = map[string]string{"Metadata": "true", "Authorization": "Basic " + string(secret)}
	if got, err = p.do(ctx, c); err != nil {
		return auth.Token{}, err
	}
	made, token, err := grant(got.body, got.at)
	if err == nil && client != "" && !strings.EqualFold(made.Client, client) {
		// An old agent leaves the choice unread.
		err = errors.New("the token is that of another identity")
	}
	if err != nil {
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}
