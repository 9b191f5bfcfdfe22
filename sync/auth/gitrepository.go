package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/sync/signature"
)

// GitRepository is the part of the spec of a GitRepository of Flux about authentication
// and signatures. It has names of Secrets, and no secret but that in the URL of the spec.
type GitRepository struct {
	Lookup                  // of its credentials; the URL has no password, and no user unless it is of ssh
	Secret   string         // with credentials, "" = none
	inURL    *url.Userinfo  // of an http or https URL
	Verify   signature.Mode // what has to be signed, "" = nothing
	Signers  string         // Secret with the keys of Verify
	Warnings []string       // for people, about what is unwise or refused by Flux
}

// SourceError is returned for a GitRepository that is refused.
type SourceError struct {
	Reason string // of a condition of Flux; "" = none
	Field  string // of the object, such as spec.provider
	Err    error
}

func (e *SourceError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *SourceError) Unwrap() error { return e.Err }

// Reasons of a SourceError. Source: fluxcd/source-controller, api/v1/condition_types.go.
const (
	ReasonAuthentication = "AuthenticationFailed"
	ReasonProvider       = "InvalidProviderConfiguration"
	ReasonURL            = "URLInvalid"
	ReasonFeatureGate    = "FeatureGateDisabled"
	ReasonVerifyMode     = "InvalidVerificationMode"
	ReasonVerify         = "VerificationError"
	ReasonOperation      = "GitOperationFailed"
	ReasonEmpty          = "EmptyGitRepository"
)

// The fields of a GitRepository that name an identity.
const (
	fieldURL      = "spec.url"
	FieldProvider = "spec.provider"
	FieldSecret   = "spec.secretRef"
	fieldProxy    = "spec.proxySecretRef"
	FieldMode     = "spec.verify.mode"
	FieldSigners  = "spec.verify.secretRef"
)

// fluxProviders are those of the definition of Flux. Source: its enum.
var fluxProviders = []string{Generic, "aws", "azure", "github"}

type secretRef struct {
	Name string `json:"name"`
}

// gitRepositorySpec is the part of a spec that is read here.
type gitRepositorySpec struct {
	URL                string     `json:"url"`
	Provider           string     `json:"provider"`
	ServiceAccountName string     `json:"serviceAccountName"`
	SecretRef          *secretRef `json:"secretRef"`
	ProxySecretRef     *secretRef `json:"proxySecretRef"`
	Verify             *struct {
		Mode      string     `json:"mode"`
		SecretRef *secretRef `json:"secretRef"`
	} `json:"verify"`
}

// ReadGitRepository parses the spec of a GitRepository. A malformed one is refused whole: an
// identity must not be guessed. The error is a *SourceError and holds no secret. No requests are
// made.
func ReadGitRepository(namespace, name string, spec map[string]any) (GitRepository, error) {
	refused := func(reason, field, format string, args ...any) (GitRepository, error) {
		return GitRepository{}, &SourceError{reason, field, fmt.Errorf(format, args...)}
	}
	var s gitRepositorySpec
	data, err := json.Marshal(spec)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return refused("", "spec."+wrong.Field, "it is %s", wrong.Value)
	} else if err != nil {
		return refused("", "spec", "it cannot be read")
	}
	g := GitRepository{Lookup: Lookup{Namespace: namespace, Repository: name, Provider: cmp.Or(s.Provider, Generic)}}
	var signers *secretRef
	if s.Verify != nil {
		if signers = s.Verify.SecretRef; signers == nil {
			return refused("", FieldSigners, "it is missing: name the Secret with the keys that may sign")
		}
		if g.Verify, err = signature.ParseMode(cmp.Or(s.Verify.Mode, string(signature.HEAD))); err != nil {
			return refused(ReasonVerifyMode, FieldMode, "%w", err)
		}
	}
	for _, r := range []struct {
		ref   *secretRef
		field string
		to    *string
	}{{s.SecretRef, FieldSecret, &g.Secret}, {s.ProxySecretRef, fieldProxy, &g.ProxySecret}, {signers, FieldSigners, &g.Signers}} {
		if r.ref == nil {
			continue
		}
		if *r.to = r.ref.Name; len(validation.IsDNS1123Subdomain(*r.to)) > 0 {
			return refused("", r.field+".name", "it is not a name of a Secret: lower case letters, digits, dashes and dots")
		}
	}
	const account = "spec.serviceAccountName"
	if err := CheckProvider(s.Provider); err != nil {
		return refused(ReasonProvider, FieldProvider, "%w", err)
	}
	switch {
	case s.ServiceAccountName == "":
	case g.Provider != "azure" && g.Provider != "aws":
		return refused(ReasonProvider, account, "it goes with provider azure or aws only, and the provider is %s; leave it out", g.Provider)
	default:
		return refused(ReasonFeatureGate, account, "limpet does not use the identity of a service account of the cluster; "+
			"leave it out, and the identity of this host is used, or name a Secret with keys of %s", g.Provider)
	}
	if err := g.address(s.URL); err != nil {
		return refused(ReasonURL, fieldURL, "%w", err)
	}
	if !slices.Contains(fluxProviders, g.Provider) {
		g.Warnings = append(g.Warnings, fmt.Sprintf("provider %s is served by limpet, the definition of Flux refuses it", g.Provider))
	}
	if g.Secret != "" {
		g.Secure = map[string]string{"secretRef": g.Secret}
	}
	return g, nil
}

// address parses the URL, and takes user and password out of it.
func (g *GitRepository) address(raw string) error {
	a, err := ParseAddress(raw)
	switch {
	case raw == "":
		return errors.New("it is missing")
	case err != nil:
		return err
	case a.Local() && a.Scheme != BundleScheme || !strings.Contains(raw, "://"):
		return errors.New("it begins with https://, http:// or ssh://, as in ssh://HOST/PATH")
	}
	g.URL = a.String()
	u, err := url.Parse(raw)
	if a.Scheme == "ssh" || err != nil || u.User == nil {
		return nil
	}
	warning := "the url has a user without a password, which is not sent; put both into a Secret"
	if g.inURL = u.User; a.Password {
		warning = "the url has a password, which is visible to all who may read the source; put it into a Secret"
	}
	g.Warnings = append(g.Warnings, warning)
	return nil
}

// Asked returns the credentials that from finds, else those of the URL. Errors about wrong keys are
// of type *SourceError; others, such as those of token endpoints, are passed on. Errors hold no
// secret.
func (g GitRepository) Asked(ctx context.Context, from Source) (*Credentials, error) {
	refused := func(reason, field string, err error) (*Credentials, error) {
		return nil, &SourceError{reason, field, err}
	}
	c, err := from(ctx, g.Lookup)
	if _, other := errors.AsType[ProviderError](err); other {
		return refused(ReasonProvider, FieldProvider, err)
	}
	if _, noWay := errors.AsType[ProxyError](err); noWay {
		return refused(ReasonAuthentication, fieldProxy, err)
	}
	if err != nil {
		return nil, err
	}
	password, inURL := g.inURL.Password()
	switch {
	case c != nil && c.Bearer != "" && inURL:
		return refused(ReasonAuthentication, fieldURL, errors.New("it has a password, and there is a bearer token too; take it out of the url"))
	case strings.HasPrefix(g.URL, "ssh://") && (c == nil || len(c.SSHKey) == 0):
		return refused(ReasonAuthentication, FieldSecret,
			errors.New("ssh needs a Secret with identity and known_hosts, or a rule under git-credentials of the config file"))
	case inURL && c.Empty():
		c = c.copied()
		c.Username, c.Password, c.Source = g.inURL.Username(), password, fieldURL
	}
	return c, nil
}

// NamedSecret finds credentials for GitRepositories: in the Secret that one names, or the files
// that stand for it, and for one that names none in the rules. A Secret that is named and cannot be
// used is an error, also when it is not there: it must not be replaced by another identity.
func (p Places) NamedSecret() Source {
	secrets := Places{Secrets: p.Secrets, Dir: p.Dir, Observer: p.Observer}
	rules := Places{Rules: p.Rules, Observer: p.Observer}
	return func(ctx context.Context, l Lookup) (*Credentials, error) {
		name := l.Secure["secretRef"]
		if name == "" {
			if l.Provider == Generic { // which is the default, too
				l.Provider = ""
			}
			return rules.Credentials(ctx, l)
		}
		l.Repository = name // files stand for the Secret, and not for a Repository of the same name
		c, err := secrets.Credentials(ctx, l)
		if err == nil && c == nil {
			err = fmt.Errorf("secret %s/%s is not there, holds no credentials, or may not be read; "+
				"its keys may be files %[1]s.%[2]s/KEY below --credentials-dir, too", l.Namespace, name)
		}
		return c, err
	}
}

// NamedSigners finds the keys of signers of a GitRepository in the Secret that it names, or the
// files that stand for it. A key of the Secret whose name has no meaning is one of OpenPGP, as in
// Flux.
func (g GitRepository) NamedSigners(ctx context.Context, p Places) (*Trust, error) {
	secrets := func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		if p.Secrets == nil {
			return nil, nil
		}
		data, err := p.Secrets(ctx, namespace, name)
		named := make(map[string][]byte, len(data))
		for k, v := range data {
			if !signature.IsKeys(k) {
				k += " (as OpenPGP).asc" // no key of a Secret contains a space
			}
			named[k] = v
		}
		return named, err
	}
	l := Lookup{Namespace: g.Namespace, Repository: g.Signers, Secure: map[string]string{"verify": g.Signers}}
	found, err := Places{Secrets: secrets, Dir: p.Dir, Observer: p.Observer}.Trust(ctx, l)
	if err == nil && found == nil {
		err = &SourceError{ReasonVerify, FieldSigners, fmt.Errorf("secret %s/%s is not there, is empty, or may not be read; "+
			"its keys may be files %[1]s.%[2]s/NAME.asc or NAME.sshpub below --credentials-dir, too", g.Namespace, g.Signers)}
	}
	return found, err
}
