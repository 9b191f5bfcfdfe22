package auth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/sync/text"
)

// lineKeys say how a host is reached and trusted, not who asks.
var lineKeys = []string{keyCA, keyCAOld, keyProxy, keyProxyUsername, keyProxyPassword}

// Lines adds to what from finds how the host is reached: the proxy of the Secret
// that Lookup.ProxySecret names, which wins, and what rules say that hold nothing
// but ca.crt and a proxy. get reads a Secret, see SecretSource; nil, nil is none,
// which is an error here: who wants a proxy does not want to go without.
func Lines(from Source, rules []Rule, get func(ctx context.Context, namespace, name string) (map[string][]byte, error)) Source {
	return SourceFunc(func(ctx context.Context, l Lookup) (*Credentials, error) {
		found, err := from.Credentials(ctx, l)
		if err != nil {
			return nil, err
		}
		if l.ProxySecret != "" {
			p, err := proxySecret(ctx, l, get)
			if err != nil {
				return nil, err
			}
			if found = found.copied(); found.Source == "" {
				found.Source = "secret " + l.Namespace + "/" + l.ProxySecret
			}
			found.Proxy = p
		}
		a, err := ParseAddress(l.URL)
		if err != nil {
			return found, nil
		}
		for _, r := range rules {
			if !r.line() || !r.matches(a) {
				continue
			}
			keys, err := r.keys()
			if err != nil {
				return nil, err
			}
			own, err := credentials(keys, Lookup{URL: "https://" + a.HostPort() + "/x", Provider: Generic}, "rule "+r.URL)
			if err != nil {
				return nil, err
			}
			if found = found.copied(); found.Source == "" {
				found.Source = own.Source
			}
			if len(found.CA) == 0 {
				found.CA = own.CA
			}
			if found.Proxy == nil {
				found.Proxy = own.Proxy
			}
			break
		}
		return found, nil
	})
}

// copied is a copy of c that may be changed; empty for nil.
func (c *Credentials) copied() *Credentials {
	if c == nil {
		return &Credentials{}
	}
	copy := *c
	return &copy
}

// ProxyError says that a Secret names no proxy that can be used.
type ProxyError struct{ error }

// Unwrap returns what is wrong.
func (e ProxyError) Unwrap() error { return e.error }

// proxySecret reads a proxy in Flux's form: the keys address, username, password.
func proxySecret(ctx context.Context, l Lookup, get func(ctx context.Context, namespace, name string) (map[string][]byte, error)) (*Proxy, error) {
	place := "secret " + l.Namespace + "/" + text.Clean(l.ProxySecret)
	data, err := get(ctx, l.Namespace, l.ProxySecret)
	if err != nil {
		return nil, fmt.Errorf("read the proxy in %s: %w", place, err)
	}
	txt := func(k string) string { return strings.TrimRight(string(data[k]), "\r\n") }
	p, err := proxyOf(txt, "address", keyUsername, keyPassword)
	if err != nil {
		return nil, ProxyError{fmt.Errorf("proxy in %s: %w", place, err)}
	}
	if p == nil {
		return nil, ProxyError{fmt.Errorf("proxy in %s: this agent finds no key address there", place)}
	}
	p.Place = place
	return p, nil
}

// line says that r holds nothing but how a host is reached.
func (r Rule) line() bool {
	if r.Provider != "" {
		return false
	}
	for k := range maps.Keys(r.Values) {
		if !slices.Contains(lineKeys, k) {
			return false
		}
	}
	for k := range maps.Keys(r.Files) {
		if !slices.Contains(lineKeys, k) {
			return false
		}
	}
	return true
}
