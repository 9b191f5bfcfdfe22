package identity

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"time"

	"limpet/sync/auth"
)

// aws signs passwords for CodeCommit. The keys that it signs with come from the
// first source that is configured: keys, a web identity, the container, the machine.
type aws struct{ *registry }

// codeCommit are the hosts of CodeCommit, with endpoints of a VPC too.
var codeCommit = regexp.MustCompile(`^(?:vpce-[a-z0-9-]+\.)?git-codecommit(?:-fips)?\.([a-z0-9-]+)(?:\.vpce)?\.amazonaws\.com(?:\.cn)?$`)

const opCodeCommit = "sign for CodeCommit"

// Credentials implements Provider. A password is good for 15 minutes and for one
// repository, and costs no call: each look-up makes a new one. What is cached are
// session credentials.
func (p *aws) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	region, err := r.region()
	if err != nil {
		return nil, err
	}
	keys, forget, err := p.keys(ctx, r, region)
	if err != nil {
		return nil, err
	}
	if !keys.valid() {
		return nil, invalid(opCodeCommit, "the access key from %s is malformed", r.Place)
	}
	path := (&url.URL{Path: r.Address.Path}).EscapedPath()
	user, password := keys.gitPassword(p.now(), region, r.Address.HostPort(), path)
	return &auth.Credentials{Username: user, Password: password, Forget: forget, Clock: p.setClock}, nil
}

// region returns that of the host, or that of a rule of the config file.
func (r Request) region() (string, error) {
	if found := codeCommit.FindStringSubmatch(r.Address.Host); found != nil {
		if r.Address.Scheme != "https" {
			return "", invalid(opCodeCommit, "it is reached over https only")
		}
		return found[1], nil
	}
	if region := r.Text("AWS_REGION"); region != "" && r.Bound {
		return region, nil
	}
	return "", invalid(opCodeCommit, "%s is no host of CodeCommit (git-codecommit.REGION.amazonaws.com)", r.Address.HostPort())
}

// keys asks the sources in turn.
func (p *aws) keys(ctx context.Context, r Request, region string) (awsKeys, func(), error) {
	env := r.env(p.registry)
	secret, session := env, env
	if r.othersInEnv(p.registry, "AWS_ACCESS_KEY_ID") {
		secret, session = r.Text, r.Text
	}
	if r.Text("AWS_SECRET_ACCESS_KEY") != "" {
		session = r.Text
	}
	fixed := awsKeys{env("AWS_ACCESS_KEY_ID"), secret("AWS_SECRET_ACCESS_KEY"), session("AWS_SESSION_TOKEN")}
	switch {
	case fixed.ID != "" && fixed.Secret != "":
		// Another password may be had after a refusal all the same: one of the right time.
		return fixed, func() {}, nil
	case fixed.ID != "" || fixed.Secret != "":
		return awsKeys{}, nil, invalid(opCodeCommit,
			"of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in %s one is missing, or belongs to another key", r.Place)
	case !r.Own() && !r.Trusted:
		return awsKeys{}, nil, invalid(opCodeCommit, "%s has no keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", r.Place)
	}
	source, get := "machine", p.machine
	switch {
	case env("AWS_ROLE_ARN") != "" && env("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		source = "role " + env("AWS_ROLE_ARN")
		get = func(ctx context.Context, r Request) (sessionCredentials, error) { return p.webIdentity(ctx, r, region) }
	case env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		source, get = "container", p.container
	}
	key := r.key(source)
	token, err := p.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) {
		s, err := get(ctx, r)
		if err != nil {
			return auth.Token{}, err
		}
		text, err := json.Marshal(s.awsKeys)
		return auth.Token{Value: string(text), Minted: time.Now(), Expires: s.until, Life: min(s.life, longestLife)}, err
	})
	var keys awsKeys
	if err == nil {
		err = json.Unmarshal([]byte(token.Value), &keys)
	}
	return keys, p.forget(key, token), err
}
