package identity

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

const (
	// awsMachine is where machines get keys. Source: AWS' guide of EC2.
	awsMachine = "http://169.254.169.254"
	// machineTokenLife is the lifetime of the token of the metadata server, which is used at once.
	// Unit: seconds.
	machineTokenLife = "300"
)

// aws signs passwords for CodeCommit. The keys that it signs with come from the
// first source that is configured: keys, a web identity, the machine.
type aws struct{ registry *registry }

// codeCommit are the hosts of CodeCommit, with endpoints of a VPC too.
var codeCommit = regexp.MustCompile(`^(?:vpce-[a-z0-9-]+\.)?git-codecommit(?:-fips)?\.([a-z0-9-]+)(?:\.vpce)?\.amazonaws\.com(?:\.cn)?$`)

const opCodeCommit = "sign for CodeCommit"

// awsKeys are the keys of an AWS identity. They print the access key, which is no secret.
type awsKeys struct{ ID, Secret, Session string }

// Format names the access key for every verb.
func (k awsKeys) Format(f fmt.State, _ rune) { io.WriteString(f, "access key "+k.ID) }

func (k awsKeys) valid() bool {
	return auth.Printable(k.ID) && auth.Printable(k.Secret) && (k.Session == "" || auth.Printable(k.Session))
}

// Credentials implements Provider. A password is good for 15 minutes and for one repository, and
// costs no call: each look-up makes a new one. What is cached are session credentials.
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
	host := r.Address.HostPort()
	user, password := keys.gitPassword(p.registry.client.Clock("https://"+host), region, host, (&url.URL{Path: r.Address.Path}).EscapedPath())
	return &auth.Credentials{Username: user, Password: password, Forget: forget,
		Clock: func(at time.Time) { p.registry.client.SetClock(host, at) }}, nil
}

// region returns that of the host, or that of a rule of the config file.
func (r Request) region() (string, error) {
	if found := codeCommit.FindStringSubmatch(r.Address.Host); found != nil {
		return found[1], nil
	}
	if region := r.Text("AWS_REGION"); region != "" && r.Bound {
		return region, nil
	}
	return "", invalid(opCodeCommit, "%s is no host of CodeCommit (git-codecommit.REGION.amazonaws.com)", r.Address.HostPort())
}

// keys asks the first source that is configured.
func (p *aws) keys(ctx context.Context, r Request, region string) (awsKeys, func(), error) {
	env := r.env(p.registry)
	secret, session := env, env // of the same key
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
		get = func(ctx context.Context, r Request) (auth.Token, error) { return p.webIdentity(ctx, r, region) }
	case env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")+env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		// The role of the machine must not take its place.
		return awsKeys{}, nil, invalid(opCodeCommit, "the identity of a container (AWS_CONTAINER_*) is not supported: "+
			"use AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE, or keys")
	}
	key := r.key(source)
	token, err := p.registry.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return get(ctx, r) })
	var keys awsKeys
	if err == nil {
		err = json.Unmarshal([]byte(token.Value), &keys)
	}
	return keys, p.registry.forget(key, token), err
}

// session makes a token of keys that expire, by the clock of AWS.
func session(c netx.Call, k awsKeys, until, at time.Time) (auth.Token, error) {
	if !k.valid() {
		return auth.Token{}, malformed(c, "the answer holds no keys")
	}
	if !until.After(at) {
		return auth.Token{}, malformed(c, "the answer does not say how long the keys live, or they have ended already")
	}
	text, err := json.Marshal(k)
	return auth.Token{Value: string(text), Minted: time.Now(), Expires: until, Life: min(until.Sub(at), longestLife)}, err
}

// webIdentity exchanges the token of a service account for keys, by the Security Token
// Service. The token is read again each time: it is replaced on the disk.
func (p *aws) webIdentity(ctx context.Context, r Request, region string) (auth.Token, error) {
	env := r.env(p.registry)
	role := env("AWS_ROLE_ARN")
	c := netx.Call{Op: "assume a role by web identity", Identity: "role " + role + " of " + r.Place, Trust: r.TLS, Method: http.MethodPost}
	token, err := r.file(env("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return auth.Token{}, invalid(c.Op, "read AWS_WEB_IDENTITY_TOKEN_FILE: %w", err)
	}
	subject := strings.TrimSpace(string(token))
	c.Secrets = []string{subject}
	region = cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION"), region)
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	c.URL = strings.TrimSuffix(cmp.Or(env("AWS_ENDPOINT_URL_STS"), "https://sts."+region+domain), "/") + "/"
	c.Body = []byte(url.Values{
		"Action":           {"AssumeRoleWithWebIdentity"},
		"Version":          {"2011-06-15"},
		"RoleArn":          {role},
		"RoleSessionName":  {cmp.Or(env("AWS_ROLE_SESSION_NAME"), "limpet")},
		"WebIdentityToken": {subject},
	}.Encode())
	got, err := p.registry.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	var out struct {
		ID      string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Secret  string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Session string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Until   time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	}
	if xml.Unmarshal(got.Body, &out) != nil {
		return auth.Token{}, malformed(c, "the answer is not that of STS")
	}
	return session(c, awsKeys{out.ID, out.Secret, out.Session}, out.Until, got.At)
}

// machine asks the metadata server of EC2, in its second version: a token first.
func (p *aws) machine(ctx context.Context, r Request) (auth.Token, error) {
	env := r.env(p.registry)
	if strings.EqualFold(env("AWS_EC2_METADATA_DISABLED"), "true") {
		return auth.Token{}, invalid(opCodeCommit,
			"%s has no identity of AWS: none of its variables are set, and AWS_EC2_METADATA_DISABLED is set", r.Place)
	}
	base := strings.TrimSuffix(cmp.Or(env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), awsMachine), "/")
	c := netx.Call{Op: "get a token of the metadata server", Identity: "role of this machine", Method: http.MethodPut, Near: true,
		URL: base + "/latest/api/token", Header: map[string]string{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": machineTokenLife}}
	got, err := p.registry.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	token := strings.TrimSpace(string(got.Body))
	if !auth.Printable(token) {
		return auth.Token{}, malformed(c, "the answer holds no token")
	}
	c.Op, c.Method, c.Secrets = "find the role of this machine", http.MethodGet, []string{token}
	c.URL, c.Header = base+"/latest/meta-data/iam/security-credentials/", map[string]string{"X-Aws-Ec2-Metadata-Token": token}
	if got, err = p.registry.do(ctx, c); err != nil {
		return auth.Token{}, err
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(got.Body)), "\n")
	if !auth.Printable(name) || strings.Contains(name, "/") {
		return auth.Token{}, malformed(c, "the answer names no role")
	}
	c.Op, c.URL = "get the keys of this machine", c.URL+url.PathEscape(name)
	if got, err = p.registry.do(ctx, c); err != nil {
		return auth.Token{}, err
	}
	var out struct {
		AccessKeyId, SecretAccessKey, Token string
		Expiration                          time.Time
	}
	if json.Unmarshal(got.Body, &out) != nil {
		return auth.Token{}, malformed(c, "the answer holds no keys")
	}
	return session(c, awsKeys{out.AccessKeyId, out.SecretAccessKey, out.Token}, out.Expiration, got.At)
}

// gitPassword returns the user and the password for a repository of CodeCommit: a signature of
// Signature Version 4, which AWS accepts for 15 minutes. Source: git-remote-codecommit of AWS; AWS,
// "Create a signed AWS API request". The signer of the SDK always signs headers that this form does
// not have.
func (k awsKeys) gitPassword(at time.Time, region, host, path string) (user, password string) {
	stamp := at.UTC().Format("20060102T150405")
	scope := []string{stamp[:8], region, "codecommit", "aws4_request"}
	key := []byte("AWS4" + k.Secret)
	for _, part := range scope {
		key = hmacSHA256(key, part)
	}
	sum := sha256.Sum256([]byte("GIT\n" + path + "\n\nhost:" + host + "\n\nhost\n"))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, strings.Join(scope, "/"), hex.EncodeToString(sum[:])}, "\n")
	user = k.ID
	if k.Session != "" {
		user += "%" + k.Session
	}
	return user, stamp + "Z" + hex.EncodeToString(hmacSHA256(key, text))
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
