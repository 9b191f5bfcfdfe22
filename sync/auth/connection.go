package auth

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
)

// The keys that hold the secret of a Connection. Those of the first line are the fields of Grafana's spec.secure; the
// private key of a GitHub App may have Flux's names, old and new.
var (
	secretNames     = []string{"privateKey", keyToken, "clientSecret"}
	privateKeyNames = []string{"privateKey", "githubAppPrivateKey", "githubPrivateKey"}
)

// connectionNames are all keys of a Connection in the credentials directory.
var connectionNames = slices.Concat(privateKeyNames, secretNames[1:], transportKeys, []string{keyClientCert, keyClientKey})

// Connection finds the secret of the Connection that a look-up names: a PrivateKey, or a
// token as Password, and how its host is reached. Rules have none.
func (p Places) Connection(ctx context.Context, l Lookup) (*Credentials, error) {
	return find(ctx, p, Lookup{Namespace: l.Namespace, Connection: l.Connection, Secure: l.Secure}, connectionKeys, connectionSecret)
}

func connectionSecret(at place) (*Credentials, error) {
	if !slices.ContainsFunc(slices.Concat(privateKeyNames, secretNames), func(k string) bool { return len(at.keys[k]) > 0 }) {
		return nil, at.wrong("none of the keys %s in it, only [%s]", strings.Join(secretNames, ", "),
			strings.Join(slices.Sorted(maps.Keys(at.keys)), " "))
	}
	c, err := transport(at)
	if err != nil {
		return nil, err
	}
	for _, name := range privateKeyNames {
		if len(c.PrivateKey) == 0 {
			c.PrivateKey = bytes.TrimSpace(at.keys[name])
		}
	}
	c.Password = at.text(keyToken)
	switch {
	case c.Password != "" && !Printable(c.Password):
		return nil, at.wrong("token contains a space, a line break or another control character")
	case len(c.PrivateKey) > maxKey:
		return nil, at.wrong("the private key is longer than %d bytes", maxKey)
	}
	return c, nil
}

// Printable reports whether a token can be sent in a header.
func Printable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// AppIdentity is a GitHub App that a secret describes, without a Connection.
type AppIdentity struct {
	AppID        string
	Installation string       // id; "" = the one of Owner
	Owner        string       // organization or user that has installed it
	API          string       // base URL of the REST, as it is; "" = GitHub's own
	Secret       *Credentials // PrivateKey, and how the host is reached
}

// webhookKeys are the names of the secret of a webhook; token is that of a Receiver of Flux.
var webhookKeys = []string{fieldWebhook, keyToken, "secret"}

// Webhook returns the secret of the webhook of a Repository, nil when there is none.
func (p Places) Webhook(ctx context.Context, l Lookup) ([]byte, error) {
	l.Secure = maps.Clone(l.Secure)
	maps.DeleteFunc(l.Secure, func(field, _ string) bool { return field != fieldWebhook })
	found, err := find(ctx, p, l, webhookSecret, func(at place) (*[]byte, error) {
		for _, key := range webhookKeys {
			if value := bytes.TrimSpace(at.keys[key]); len(value) > 0 {
				return &value, nil
			}
		}
		return nil, nil
	})
	if found == nil {
		return nil, err
	}
	return *found, err
}
