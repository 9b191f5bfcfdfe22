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
	"strings"
	"time"

	"limpet/sync/netx"
)

// Where machines and containers get keys. Source: AWS' guides of EC2, ECS and
// EKS.
const (
	awsMachine   = "http://169.254.169.254"
	awsContainer = "http://169.254.170.2"
	// machineTokenLife is how long the token of the metadata server is asked for;
	// it is used at once. Unit: seconds.
	machineTokenLife = "300"
	// roleSession names the session where nobody has named it.
	roleSession = "limpet"
)

// containerHosts may be asked over http. Source: AWS, "Container credential
// provider".
var containerHosts = []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}

// lent are keys that end.
type lent struct {
	awsKeys
	until time.Time
	life  time.Duration
}

// lend judges keys that were answered. Their end is by the clock of AWS.
func (c call) lend(k awsKeys, until, at time.Time) (lent, error) {
	l := lent{awsKeys: k, until: until, life: until.Sub(at)}
	switch {
	case !printable(k.ID) || !printable(k.Secret) || k.Session != "" && !printable(k.Session):
		return lent{}, c.fail(netx.Protocol, 0, errors.New("the answer holds no keys"))
	case l.life <= 0:
		return lent{}, c.fail(netx.Protocol, 0, errors.New("the answer does not say how long the keys live, or they have ended already"))
	}
	return l, nil
}

// role is one that is taken on.
type role struct {
	arn, session string
	file         string // of the token of a web identity; "" = taken on with keys
}

// webIdentity exchanges the token of a service account for keys. The token is
// read again each time.
func (p *aws) webIdentity(ctx context.Context, r Request, region string, role role) (lent, error) {
	c := call{op: "take on a role by web identity", identity: "role " + role.arn + " of " + r.Place, tls: r.TLS}
	token, err := r.file(role.file)
	if err != nil {
		return lent{}, invalid(c.op, "read AWS_WEB_IDENTITY_TOKEN_FILE: %w", err)
	}
	subject := strings.TrimSpace(string(token))
	c.secrets = []string{subject}
	return p.sts(ctx, r, region, c, url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "WebIdentityToken": {subject}}, role, nil)
}

// assume exchanges keys for those of a role.
func (p *aws) assume(ctx context.Context, r Request, region string, keys awsKeys, role role) (lent, error) {
	c := call{op: "take on a role", identity: "role " + role.arn + " with " + keys.String() + " of " + r.Place, tls: r.TLS, secrets: []string{keys.Secret, keys.Session}}
	return p.sts(ctx, r, region, c, url.Values{"Action": {"AssumeRole"}}, role, &keys)
}

// sts asks the Security Token Service, signed where there are keys.
func (p *aws) sts(ctx context.Context, r Request, region string, c call, form url.Values, role role, keys *awsKeys) (lent, error) {
	env := r.env(p.desk)
	region = cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION"), region)
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	base, err := url.Parse(cmp.Or(env("AWS_ENDPOINT_URL_STS"), "https://sts."+region+domain))
	if err != nil || base.Host == "" {
		return lent{}, invalid(c.op, "AWS_ENDPOINT_URL_STS is not a URL")
	}
	form.Set("Version", "2011-06-15")
	form.Set("RoleArn", role.arn)
	form.Set("RoleSessionName", cmp.Or(role.session, roleSession))
	c.method, c.url, c.body = http.MethodPost, strings.TrimSuffix(base.String(), "/")+"/", form.Encode()
	got, err := p.timely(ctx, func(now time.Time) (call, error) {
		if keys != nil {
			c.header = keys.authorize(now, region, "sts", base.Host, c.body)
		}
		return c, nil
	})
	if err != nil {
		return lent{}, err
	}
	keysOf, until, err := readSTS(got.body)
	if err != nil {
		return lent{}, c.fail(netx.Protocol, 0, err)
	}
	return c.lend(keysOf, until, got.at)
}

// readSTS reads the answer to either action. Its error does not repeat it.
func readSTS(body []byte) (awsKeys, time.Time, error) {
	type credentials struct {
		ID      string `xml:"AccessKeyId"`
		Secret  string `xml:"SecretAccessKey"`
		Session string `xml:"SessionToken"`
		Until   string `xml:"Expiration"`
	}
	var out struct {
		Web  credentials `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
		Keys credentials `xml:"AssumeRoleResult>Credentials"`
	}
	err := xml.Unmarshal(body, &out)
	if out.Web.ID == "" {
		out.Web = out.Keys
	}
	until, bad := time.Parse(time.RFC3339, out.Web.Until)
	if err != nil || bad != nil {
		return awsKeys{}, time.Time{}, errors.New("the answer is not that of STS")
	}
	return awsKeys{out.Web.ID, out.Web.Secret, out.Web.Session}, until, nil
}

// readLent reads the keys of a container or a machine. Its error does not repeat
// them.
func readLent(body []byte) (awsKeys, time.Time, error) {
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
func (p *aws) container(ctx context.Context, r Request) (lent, error) {
	env := r.env(p.desk)
	c := call{op: "get the keys of this container", identity: "role of this container", method: http.MethodGet, near: true}
	if path := env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		c.url = awsContainer + "/" + strings.TrimPrefix(path, "/")
	} else {
		c.url = env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
		u, err := url.Parse(c.url)
		if err != nil || u.Scheme != "https" && !(u.Scheme == "http" && containerHost(u.Hostname())) {
			return lent{}, invalid(c.op, "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this host")
		}
		c.near = u.Scheme == "http"
	}
	token := env("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if path := env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); path != "" {
		text, err := r.file(path)
		if err != nil {
			return lent{}, invalid(c.op, "read AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		c.header, c.secrets = map[string]string{"Authorization": token}, []string{token}
	}
	return p.lentBy(ctx, c)
}

func containerHost(host string) bool {
	ip := net.ParseIP(host)
	for _, known := range containerHosts {
		if ip.Equal(net.ParseIP(known)) {
			return true
		}
	}
	return ip.IsLoopback() || host == "localhost"
}

func (p *aws) lentBy(ctx context.Context, c call) (lent, error) {
	got, err := p.do(ctx, c)
	if err != nil {
		return lent{}, err
	}
	keys, until, err := readLent(got.body)
	if err != nil {
		return lent{}, c.fail(netx.Protocol, 0, err)
	}
	return c.lend(keys, until, got.at)
}

// machine asks the metadata server of EC2, in its second version: a token first.
func (p *aws) machine(ctx context.Context, r Request) (lent, error) {
	env := r.env(p.desk)
	if strings.EqualFold(env("AWS_EC2_METADATA_DISABLED"), "true") {
		return lent{}, invalid("sign for CodeCommit", "%s has no identity of AWS: none of its variables are set, there is no profile, and AWS_EC2_METADATA_DISABLED is set", r.Place)
	}
	base := strings.TrimSuffix(cmp.Or(env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), awsMachine), "/")
	c := call{op: "get a token of the metadata server", identity: "role of this machine", method: http.MethodPut, near: true,
		url: base + "/latest/api/token", header: map[string]string{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": machineTokenLife}}
	got, err := p.do(ctx, c)
	if err != nil {
		return lent{}, err
	}
	token := strings.TrimSpace(string(got.body))
	if !printable(token) {
		return lent{}, c.fail(netx.Protocol, 0, errors.New("the answer holds no token"))
	}
	c.op, c.method, c.secrets = "find the role of this machine", http.MethodGet, []string{token}
	c.url, c.header = base+"/latest/meta-data/iam/security-credentials/", map[string]string{"X-Aws-Ec2-Metadata-Token": token}
	if got, err = p.do(ctx, c); err != nil {
		return lent{}, err
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(got.body)), "\n")
	if !printable(name) || strings.Contains(name, "/") {
		return lent{}, c.fail(netx.Protocol, 0, errors.New("the answer names no role"))
	}
	c.op, c.url = "get the keys of this machine", c.url+url.PathEscape(name)
	return p.lentBy(ctx, c)
}
