package bucket

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"limpet/sync/auth"
)

// The keys of Secrets. Source: Flux.
const (
	keyAccess  = "accesskey"
	keySecret  = "secretkey"
	keyAccount = "serviceaccount"
	keySAS     = "sasKey"
)

// identityKeys are the keys of Secrets that prove an identity of a cloud, and their names in package
// auth.
var identityKeys = map[string]string{
	keyAccount:          "gcpServiceAccount",
	"tenantId":          "AZURE_TENANT_ID",
	"clientId":          "AZURE_CLIENT_ID",
	"clientSecret":      "AZURE_CLIENT_SECRET",
	"clientCertificate": "AZURE_CLIENT_CERTIFICATE",
	"authorityHost":     "AZURE_AUTHORITY_HOST",
}

// The hosts of clouds. Those of Amazon have the bucket in the name of the host.
var (
	awsHost   = regexp.MustCompile(`^s3(?:[.-](?:dualstack\.|fips\.)*([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?$`)
	azureHost = regexp.MustCompile(`^[a-z0-9]+\.blob\.core\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)$`)
)

// open returns the bucket with its credentials. region is that which the server has named, "" = none.
func (u *upstream) open(ctx context.Context, region string) (*remote, error) {
	s, o := u.spec, u.spec.kind.o
	trust, err := o.Places.NamedTransport(ctx, s.namespace, s.CertSecretRef.Name, s.ProxySecretRef.Name)
	if err != nil {
		return nil, err
	}
	r := &remote{provider: s.Provider, client: o.Client, root: *s.base}
	if r.transport, err = o.Client.RoundTripper(trust); err != nil {
		return nil, err
	}
	found := awsHost.FindStringSubmatch(r.root.Hostname())
	if r.region = cmp.Or(s.Region, region, "us-east-1"); found != nil { // that of stores without regions
		r.region = cmp.Or(s.Region, region, found[1], "us-east-1")
	}
	if found != nil && (s.Insecure || !strings.Contains(s.BucketName, ".")) { // a certificate is of one level
		r.root.Host = s.BucketName + "." + r.root.Host
	} else {
		r.root.Path += "/" + s.BucketName
	}
	if s.SecretRef.Name != "" {
		keys, err := o.Places.Named(ctx, s.namespace, s.SecretRef.Name, keyAccess, keySecret, keyAccount, keySAS)
		if err != nil {
			return nil, err
		}
		r.login, err = u.login(ctx, r, keys, trust)
		return r, err
	}
	switch at := s.base.Hostname(); {
	case s.Provider == auth.Generic:
		r.login = &auth.Credentials{}
	case s.Provider == "aws" && (found == nil || s.Insecure), s.Provider == "azure" && !azureHost.MatchString(at):
		err = fmt.Errorf("the identity of this host is for https to hosts of %s, and %s is none; name a Secret in spec.secretRef", s.Provider, at)
	default:
		r.login, err = o.Identities.Storage(ctx, s.Provider, r.region, "this host", nil, trust.Proxy)
	}
	return r, err
}

// login returns the credentials of a Secret.
func (u *upstream) login(ctx context.Context, r *remote, keys map[string][]byte, trust *auth.Credentials) (*auth.Credentials, error) {
	s := u.spec
	text := func(key string) string { return strings.TrimSpace(string(keys[key])) }
	required := func(fields string) (*auth.Credentials, error) {
		return nil, fmt.Errorf("invalid '%s' secret data: required fields %s", s.SecretRef.Name, fields)
	}
	proofs := map[string][]byte{}
	for from, to := range identityKeys {
		if len(keys[from]) > 0 {
			proofs[to] = keys[from]
		}
	}
	switch {
	case s.Provider == auth.Generic || s.Provider == "aws":
		if text(keyAccess) == "" || text(keySecret) == "" {
			return required("'accesskey' and 'secretkey'")
		}
		return &auth.Credentials{Username: text(keyAccess), Password: text(keySecret)}, nil
	case s.Provider == "gcp" && text(keyAccount) == "":
		return required("'serviceaccount'")
	case s.Provider == "azure" && text("clientId") == "" && text(keySAS) != "":
		return &auth.Credentials{Password: strings.TrimPrefix(text(keySAS), "?")}, nil
	case s.Provider == "azure" && text("clientSecret")+text("clientCertificate") == "":
		return required("'tenantId' and 'clientId' with 'clientSecret' or 'clientCertificate', or 'sasKey'")
	}
	return s.kind.o.Identities.Storage(ctx, s.Provider, r.region, "secret "+s.namespace+"/"+s.SecretRef.Name, proofs, trust.Proxy)
}

// emptyDigest is the SHA-256 of the empty body of a GET.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// authorize adds the credentials to a request: a token, the query of a SAS, or a signature of AWS.
func (r *remote) authorize(ctx context.Context, req *http.Request, now time.Time) error {
	c := r.login
	switch {
	case c.Empty():
		return nil
	case r.provider == "azure" && c.Bearer == "":
		req.URL.RawQuery = strings.TrimPrefix(req.URL.RawQuery+"&"+c.Password, "&")
		return nil
	case r.provider == "azure" || r.provider == "gcp":
		req.Header.Set("Authorization", "Bearer "+c.Bearer)
		return nil
	}
	req.Header.Set("X-Amz-Content-Sha256", emptyDigest)
	keys := sdk.Credentials{AccessKeyID: c.Username, SecretAccessKey: c.Password, SessionToken: c.Bearer}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return signer.SignHTTP(ctx, keys, req, emptyDigest, "s3", r.region, now)
}
