package identity

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"limpet/sync/auth"
)

// googleAccount is what is used of the JSON. Source: Google's documentation of
// service account keys and AIP-4117.
type googleAccount struct {
	Type         string `json:"type"`
	Email        string `json:"client_email"`
	PrivateKey   string `json:"private_key"`
	PrivateKeyID string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`

	Audience         string        `json:"audience"`
	SubjectTokenType string        `json:"subject_token_type"`
	TokenURL         string        `json:"token_url"`
	ImpersonationURL string        `json:"service_account_impersonation_url"`
	Source           subjectSource `json:"credential_source"`
	Impersonation    struct {
		Lifetime int `json:"token_lifetime_seconds"`
	} `json:"service_account_impersonation"`

	fingerprint string
}

// parseGoogleAccount parses and checks the JSON. own reports that the operator of this
// agent has written it; any other names no file and no host but Google's. Errors do not
// repeat it.
func parseGoogleAccount(text []byte, own bool) (googleAccount, error) {
	var a googleAccount
	if json.Unmarshal(text, &a) != nil {
		return a, errors.New("it is no JSON of a Google account")
	}
	a.fingerprint = auth.Identity{Keys: map[string][]byte{"": text}}.Fingerprint()
	var endpoints []string
	switch a.Type {
	case "service_account":
		if !printable(a.Email) || strings.Contains(a.Email, ":") || a.PrivateKey == "" {
			return a, errors.New("client_email and private_key are missing in it")
		}
		a.TokenURI = cmp.Or(a.TokenURI, googleTokens)
		endpoints = []string{a.TokenURI}
	case "external_account":
		if !own {
			return a, errors.New("an external_account names files and hosts; " +
				"only a credentials directory or the config file of limpet may hold one")
		}
		if a.Audience == "" || a.SubjectTokenType == "" || a.TokenURL == "" {
			return a, errors.New("audience, subject_token_type and token_url are missing in it")
		}
		if endpoints = []string{a.TokenURL}; a.ImpersonationURL != "" {
			endpoints = append(endpoints, a.ImpersonationURL)
		}
		if err := a.Source.check(); err != nil {
			return a, err
		}
	default:
		return a, errors.New("its type is none of service_account and external_account")
	}
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
			return a, errors.New("a URL in it is not an http or https URL")
		case !own && (u.Scheme != "https" || u.Port() != "" || !strings.HasSuffix(strings.ToLower(u.Hostname()), googleAPIs)):
			return a, errors.New("a URL in it is not below https://*" + googleAPIs)
		}
	}
	return a, nil
}

// impersonated returns the e-mail address in the URL that makes tokens for a service
// account, "" without one.
func (a googleAccount) impersonated() string {
	_, rest, _ := strings.Cut(a.ImpersonationURL, "/serviceAccounts/")
	email, _, ok := strings.Cut(rest, ":generateAccessToken")
	if email, err := url.PathUnescape(email); err == nil && ok && printable(email) && !strings.Contains(email, ":") {
		return email
	}
	return ""
}

// federated has x/oauth2 exchange the token of another party for one of Google, and that
// for one of a service account when the JSON names it.
func (p *gcp) federated(ctx context.Context, r Request, a googleAccount) (auth.Token, error) {
	c := call{op: "get a token by workload identity federation", identity: "workload identity " + a.Audience + " from " + r.Place, tls: r.TLS}
	t := &through{g: p.registry, ctx: ctx, c: c}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: t})
	source, err := externalaccount.NewTokenSource(ctx, externalaccount.Config{
		Audience:                       a.Audience,
		SubjectTokenType:               a.SubjectTokenType,
		TokenURL:                       a.TokenURL,
		ServiceAccountImpersonationURL: a.ImpersonationURL,
		ServiceAccountImpersonationLifetimeSeconds: a.Impersonation.Lifetime,
		Scopes:               []string{googleScope},
		SubjectTokenSupplier: &subject{p, r, a.Source, t},
	})
	made := &oauth2.Token{}
	if err == nil {
		made, err = source.Token()
	}
	var life time.Duration
	if err == nil {
		life = time.Until(made.Expiry)
		if a.ImpersonationURL != "" {
			life = made.Expiry.Sub(t.at) // Google's clock
		}
	} else {
		made = &oauth2.Token{}
	}
	token, err := t.token(made.AccessToken, life, err)
	token.User = a.impersonated()
	return token, err
}

// subjectSource says where the token of the other party is. Programs are not started
// and AWS is not asked: what is left is a file, or a URL of this network.
type subjectSource struct {
	File       string            `json:"file"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers"`
	Executable json.RawMessage   `json:"executable"`
	AWS        string            `json:"environment_id"`
	Format     struct {
		Type  string `json:"type"`
		Field string `json:"subject_token_field_name"`
	} `json:"format"`
}

func (s subjectSource) check() error {
	switch {
	case len(s.Executable) > 0:
		return errors.New("credential_source names a program, and limpet starts none")
	case s.AWS != "":
		return errors.New("credential_source is AWS, which limpet does not federate with Google")
	case (s.File == "") == (s.URL == ""):
		return errors.New("credential_source names neither a file nor a URL, or both")
	case s.Format.Type != "" && s.Format.Type != "text" && s.Format.Type != "json":
		return errors.New("the format of credential_source is neither text nor json")
	case s.Format.Type == "json" && s.Format.Field == "":
		return errors.New("the format of credential_source has no subject_token_field_name")
	}
	return nil
}

// parse takes the token out of a file or an answer.
func (s subjectSource) parse(text []byte) (string, error) {
	token := string(bytes.TrimSpace(text))
	if s.Format.Type == "json" {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil || json.Unmarshal(members[s.Format.Field], &token) != nil {
			return "", errors.New("the token of the other party is not in JSON as credential_source says")
		}
	}
	if !printable(token) {
		return "", errors.New("the token of the other party is empty or malformed")
	}
	return token, nil
}

// subject reads the token of the other party, each time anew: it is short-lived.
type subject struct {
	p      *gcp
	r      Request
	source subjectSource
	t      *through
}

// SubjectToken implements externalaccount.SubjectTokenSupplier.
func (s *subject) SubjectToken(ctx context.Context, _ externalaccount.SupplierOptions) (string, error) {
	if s.source.File != "" {
		text, err := s.r.file(s.source.File)
		if err != nil {
			return "", err
		}
		return s.source.parse(text)
	}
	c := s.t.c
	c.op, c.method, c.url, c.header = "get the token of the other party", http.MethodGet, s.source.URL, s.source.Headers
	c.near = strings.HasPrefix(s.source.URL, "http://")
	got, err := s.p.do(ctx, c)
	if err != nil {
		s.t.failed = err // the library returns it as text
		return "", err
	}
	return s.source.parse(got.body)
}
