package ocirepository

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"oras.land/oras-go/v2/registry"
	registryauth "oras.land/oras-go/v2/registry/remote/auth"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// login is how a registry is reached: credentials, authorities and proxy.
type login struct {
	credential registryauth.Credential
	transport  *auth.Credentials
	forget     func() // drops credentials that were refused
}

// fingerprint is equal for those who may share connections and answers.
func (l login) fingerprint() string {
	c := l.credential
	body, _ := json.Marshal([]string{c.Username, c.Password, c.RefreshToken, c.AccessToken}) // plain values
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]) + " " + l.transport.TransportKey()
}

// The keys of a Secret with logins. Source: Kubernetes.
const (
	keyConfig    = ".dockerconfigjson"
	keyOldConfig = ".dockercfg"
	keyUsername  = "username" // those of HelmRepositories, for any registry
	keyPassword  = "password"
)

// login reads the Secrets of a source, or else makes a login of the identity of this host. Flux has
// the same order.
func (s *spec) login(ctx context.Context) (l login, err error) {
	o := s.kind.o
	l.forget = func() {}
	if l.transport, err = o.Places.NamedTransport(ctx, s.namespace, s.CertSecretRef.Name, s.ProxySecretRef.Name); err != nil {
		return l, err
	}
	var names []string
	switch {
	case s.SecretRef.Name != "":
		names = []string{s.SecretRef.Name}
	case s.Provider != auth.Generic:
		made, err := o.Identities.Registry(ctx, s.Provider, s.at.Host(), l.transport.Proxy)
		if err != nil {
			return l, fmt.Errorf("from %s: %w", s.Provider, err)
		}
		l.credential, l.forget = registryauth.Credential{Username: made.Username, Password: made.Password}, made.Forget
		return l, nil
	case s.ServiceAccountName != "":
		if names, err = o.PullSecrets(ctx, s.namespace, s.ServiceAccountName); err != nil {
			return l, fmt.Errorf("imagePullSecrets of service account %s/%s: %w", s.namespace, s.ServiceAccountName, err)
		}
	}
	for _, name := range names {
		place := "secret " + s.namespace + "/" + name
		keys, err := o.Places.Named(ctx, s.namespace, name, keyConfig, keyOldConfig, keyUsername, keyPassword)
		if err != nil {
			return l, err
		}
		if l.credential, err = credentialOf(keys, s.at.Registry, s.at.Repository); err != nil {
			return l, fmt.Errorf("%s: %w", place, err)
		}
		if l.credential == registryauth.EmptyCredential {
			continue
		}
		if s.Insecure && !o.AllowInsecure && !onThisHost(s.at) {
			return login{}, fmt.Errorf("%s is not sent over plain http to %s; leave spec.insecure out, or start the agent with --allow-insecure-git",
				place, s.at.Host())
		}
		break
	}
	return l, nil
}

// onThisHost reports whether a registry is reached over loopback.
func onThisHost(at registry.Reference) bool {
	u := url.URL{Host: at.Host()}
	return netx.Loopback(u.Hostname())
}

// entry is a login of a registry. Source: the configuration of Docker.
type entry struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credentialOf returns the login of the longest prefix of a repository, the empty one when there is
// none: then the registry is asked without. Errors repeat no value.
func credentialOf(keys map[string][]byte, host, repository string) (none registryauth.Credential, err error) {
	var config struct {
		Auths map[string]entry `json:"auths"`
	}
	switch {
	case len(keys[keyConfig]) > 0:
		err = json.Unmarshal(keys[keyConfig], &config)
	case len(keys[keyOldConfig]) > 0:
		err = json.Unmarshal(keys[keyOldConfig], &config.Auths)
	case len(keys[keyUsername]) > 0 && len(keys[keyPassword]) > 0:
		return registryauth.Credential{Username: string(keys[keyUsername]), Password: string(keys[keyPassword])}, nil
	default:
		return none, fmt.Errorf("it has no key %s; make it with: kubectl create secret docker-registry", keyConfig)
	}
	if err != nil {
		return none, fmt.Errorf("%s is no configuration of Docker", keyConfig)
	}
	byPlace := map[string]entry{}
	for at, e := range config.Auths {
		_, rest, isURL := strings.Cut(at, "://")
		if !isURL {
			rest = at
		}
		rest = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(rest, "/"), "/v1"), "/v2")
		byPlace[rest] = e
	}
	for at := host + "/" + repository; at != ""; {
		if e, ok := byPlace[at]; ok {
			return e.credential()
		}
		i := strings.LastIndexByte(at, '/')
		at = at[:max(i, 0)]
	}
	if host == "docker.io" {
		return byPlace["index.docker.io"].credential()
	}
	return none, nil
}

func (e entry) credential() (c registryauth.Credential, err error) {
	c = registryauth.Credential{Username: e.Username, Password: e.Password, RefreshToken: e.IdentityToken, AccessToken: e.RegistryToken}
	if e.Auth == "" {
		return c, nil
	}
	plain, err := base64.StdEncoding.DecodeString(e.Auth)
	user, password, ok := strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
	if err != nil || !ok {
		return c, errors.New("the member auth of a login is not base64 of USER:PASSWORD")
	}
	c.Username, c.Password = user, password
	return c, nil
}
