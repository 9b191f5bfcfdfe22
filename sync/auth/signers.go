package auth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/sync/signature"
	"limpet/sync/text"
)

// Trust is the public keys that may sign what a Repository pulls: files by name, as for
// [signature.ParseKeys].
type Trust struct {
	Files map[string][]byte
	Place string // where they were found, for people
}

// TrustSource finds the keys for a look-up. It returns nil, nil when there are none; an
// error means that there are some which cannot be read.
type TrustSource func(ctx context.Context, l Lookup) (*Trust, error)

// Trust finds the keys of signers.
func (p Places) Trust(ctx context.Context, l Lookup) (*Trust, error) {
	return find(ctx, p, l, trustKeys, func(at place) (*Trust, error) {
		return &Trust{Files: at.keys, Place: at.name}, nil
	})
}

// aboutSigning reports whether a key is one of signers, or one to sign with.
func aboutSigning(key string) bool {
	return signature.IsKeys(key) || isSigningKey(key)
}

// signingNames are the names of the key and of its passphrase, in a Secret, a credentials
// directory or a rule, and as fields of spec.secure.
var signingNames = []string{signature.SigningKeyName, signature.SigningPassphraseName}

func isSigningKey(key string) bool { return slices.Contains(signingNames, key) }

// The names of the same in a Secret as Flux has it for its own commits. Source:
// spec.git.commit.signingKey of ImageUpdateAutomation.
const (
	fluxSigningKey        = "git.asc"
	fluxSigningPassphrase = "passphrase"
)

// fluxNames returns the data of a Secret of a signing key with our names.
func fluxNames(field string, data map[string][]byte) map[string][]byte {
	if field != signature.SigningKeyName || len(data[signature.SigningKeyName]) > 0 || len(data[fluxSigningKey]) == 0 {
		return data
	}
	return map[string][]byte{signature.SigningKeyName: data[fluxSigningKey], signature.SigningPassphraseName: data[fluxSigningPassphrase]}
}

// Signing finds the key to sign with, as SSHKey and SSHPassphrase whatever its kind. That
// of a rule signs for all Repositories at its URL.
func (p Places) Signing(ctx context.Context, l Lookup) (*Credentials, error) {
	return find(ctx, p, l, signingKeys, signingKey)
}

// signingKey returns what was found at a place, nil for nothing.
func signingKey(at place) (*Credentials, error) {
	key, passphrase := at.keys[signature.SigningKeyName], at.keys[signature.SigningPassphraseName]
	switch {
	case len(key) == 0 && len(passphrase) > 0:
		return nil, fmt.Errorf("%s: there is a %s, and no %s that it is for", at.name, signature.SigningPassphraseName, signature.SigningKeyName)
	case len(key) == 0:
		return nil, nil
	}
	return &Credentials{SSHKey: key, SSHPassphrase: string(passphrase), Source: at.name}, nil
}

// The keys that a secret, a credentials directory or a rule may hold. They are Flux's (username and
// password, bearerToken, identity and known_hosts with password as its passphrase, ca.crt, tls.crt
// and tls.key, or their oldKeys) and, for Grafana's secure.token, token.
const (
	keyUsername   = "username"
	keyPassword   = "password"
	keyBearer     = "bearerToken"
	keyToken      = "token"
	keyIdentity   = "identity"
	keyKnownHosts = "known_hosts"
	keyCA         = "ca.crt"
	keyCAOld      = "caFile"
	keyClientCert = "tls.crt"
	keyClientKey  = "tls.key"

	keyProxy         = "proxyAddress"
	keyProxyUsername = "proxyUsername"
	keyProxyPassword = "proxyPassword"
)

// keyNames are all keys of credentials, in the order in which they are read.
var keyNames = []string{
	keyUsername, keyPassword, keyBearer, keyToken, keyIdentity,
	keyKnownHosts, keyCA, keyCAOld, keyClientCert, keyClientKey, oldKeys[keyClientCert], oldKeys[keyClientKey],
	keyProxy, keyProxyUsername, keyProxyPassword,
}

// What bounds one value: a file, CA bundle or known_hosts, and any other, which may be a private
// key: parsing one of RSA takes 15 s at 150 KB. Unit: bytes.
const (
	maxValue = 1 << 20
	maxKey   = 64 << 10
)

// MaxRSA bounds an RSA key that a Secret may hold: the time to sign grows with the cube, seconds
// for 16,384. Unit: bits.
const MaxRSA = 8192

// fieldWebhook of spec.secure is about incoming requests.
const fieldWebhook = "webhookSecret"

// notForGit are the fields of spec.secure that never authenticate to a Git host, nor hold keys of
// signers.
var notForGit = append([]string{fieldWebhook}, signingNames...)

// ForGit reports whether a field of spec.secure may authenticate to a Git host.
func ForGit(field string) bool { return !slices.Contains(notForGit, field) }

// unserved reports whether a key asks for an identity that this agent does not serve: it must not
// be replaced by another one.
func unserved(key string) bool {
	return strings.HasPrefix(key, "AWS_CONTAINER_") || strings.HasPrefix(key, "gitlabApp")
}

func isForGit(key string) bool { return !aboutSigning(key) }

// Credentials is a Source. Those that a Connection makes come after the Secrets.
func (p Places) Credentials(ctx context.Context, l Lookup) (*Credentials, error) {
	secrets, rest := Places{Secrets: p.Secrets}, p
	rest.Secrets = nil
	return Chain(secrets.own, p.Connections, rest.own)(ctx, l)
}

// own finds credentials without Connections.
func (p Places) own(ctx context.Context, l Lookup) (*Credentials, error) {
	return find(ctx, p, l, gitKeys, func(at place) (*Credentials, error) {
		l := l
		if at.rule != nil && at.rule.Provider != "" {
			if l.Provider != "" && l.Provider != at.rule.Provider {
				return nil, ProviderError{at.wrong("they are for provider %s, and the repository asks for %s", at.rule.Provider,
					text.Clean(l.Provider))}
			}
			l.Provider = at.rule.Provider
		}
		c, err := credentials(at, l)
		if err == nil && c.Identity != nil {
			c.Identity.Trusted, c.Identity.Bound = at.operator, at.rule != nil
		}
		return c, err
	})
}

// credentials makes Credentials from the keys of one place. Over ssh, password is the passphrase of
// identity.
func credentials(at place, l Lookup) (*Credentials, error) {
	names := slices.Sorted(maps.Keys(at.keys))
	if i := slices.IndexFunc(names, unserved); i >= 0 {
		return nil, at.wrong("key %s is not supported", names[i])
	}
	who, err := provider(at.keys, l.Provider)
	if err != nil {
		return nil, at.wrong("%w", ProviderError{err})
	}
	if who != "" {
		return identity(at, who, l)
	}
	if !slices.ContainsFunc(keyNames, func(k string) bool { return len(at.keys[k]) > 0 }) {
		return nil, at.wrong("none of the keys %s in it, only [%s]", strings.Join(keyNames, ", "), strings.Join(names, " "))
	}
	for _, k := range []string{keyUsername, keyPassword, keyBearer, keyToken, keyProxy, keyProxyUsername, keyProxyPassword} {
		if strings.ContainsFunc(at.text(k), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, at.wrong("%s contains a line break or another control character", k)
		}
	}
	c, err := transport(at)
	if err != nil {
		return nil, err
	}
	c.Username = at.text(keyUsername)
	key := at.keys[keyIdentity]
	a, err := ParseAddress(l.URL)
	switch ssh := err == nil && a.Scheme == "ssh" || err != nil && len(key) > 0; {
	case ssh && len(key) == 0:
		return nil, at.wrong("ssh needs the keys identity and known_hosts, there is no identity")
	case ssh: // without known_hosts the server is asked for its key, and refused with the line to add
		c.SSHKey, c.KnownHosts, c.SSHPassphrase = key, at.keys[keyKnownHosts], at.text(keyPassword)
	case at.text(keyBearer) != "":
		c.Bearer = at.text(keyBearer)
	case at.text(keyToken) != "":
		c.Username, c.Password = cmp.Or(c.Username, l.TokenUser, "git"), at.text(keyToken)
	case at.text(keyPassword) != "" && c.Username == "":
		return nil, at.wrong("a password without a username")
	case at.text(keyPassword) != "":
		c.Password = at.text(keyPassword)
	case len(key) > 0 && c.Empty() && len(c.CA) == 0 && c.Proxy == nil:
		return nil, at.wrong("an ssh identity, but the url is not ssh")
	}
	return c, nil
}

// transport makes Credentials of the keys that say how a host is reached and trusted.
func transport(at place) (c *Credentials, err error) {
	for _, k := range usedKeys {
		limit := maxKey
		if IsPublic(k) {
			limit = maxValue
		}
		if len(at.keys[k]) > limit {
			return nil, at.wrong("%s is longer than %d bytes", k, limit)
		}
	}
	c = &Credentials{Source: at.name}
	c.setTLS(at.keys)
	if (len(c.ClientCert) > 0) != (len(c.ClientKey) > 0) {
		return nil, at.wrong("tls.crt and tls.key go together, one of them is missing")
	}
	if c.Proxy, err = proxyOf(at.text, keyProxy, keyProxyUsername, keyProxyPassword); err != nil {
		return nil, at.wrong("%w", err)
	}
	return c, nil
}
