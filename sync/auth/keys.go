package auth

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// keyNames are all keys that have a meaning, in the order in which they are read.
var keyNames = []string{
	keyUsername, keyPassword, keyBearer, keyToken, keyIdentity,
	keyKnownHosts, keyCA, keyCAOld, keyClientCert, keyClientKey,
	keyProxy, keyProxyUsername, keyProxyPassword,
}

// maxValue bounds one value; a private key or a CA bundle stays far below it.
// Unit: bytes.
const maxValue = 1 << 20

// credentials makes Credentials from the keys of one place. The URL's scheme
// decides what password means: over ssh it is the passphrase of identity.
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
	text := make(map[string]string)
	for _, k := range []string{keyUsername, keyPassword, keyBearer, keyToken, keyProxy, keyProxyUsername, keyProxyPassword} {
		v := bytes.TrimRight(keys[k], "\r\n") // editors and echo leave one
		if bytes.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return wrong("%s holds a line break or another control character", k)
		}
		text[k] = string(v)
	}
	c := &Credentials{Username: text[keyUsername], CA: keys[keyCA], Source: place}
	if len(c.CA) == 0 {
		c.CA = keys[keyCAOld]
	}
	c.ClientCert, c.ClientKey = keys[keyClientCert], keys[keyClientKey]
	if (len(c.ClientCert) > 0) != (len(c.ClientKey) > 0) {
		return wrong("tls.crt and tls.key go together, one of them is missing")
	}

	if c.Proxy, err = proxyOf(func(k string) string { return text[k] }, keyProxy, keyProxyUsername, keyProxyPassword); err != nil {
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
		c.SSHKey, c.KnownHosts, c.SSHPassphrase = keys[keyIdentity], keys[keyKnownHosts], text[keyPassword]
		return c, nil
	}
	switch {
	case text[keyBearer] != "":
		c.Bearer = text[keyBearer]
	case text[keyToken] != "":
		c.Password = text[keyToken]
		if c.Username == "" {
			c.Username = l.TokenUser
		}
		if c.Username == "" {
			c.Username = "git"
		}
	case text[keyPassword] != "":
		if c.Username == "" {
			return wrong("a password without a username")
		}
		c.Password = text[keyPassword]
	case len(keys[keyIdentity]) > 0 && c.Empty() && len(c.CA) == 0 && c.Proxy == nil:
		return wrong("an ssh identity, but the url is not ssh")
	}
	return c, nil
}
