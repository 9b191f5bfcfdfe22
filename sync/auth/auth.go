// Package auth looks up the credentials of Git remotes, the keys of signers and the keys
// to sign with, see [Places]. It makes no requests to Git servers and stores nothing on
// disk; every look-up reads its places again, so that a rotated secret is used at once.
//
// No value of this package prints a secret: [Credentials] shows its kind and
// where it was found, in every format verb, in slog and in JSON.
package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// Credentials authenticate to one Git remote. The URL decides which of them are used: for http and
// https Bearer, else Username and Password, and the TLS fields; for ssh the SSH fields.
type Credentials struct {
	Username      string // for basic; empty with a Password means "git"
	Password      string // password or token
	Bearer        string // sent as "Authorization: Bearer"; wins over basic
	SSHKey        []byte // private key, PEM or OpenSSH form; of [Places.Signing] any that signs
	SSHPassphrase string // of SSHKey, when it is encrypted
	KnownHosts    []byte // known_hosts lines; over ssh a host that they lack is refused
	PrivateKey    []byte // of a GitHub App, in the secret of a Connection: PEM, or base64 of PEM
	CA            []byte // PEM bundle, added to the system's roots
	ClientCert    []byte // PEM, with ClientKey: mutual TLS
	ClientKey     []byte
	Proxy         *netx.Proxy // nil = the one of the environment
	Source        string      // where they were found, for people: never a secret

	// Identity is set until a provider has made a password or token of it.
	Identity *Identity

	// Forget is called when a host refuses them (401), so that their cache drops them; nil = they are
	// not cached.
	Forget func()
	// Clock is called with the time of a host that refuses them, when they contain the
	// time at which they were made; nil = they do not.
	Clock func(time.Time)
}

// Dated passes the Date of a refusal to Clock.
func (c *Credentials) Dated(date string) {
	if c == nil || c.Clock == nil {
		return
	}
	if at, err := http.ParseTime(date); err == nil {
		c.Clock(at)
	}
}

// Refused is called when a host refuses c. It calls Forget, if set.
func (c *Credentials) Refused() {
	if c != nil && c.Forget != nil {
		c.Forget()
	}
}

// Lookup identifies the object and the remote of a look-up.
type Lookup struct {
	Namespace   string            // of the Repository object
	Repository  string            // its name
	URL         string            // of the remote
	TokenUser   string            // user name that goes with a bare token; "" = "git"
	Secure      map[string]string // field of spec.secure -> name of the secret
	Connection  string            // name of the Connection it uses, if any
	ProxySecret string            // Secret with the proxy of the Repository; "" = none
	Provider    string            // of the Repository; "" = that of the keys, else Generic
}

// Source finds credentials. It returns nil, nil when it has none for this look-up; an error means
// that there are some which cannot be used, and the search stops there. Errors never hold a secret.
type Source func(ctx context.Context, l Lookup) (*Credentials, error)

// Chain asks the sources in order and returns the first credentials found.
// Nil sources are left out; nil, nil when none has any.
func Chain(sources ...Source) Source {
	return func(ctx context.Context, l Lookup) (*Credentials, error) {
		for _, find := range sources {
			if find == nil {
				continue
			}
			if c, err := find(ctx, l); err != nil || c != nil {
				return c, err
			}
		}
		return nil, nil
	}
}

// Secrets returns every secret text of c, for a redactor. It is empty for nil.
func (c *Credentials) Secrets() []string {
	if c == nil {
		return nil
	}
	var out []string
	if c.Identity != nil {
		for _, k := range slices.Sorted(maps.Keys(c.Identity.Keys)) {
			out = append(out, string(c.Identity.Keys[k]))
		}
	}
	if c.Proxy != nil {
		out = append(out, c.Proxy.Password)
	}
	out = append(out, c.Password, c.Bearer, c.SSHPassphrase, string(c.SSHKey), string(c.ClientKey), string(c.PrivateKey))
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// Empty reports whether nothing in c authenticates: c is nil, or has at most trust anchors
// (CA, KnownHosts), a proxy and a user name.
func (c *Credentials) Empty() bool {
	return c == nil || c.Password == "" && c.Bearer == "" && len(c.SSHKey) == 0 && len(c.ClientKey) == 0 && c.Identity == nil
}

// Kind describes c for people: "none", "basic", "bearer", "ssh", "mtls" or the identity of a
// provider, joined by "+".
func (c *Credentials) Kind() string {
	if c == nil {
		return "none"
	}
	var kinds []string
	add := func(has bool, kind string) {
		if has {
			kinds = append(kinds, kind)
		}
	}
	add(c.Bearer != "", "bearer")
	add(c.Bearer == "" && c.Password != "", "basic")
	if c.Identity != nil {
		add(true, c.Identity.Provider+" identity")
	}
	add(len(c.SSHKey) > 0, "ssh")
	add(len(c.ClientKey) > 0, "mtls")
	return cmp.Or(strings.Join(kinds, "+"), "none")
}

// fingerprintKey makes fingerprints useless outside this process: a hash of a
// short password could be searched for, a keyed one cannot.
var fingerprintKey = func() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never returns an error since Go 1.24
	return key
}()

// Fingerprint returns a short text that changes when any field but Source, Forget and Clock does.
// It is comparable within one process only, and safe to log. That of nil is "none".
func (c *Credentials) Fingerprint() string {
	if c == nil {
		return "none"
	}
	identity := ""
	if c.Identity != nil {
		identity = c.Identity.Fingerprint()
	}
	return fingerprint(
		[]byte(c.Username), []byte(c.Password), []byte(c.Bearer), c.SSHKey,
		[]byte(c.SSHPassphrase), c.KnownHosts, c.PrivateKey, c.CA, c.ClientCert, c.ClientKey, []byte(identity), proxyFields(c.Proxy),
	)
}

func fingerprint(fields ...[]byte) string {
	mac := hmac.New(sha256.New, fingerprintKey)
	for _, f := range fields {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(f))))
		mac.Write(f)
	}
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

// String shows kind, place and fingerprint, no secret.
func (c *Credentials) String() string {
	if c == nil {
		return "credentials(none)"
	}
	return "credentials(" + c.Kind() + " from " + c.Source + ", " + c.Fingerprint() + ")"
}

// Format is String for every verb, of pointers and of values: %+v and %x would walk the fields.
func (c Credentials) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// MarshalJSON writes String, so that an accidental dump holds no secret.
func (c Credentials) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Generic is the provider that makes nothing: credentials are used as they were found.
const Generic = "generic"

// Providers are the names of what makes credentials of an identity, and Generic. Source: RFC-0007
// of Flux.
var Providers = []string{Generic, "aws", "azure", "gcp", "github", "gitlab"}

// identityKeys are the keys of each provider, in a Secret, a credentials directory or a rule. Those
// of GitHub are Flux's as shipped and as in its RFC; those of AWS and Azure are the variables that
// their own tools read.
var identityKeys = map[string][]string{
	"aws": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
		"AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"},
	"azure": {"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE",
		"AZURE_AUTHORITY_HOST", "AZURE_FEDERATED_TOKEN_FILE"},
	"gcp": {"gcpServiceAccount"},
	"github": {"githubAppID", "githubAppInstallationID", "githubAppInstallationOwner", "githubAppPrivateKey", "githubAppBaseURL",
		"githubInstallationID", "githubPrivateKey", "githubApiURl", "githubApiURL"},
}

var usedKeys = slices.Concat(keyNames, identityKeys["aws"], identityKeys["azure"], identityKeys["gcp"], identityKeys["github"])

// Keys returns the names of all keys of credentials.
func Keys() []string { return slices.Clone(usedKeys) }

// Identity is what a provider makes credentials of. It prints its provider only.
type Identity struct {
	Provider string
	Keys     map[string][]byte // of identityKeys and keyNames; empty = that of this host
	// Trusted reports that the operator of this agent has written the keys: they may
	// name files of this host and token endpoints.
	Trusted bool
	// Bound reports that the operator has named the URL as well: what is made of the keys may go
	// there.
	Bound bool
}

// Text returns the value of a key without the line end that editors leave.
func (i Identity) Text(key string) string { return strings.TrimRight(string(i.Keys[key]), "\r\n") }

// Declares reports whether a name is a key of the provider.
func (i Identity) Declares(name string) bool { return slices.Contains(identityKeys[i.Provider], name) }

// Own reports whether no key proves an identity, so that it is the one of this host.
func (i Identity) Own() bool {
	proofs := slices.Concat(identityKeys[i.Provider], []string{keyPassword, keyToken, keyBearer})
	return !slices.ContainsFunc(proofs, func(k string) bool { return len(i.Keys[k]) > 0 })
}

// CheckProvider refuses a provider that is not one of Providers; "" is Generic.
func CheckProvider(name string) error {
	if name == "" || slices.Contains(Providers, name) {
		return nil
	}
	return fmt.Errorf("unknown git provider %q, %s", text.Clean(name), meant(strings.ToLower(name), Providers))
}

// meant returns the name that is near to a wrong one, for people, else all of them.
func meant(wrong string, names []string) string {
	if near := text.Nearest(wrong, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known are " + strings.Join(names, ", ")
}

// ProviderError is returned when a provider does not go with the keys or the URL.
type ProviderError struct{ error }

// Unwrap returns what is wrong.
func (e ProviderError) Unwrap() error { return e.error }

// provider returns what makes credentials of the keys of one place: the provider that is
// asked for, else the one whose keys they are. "" is none.
func provider(keys map[string][]byte, asked string) (string, error) {
	if err := CheckProvider(asked); err != nil {
		return "", err
	}
	owner, example := asked, ""
	for _, name := range slices.Sorted(maps.Keys(identityKeys)) {
		i := slices.IndexFunc(identityKeys[name], func(k string) bool { return len(keys[k]) > 0 })
		switch {
		case i < 0:
		case example != "":
			return "", fmt.Errorf("%s is a key of provider %s, and %s one of %s", example, owner, identityKeys[name][i], name)
		case asked != "" && asked != name:
			return "", fmt.Errorf("%s is a key of provider %s, and the provider is %s", identityKeys[name][i], name, asked)
		default:
			owner, example = name, identityKeys[name][i]
		}
	}
	if owner == Generic {
		owner = ""
	}
	return owner, nil
}

// identity returns Credentials that a provider has to complete. Its errors are ProviderErrors.
func identity(at place, provider string, l Lookup) (*Credentials, error) {
	if a, err := ParseAddress(l.URL); err == nil && a.Scheme != "https" && a.Scheme != "http" {
		return nil, ProviderError{at.wrong("provider %s is for https, and the url is of %s", provider, a.Scheme)}
	}
	for _, k := range []string{keyPassword, keyToken, keyBearer, keyIdentity} {
		if len(at.keys[k]) > 0 && provider != "gitlab" {
			return nil, ProviderError{at.wrong("%s has no meaning for provider %s, which makes a token itself", k, provider)}
		}
	}
	c, err := transport(at)
	if err != nil {
		return nil, ProviderError{err}
	}
	c.Identity = &Identity{Provider: provider, Keys: maps.Clone(at.keys)}
	return c, nil
}

// String names the provider, no key.
func (i Identity) String() string { return "identity(" + i.Provider + ", " + i.Fingerprint() + ")" }

// Format is String for every verb.
func (i Identity) Format(f fmt.State, _ rune) { io.WriteString(f, i.String()) }

// MarshalJSON writes String.
func (i Identity) MarshalJSON() ([]byte, error) { return json.Marshal(i.String()) }

// Fingerprint changes when any key does; see [Credentials.Fingerprint].
func (i Identity) Fingerprint() string {
	fields := [][]byte{[]byte(i.Provider)}
	for _, k := range slices.Sorted(maps.Keys(i.Keys)) {
		fields = append(fields, []byte(k), i.Keys[k])
	}
	return fingerprint(fields...)
}
