package auth

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/sync/text"
)

// The keys that a secret, a credentials directory or a rule may hold. They are
// Flux's (username and password, bearerToken, identity and known_hosts with
// password as its passphrase, ca.crt or caFile, tls.crt and tls.key) and, for
// Grafana's secure.token, token.
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
)

// keyNames are all keys of credentials, in the order in which they are read.
var keyNames = []string{
	keyUsername, keyPassword, keyBearer, keyToken, keyIdentity,
	keyKnownHosts, keyCA, keyCAOld, keyClientCert, keyClientKey,
	keyProxy, keyProxyUsername, keyProxyPassword,
}

// maxValue bounds one value; private keys and CA bundles are far smaller. Unit: bytes.
const maxValue = 1 << 20

// fieldWebhook of spec.secure is about incoming requests.
const fieldWebhook = "webhookSecret"

// notForGit are the fields of spec.secure that never authenticate to a Git host, nor hold
// keys of signers.
var notForGit = append([]string{fieldWebhook}, signingKeys...)

func isForGit(key string) bool { return !aboutSigning(key) }

// gitKeys selects credentials for Git.
var gitKeys = selection{
	skip: notForGit,
	of: func(_ string, data map[string][]byte) map[string][]byte {
		if len(data) == 0 { // which is an error, and no Secret of signers
			return map[string][]byte{}
		}
		return only(data, isForGit)
	},
	merge: laterWins,
	names: usedKeys,
	files: privateFiles(usedKeys),
	rule: func(r Rule) (map[string][]byte, error) {
		if r.onlyTransport() || r.onlySigning() {
			return nil, nil
		}
		keys, err := r.keys(isForGit, checkPrivate)
		if keys == nil { // the identity of this host
			keys = map[string][]byte{}
		}
		return keys, err
	},
}

// Credentials implements Source. Those that a Connection makes come after the Secrets.
func (p Places) Credentials(ctx context.Context, l Lookup) (*Credentials, error) {
	secrets, rest := Places{Secrets: p.Secrets}, p
	rest.Secrets = nil
	return Chain(secrets.own(), p.Connections, rest.own()).Credentials(ctx, l)
}

// own finds credentials without Connections.
func (p Places) own() Source {
	return SourceFunc(func(ctx context.Context, l Lookup) (*Credentials, error) {
		return find(ctx, p, l, gitKeys, func(at place) (*Credentials, error) {
			l := l
			if at.rule != nil && at.rule.Provider != "" {
				if l.Provider != "" && l.Provider != at.rule.Provider {
					return nil, ProviderError{fmt.Errorf("credentials in %s: they are for provider %s, and the repository asks for %s",
						at.name, at.rule.Provider, text.Clean(l.Provider))}
				}
				l.Provider = at.rule.Provider
			}
			c, err := credentials(at.keys, l, at.name)
			if err == nil && c.Identity != nil {
				c.Identity.Trusted, c.Identity.Bound = at.operator, at.rule != nil
			}
			return c, err
		})
	})
}

// credentials makes Credentials from the keys of one place. Over ssh, password is the
// passphrase of identity.
func credentials(keys map[string][]byte, l Lookup, place string) (*Credentials, error) {
	wrong := func(format string, args ...any) (*Credentials, error) {
		return nil, fmt.Errorf("credentials in %s: %w", place, fmt.Errorf(format, args...))
	}
	who, err := provider(keys, l.Provider)
	if err != nil {
		return wrong("%w", ProviderError{err})
	}
	if who != "" {
		c, err := identity(keys, who, l, place)
		if err != nil {
			return nil, ProviderError{err}
		}
		return c, nil
	}
	known := slices.ContainsFunc(keyNames, func(k string) bool { return len(keys[k]) > 0 })
	if !known {
		return wrong("none of the keys %s in it, only [%s]", strings.Join(keyNames, ", "),
			strings.Join(slices.Sorted(maps.Keys(keys)), " "))
	}
	for _, k := range keyNames {
		if len(keys[k]) > maxValue {
			return wrong("%s is longer than %d bytes", k, maxValue)
		}
	}
	values := make(map[string]string)
	for _, k := range []string{keyUsername, keyPassword, keyBearer, keyToken, keyProxy, keyProxyUsername, keyProxyPassword} {
		v := bytes.TrimRight(keys[k], "\r\n") // editors and echo leave one
		if bytes.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return wrong("%s contains a line break or another control character", k)
		}
		values[k] = string(v)
	}
	c := &Credentials{Username: values[keyUsername], CA: keys[keyCA], Source: place}
	if len(c.CA) == 0 {
		c.CA = keys[keyCAOld]
	}
	c.ClientCert, c.ClientKey = keys[keyClientCert], keys[keyClientKey]
	if (len(c.ClientCert) > 0) != (len(c.ClientKey) > 0) {
		return wrong("tls.crt and tls.key go together, one of them is missing")
	}

	if c.Proxy, err = proxyOf(func(k string) string { return values[k] }, keyProxy, keyProxyUsername, keyProxyPassword); err != nil {
		return wrong("%w", err)
	}

	a, err := ParseAddress(l.URL)
	overSSH := err == nil && a.Scheme == "ssh" || err != nil && len(keys[keyIdentity]) > 0
	if overSSH {
		switch {
		case len(keys[keyIdentity]) == 0:
			return wrong("ssh needs the keys identity and known_hosts, there is no identity")
		case len(bytes.TrimSpace(keys[keyKnownHosts])) == 0:
			return wrong("ssh needs the key known_hosts beside identity (make it with: ssh-keyscan HOST)")
		}
		c.SSHKey, c.KnownHosts, c.SSHPassphrase = keys[keyIdentity], keys[keyKnownHosts], values[keyPassword]
		return c, nil
	}
	switch {
	case values[keyBearer] != "":
		c.Bearer = values[keyBearer]
	case values[keyToken] != "":
		c.Password = values[keyToken]
		if c.Username == "" {
			c.Username = l.TokenUser
		}
		if c.Username == "" {
			c.Username = "git"
		}
	case values[keyPassword] != "":
		if c.Username == "" {
			return wrong("a password without a username")
		}
		c.Password = values[keyPassword]
	case len(keys[keyIdentity]) > 0 && c.Empty() && len(c.CA) == 0 && c.Proxy == nil:
		return wrong("an ssh identity, but the url is not ssh")
	}
	return c, nil
}
