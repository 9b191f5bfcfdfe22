package auth

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"limpet/sync/text"
)

// Generic is the provider that makes nothing: credentials are used as they were found.
const Generic = "generic"

// Providers are the names of what makes credentials of an identity, and Generic. Source: RFC-0007 of Flux.
var Providers = []string{Generic, "aws", "azure", "gcp", "github", "gitlab"}

// identityKeys are the keys of each provider, in a Secret, a credentials directory or a rule. Those of GitHub are
// Flux's as shipped and as in its RFC; those of AWS and Azure are the variables that their own tools read.
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
	// Bound reports that the operator has named the URL as well: what is made of the keys may go there.
	Bound bool
}

// Text returns the value of a key without the line end that editors leave.
func (i Identity) Text(key string) string { return strings.TrimRight(string(i.Keys[key]), "\r\n") }

// Declares reports whether a name is a key of the provider.
func (i Identity) Declares(name string) bool { return slices.Contains(identityKeys[i.Provider], name) }

// Own reports whether no key proves an identity, so that it is the one of this host.
func (i Identity) Own() bool {
	for _, k := range slices.Concat(identityKeys[i.Provider], []string{keyPassword, keyToken, keyBearer}) {
		if len(i.Keys[k]) > 0 {
			return false
		}
	}
	return true
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
