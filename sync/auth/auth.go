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
)

// Credentials authenticate to one Git remote. The URL decides which of them are used: for http and https Bearer, else
// Username and Password, and the TLS fields; for ssh the SSH fields.
type Credentials struct {
	Username      string // for basic; empty with a Password means "git"
	Password      string // password or token
	Bearer        string // sent as "Authorization: Bearer"; wins over basic
	SSHKey        []byte // private key, PEM or OpenSSH form; of [Places.Signing] any that signs
	SSHPassphrase string // of SSHKey, when it is encrypted
	KnownHosts    []byte // known_hosts lines; required for ssh
	PrivateKey    []byte // of a GitHub App, in the secret of a Connection: PEM, or base64 of PEM
	CA            []byte // PEM bundle, added to the system's roots
	ClientCert    []byte // PEM, with ClientKey: mutual TLS
	ClientKey     []byte
	Proxy         *netx.Proxy // nil = the one of the environment
	Source        string      // where they were found, for people: never a secret

	// Identity is set until a provider has made a password or token of it.
	Identity *Identity

	// Forget is called when a host refuses them (401), so that their cache drops them; nil = they are not cached.
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

// Source finds credentials. It returns nil, nil when it has none for this look-up; an error means that there are some
// which cannot be used, and the search stops there. Errors never hold a secret.
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

// Kind describes c for people: "none", "basic", "bearer", "ssh", "mtls" or the identity of a provider, joined by "+".
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

// Fingerprint returns a short text that changes when any field but Source, Forget and Clock does. It is comparable
// within one process only, and safe to log. That of nil is "none".
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
