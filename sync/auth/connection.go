package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"limpet/sync/netx"
)

// The keys that hold the secret of a Connection. The first three are the fields
// of Grafana's spec.secure; the private key of a GitHub App may have Flux's
// names, old and new.
const (
	keyPrivateKey   = "privateKey"
	keyClientSecret = "clientSecret"
)

var privateKeyNames = []string{keyPrivateKey, "githubAppPrivateKey", "githubPrivateKey"}

// connectionKeys are all keys of a Connection.
var connectionKeys = slices.Concat(privateKeyNames, []string{keyToken, keyClientSecret, keyCA, keyCAOld, keyClientCert, keyClientKey,
	keyProxy, keyProxyUsername, keyProxyPassword})

// ConnectionLookup names the Connection whose secret is wanted.
type ConnectionLookup struct {
	Namespace string
	Name      string
	Secure    map[string]string // field of spec.secure -> name of the secret
}

// ConnectionSecret authenticates a Connection and says how its host is reached. It prints
// its place and fingerprint only.
type ConnectionSecret struct {
	PrivateKey   []byte // of an App: PEM, or base64 of PEM
	Token        string
	ClientSecret string
	CA           []byte // PEM bundle, added to the system's roots
	ClientCert   []byte // PEM, with ClientKey: mutual TLS
	ClientKey    []byte
	Proxy        *netx.Proxy // nil = the one of the environment
	Source       string      // where it was found, for people
}

// ConnectionSource finds the secret of a Connection. It returns nil, nil when it
// has none; an error means that there is one which cannot be used. Errors never
// hold a secret.
type ConnectionSource func(ctx context.Context, l ConnectionLookup) (*ConnectionSecret, error)

// connectionSelection selects the secret of a Connection.
var connectionSelection = selection{
	of:    func(_ string, data map[string][]byte) map[string][]byte { return data },
	merge: laterWins,
	names: []string{keyPrivateKey, keyToken, keyClientSecret},
	files: privateFiles(connectionKeys),
}

// Connection finds the secret of a Connection. Rules have none.
func (p Places) Connection(ctx context.Context, l ConnectionLookup) (*ConnectionSecret, error) {
	at := Lookup{Namespace: l.Namespace, Connection: l.Name, Secure: l.Secure}
	return find(ctx, p, at, connectionSelection, func(at place) (*ConnectionSecret, error) { return connectionSecret(at.keys, at.name) })
}

func connectionSecret(keys map[string][]byte, place string) (*ConnectionSecret, error) {
	s := &ConnectionSecret{CA: keys[keyCA], ClientCert: keys[keyClientCert], ClientKey: keys[keyClientKey], Source: place}
	if len(s.CA) == 0 {
		s.CA = keys[keyCAOld]
	}
	for _, name := range privateKeyNames {
		if len(s.PrivateKey) == 0 {
			s.PrivateKey = bytes.TrimSpace(keys[name])
		}
	}
	s.Token = string(bytes.TrimRight(keys[keyToken], "\r\n"))
	s.ClientSecret = string(bytes.TrimRight(keys[keyClientSecret], "\r\n"))
	switch {
	case len(s.PrivateKey) == 0 && s.Token == "" && s.ClientSecret == "":
		return nil, fmt.Errorf("credentials in %s: none of the keys %s, %s, %s in it, only [%s]", place, keyPrivateKey, keyToken,
			keyClientSecret, strings.Join(slices.Sorted(maps.Keys(keys)), " "))
	case strings.ContainsFunc(s.Token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return nil, fmt.Errorf("credentials in %s: token contains a space, a line break or another control character", place)
	case len(s.PrivateKey) > maxValue:
		return nil, fmt.Errorf("credentials in %s: the private key is longer than %d bytes", place, maxValue)
	case (len(s.ClientCert) > 0) != (len(s.ClientKey) > 0):
		return nil, fmt.Errorf("credentials in %s: tls.crt and tls.key go together, one of them is missing", place)
	}
	var err error
	text := func(k string) string { return string(bytes.TrimRight(keys[k], "\r\n")) }
	if s.Proxy, err = proxyOf(text, keyProxy, keyProxyUsername, keyProxyPassword); err != nil {
		return nil, fmt.Errorf("credentials in %s: %w", place, err)
	}
	return s, nil
}

// Fingerprint returns a short text that changes when any field but Source does; see
// [Credentials.Fingerprint].
func (s *ConnectionSecret) Fingerprint() string {
	if s == nil {
		return "none"
	}
	return fingerprint(s.PrivateKey, []byte(s.Token), []byte(s.ClientSecret), s.CA, s.ClientCert, s.ClientKey, proxyFields(s.Proxy))
}

// String shows place and fingerprint, no secret.
func (s *ConnectionSecret) String() string {
	if s == nil {
		return "connection secret(none)"
	}
	return "connection secret(" + s.Source + ", " + s.Fingerprint() + ")"
}

// Format is String for every verb, of pointers and of values.
func (s ConnectionSecret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s ConnectionSecret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON writes String.
func (s ConnectionSecret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// AppIdentity is a GitHub App that a secret describes, without a Connection.
type AppIdentity struct {
	AppID        string
	Installation string            // id; "" = the one of Owner
	Owner        string            // organization or user that has installed it
	API          string            // base URL of the REST, as it is; "" = GitHub's own
	Secret       *ConnectionSecret // private key, and the TLS side
}
