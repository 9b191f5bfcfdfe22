package identity

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"time"

	"limpet/sync/auth"
)

// aws signs passwords for CodeCommit. The keys that it signs with come from the
// first source that is configured, in the order of AWS' own tools: keys, a web
// identity, a profile of the shared files, the container, the machine.
type aws struct{ *desk }

// codeCommit are the hosts of CodeCommit, with a place of one's own in a VPC too.
var codeCommit = regexp.MustCompile(`^(?:vpce-[a-z0-9-]+\.)?git-codecommit(?:-fips)?\.([a-z0-9-]+)(?:\.vpce)?\.amazonaws\.com(?:\.cn)?$`)

// Credentials implements Provider. A password is good for 15 minutes and for one
// repository, and costs no call: each look-up has a new one. What is kept are
// keys that AWS has lent.
func (p *aws) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	region, err := r.region()
	if err != nil {
		return nil, err
	}
	keys, forget, err := p.keys(ctx, r, region)
	if err != nil {
		return nil, err
	}
	if !printable(keys.ID) || !printable(keys.Secret) || keys.Session != "" && !printable(keys.Session) {
		return nil, invalid("sign for CodeCommit", "the access key from %s is none", r.Place)
	}
	path := (&url.URL{Path: r.Address.Path}).EscapedPath()
	user, password := keys.gitPassword(p.now(), region, r.Address.HostPort(), path)
	if forget == nil { // another password may be had all the same: one of the right time
		forget = func() {}
	}
	return &auth.Credentials{Username: user, Password: password, Forget: forget, Clock: p.learnAt}, nil
}

// region is that of the host, or what a rule of the config file says for another
// one.
func (r Request) region() (string, error) {
	if found := codeCommit.FindStringSubmatch(r.Address.Host); found != nil {
		if r.Address.Scheme != "https" {
			return "", invalid("sign for CodeCommit", "it is reached over https only")
		}
		return found[1], nil
	}
	if region := r.Text("AWS_REGION"); region != "" && r.Bound {
		return region, nil
	}
	return "", invalid("sign for CodeCommit", "%s is no host of CodeCommit (git-codecommit.REGION.amazonaws.com)", r.Address.HostPort())
}

// keys asks the sources in turn.
func (p *aws) keys(ctx context.Context, r Request, region string) (awsKeys, func(), error) {
	env := r.env(p.desk)
	secret, session := env, env
	if r.others(p.desk, "AWS_ACCESS_KEY_ID") {
		secret, session = r.Text, r.Text
	}
	if r.Text("AWS_SECRET_ACCESS_KEY") != "" {
		session = r.Text
	}
	fixed := func(k awsKeys) (awsKeys, func(), error) { return k, nil, nil }
	k := awsKeys{env("AWS_ACCESS_KEY_ID"), secret("AWS_SECRET_ACCESS_KEY"), session("AWS_SESSION_TOKEN")}
	switch {
	case k.ID != "" && k.Secret != "":
		return fixed(k)
	case k.ID != "" || k.Secret != "":
		return awsKeys{}, nil, invalid("sign for CodeCommit", "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in %s one is missing, or belongs to another", r.Place)
	}
	if !r.Own() && !r.Trusted {
		return awsKeys{}, nil, invalid("sign for CodeCommit", "%s has no keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", r.Place)
	}
	chosen := profile{role: role{arn: env("AWS_ROLE_ARN"), session: env("AWS_ROLE_SESSION_NAME"), file: env("AWS_WEB_IDENTITY_TOKEN_FILE")}}
	var err error
	if chosen.role.arn == "" || chosen.role.file == "" {
		chosen, err = p.profile(r)
	}
	source := "role " + chosen.role.arn
	var mint func(context.Context) (lent, error)
	switch {
	case err != nil && !errors.Is(err, errNotSet):
		return awsKeys{}, nil, err
	case err == nil && chosen.role.arn == "":
		return fixed(chosen.keys)
	case err == nil && chosen.role.file != "":
		mint = func(ctx context.Context) (lent, error) { return p.webIdentity(ctx, r, region, chosen.role) }
	case err == nil:
		mint = func(ctx context.Context) (lent, error) { return p.assume(ctx, r, region, chosen.keys, chosen.role) }
	case env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		source, mint = "container", func(ctx context.Context) (lent, error) { return p.container(ctx, r) }
	default:
		source, mint = "machine", func(ctx context.Context) (lent, error) { return p.machine(ctx, r) }
	}
	key := r.key(source)
	token, err := p.token(ctx, key, func(ctx context.Context) (auth.Token, error) {
		l, err := mint(ctx)
		if err != nil {
			return auth.Token{}, err
		}
		text, err := json.Marshal(l.awsKeys)
		return auth.Token{Value: string(text), Minted: time.Now(), Expires: l.until, Life: min(l.life, longestLife)}, err
	})
	if err != nil {
		return awsKeys{}, nil, err
	}
	var keys awsKeys
	if err := json.Unmarshal([]byte(token.Value), &keys); err != nil {
		return awsKeys{}, nil, err
	}
	return keys, p.refused(key, token), nil
}
