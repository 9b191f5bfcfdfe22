package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/netx"
)

// Where machines and containers get keys. Source: AWS' guides of EC2, ECS and EKS.
const (
	awsMachine   = "http://169.254.169.254"
	awsContainer = "http://169.254.170.2"
	// machineTokenLife is the lifetime of the token of the metadata server, which is
	// used at once. Unit: seconds.
	machineTokenLife = "300"
	// roleSession names the session when AWS_ROLE_SESSION_NAME is not set.
	roleSession = "limpet"
)

// containerHosts may be asked over http. Source: AWS, "Container credential provider".
var containerHosts = []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}

// sessionCredentials are keys that expire.
type sessionCredentials struct {
	awsKeys
	until time.Time
	life  time.Duration
}

// session checks keys from an answer. Their end is by the clock of AWS.
func (c call) session(k awsKeys, until time.Time, err error, at time.Time) (sessionCredentials, error) {
	s := sessionCredentials{awsKeys: k, until: until, life: until.Sub(at)}
	switch {
	case err != nil:
	case !k.valid():
		err = errors.New("the answer holds no keys")
	case s.life <= 0:
		err = errors.New("the answer does not say how long the keys live, or they have ended already")
	default:
		return s, nil
	}
	return sessionCredentials{}, c.fail(netx.Protocol, 0, err)
}

// webIdentity exchanges the token of a service account for keys, by the Security Token
// Service. The token is read again each time: it is replaced on the disk.
func (p *aws) webIdentity(ctx context.Context, r Request, region string) (sessionCredentials, error) {
	env := r.env(p.registry)
	role := env("AWS_ROLE_ARN")
	c := call{op: "assume a role by web identity", identity: "role " + role + " of " + r.Place, tls: r.TLS, method: http.MethodPost}
	token, err := r.file(env("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return sessionCredentials{}, invalid(c.op, "read AWS_WEB_IDENTITY_TOKEN_FILE: %w", err)
	}
	subject := strings.TrimSpace(string(token))
	c.secrets = []string{subject}
	region = cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION"), region)
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	c.url = strings.TrimSuffix(cmp.Or(env("AWS_ENDPOINT_URL_STS"), "https://sts."+region+domain), "/") + "/"
	c.body = url.Values{
		"Action":           {"AssumeRoleWithWebIdentity"},
		"Version":          {"2011-06-15"},
		"RoleArn":          {role},
		"RoleSessionName":  {cmp.Or(env("AWS_ROLE_SESSION_NAME"), roleSession)},
		"WebIdentityToken": {subject},
	}.Encode()
	got, err := p.do(ctx, c)
	if err != nil {
		return sessionCredentials{}, err
	}
	keys, until, err := parseSTS(got.body)
	return c.session(keys, until, err, got.at)
}

// parseSTS parses the answer of STS. Its error does not repeat it.
func parseSTS(body []byte) (awsKeys, time.Time, error) {
	var out struct {
		ID      string `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Secret  string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Session string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Until   string `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	}
	err := xml.Unmarshal(body, &out)
	until, bad := time.Parse(time.RFC3339, out.Until)
	if err != nil || bad != nil {
		return awsKeys{}, time.Time{}, errors.New("the answer is not that of STS")
	}
	return awsKeys{out.ID, out.Secret, out.Session}, until, nil
}

// parseKeys parses the keys of a container or a machine. Its error does not repeat them.
func parseKeys(body []byte) (awsKeys, time.Time, error) {
	var out struct {
		ID      string    `json:"AccessKeyId"`
		Secret  string    `json:"SecretAccessKey"`
		Session string    `json:"Token"`
		Until   time.Time `json:"Expiration"`
	}
	if json.Unmarshal(body, &out) != nil {
		return awsKeys{}, time.Time{}, errors.New("the answer holds no keys")
	}
	return awsKeys{out.ID, out.Secret, out.Session}, out.Until, nil
}

// container asks the agent beside a container of ECS or a pod of EKS.
func (p *aws) container(ctx context.Context, r Request) (sessionCredentials, error) {
	env := r.env(p.registry)
	c := call{op: "get the keys of this container", identity: "role of this container", method: http.MethodGet, near: true}
	if path := env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		c.url = awsContainer + "/" + strings.TrimPrefix(path, "/")
	} else {
		c.url = env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
		u, err := url.Parse(c.url)
		if err != nil || u.Scheme != "https" && !(u.Scheme == "http" && isContainerHost(u.Hostname())) {
			return sessionCredentials{}, invalid(c.op, "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this host")
		}
		c.near = u.Scheme == "http"
	}
	token := env("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if path := env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); path != "" {
		text, err := r.file(path)
		if err != nil {
			return sessionCredentials{}, invalid(c.op, "read AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		c.header, c.secrets = map[string]string{"Authorization": token}, []string{token}
	}
	return p.sessionOf(ctx, c)
}

func isContainerHost(host string) bool {
	ip := net.ParseIP(host)
	known := func(address string) bool { return ip.Equal(net.ParseIP(address)) }
	return host == "localhost" || ip.IsLoopback() || slices.ContainsFunc(containerHosts, known)
}

func (p *aws) sessionOf(ctx context.Context, c call) (sessionCredentials, error) {
	got, err := p.do(ctx, c)
	if err != nil {
		return sessionCredentials{}, err
	}
	keys, until, err := parseKeys(got.body)
	return c.session(keys, until, err, got.at)
}

// machine asks the metadata server of EC2, in its second version: a token first.
func (p *aws) machine(ctx context.Context, r Request) (sessionCredentials, error) {
	env := r.env(p.registry)
	if strings.EqualFold(env("AWS_EC2_METADATA_DISABLED"), "true") {
		return sessionCredentials{}, invalid(opCodeCommit,
			"%s has no identity of AWS: none of its variables are set, and AWS_EC2_METADATA_DISABLED is set", r.Place)
	}
	base := strings.TrimSuffix(cmp.Or(env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), awsMachine), "/")
	c := call{op: "get a token of the metadata server", identity: "role of this machine", method: http.MethodPut, near: true,
		url: base + "/latest/api/token", header: map[string]string{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": machineTokenLife}}
	got, err := p.do(ctx, c)
	if err != nil {
		return sessionCredentials{}, err
	}
	token := strings.TrimSpace(string(got.body))
	if !printable(token) {
		return sessionCredentials{}, c.fail(netx.Protocol, 0, errors.New("the answer holds no token"))
	}
	c.op, c.method, c.secrets = "find the role of this machine", http.MethodGet, []string{token}
	c.url, c.header = base+"/latest/meta-data/iam/security-credentials/", map[string]string{"X-Aws-Ec2-Metadata-Token": token}
	if got, err = p.do(ctx, c); err != nil {
		return sessionCredentials{}, err
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(got.body)), "\n")
	if !printable(name) || strings.Contains(name, "/") {
		return sessionCredentials{}, c.fail(netx.Protocol, 0, errors.New("the answer names no role"))
	}
	c.op, c.url = "get the keys of this machine", c.url+url.PathEscape(name)
	return p.sessionOf(ctx, c)
}
