package ocirepository

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"

	"limpet/sync/auth"
)

// Mirrors are the places that are asked before a registry, by its host.
type Mirrors map[string][]Mirror

// Mirror is a registry, or a prefix of its repositories, that has those of another one.
type Mirror struct {
	at    string
	plain bool // http
}

// ParseMirrors reads a list of HOST=[http://]MIRROR[/PREFIX].
func ParseMirrors(list []string) (Mirrors, error) {
	out := Mirrors{}
	for _, text := range list {
		host, at, ok := strings.Cut(text, "=")
		m := Mirror{}
		m.at, m.plain = strings.CutPrefix(strings.TrimSuffix(strings.TrimPrefix(at, "https://"), "/"), "http://")
		of, err := registry.ParseReference(host + "/any")
		to, bad := registry.ParseReference(m.at + "/any")
		if !ok || cmp.Or(err, bad) != nil || of.Registry != host || to.Reference != "" {
			return nil, fmt.Errorf("%q is not in the form HOST=[http://]MIRROR[/PREFIX]", text)
		}
		out[host] = append(out[host], m)
	}
	return out, nil
}

// remote returns a repository behind its mirrors, which get no login of a source.
func (r *registries) remote(at registry.Reference, l login, plain bool) (*remote, error) {
	var places []*repository
	for _, mirror := range r.mirrors[at.Registry] {
		there, err := registry.ParseReference(mirror.at + "/" + at.Repository)
		if err != nil {
			return nil, err
		}
		place, err := r.open(there, login{transport: &auth.Credentials{}, forget: func() {}}, mirror.plain)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	origin, err := r.open(at, l, plain)
	if err != nil {
		return nil, err
	}
	return &remote{places: append(places, origin), shared: &origin.answers}, nil
}

// skipMirror leaves out the mirror whose bytes are damaged. It reports whether there is another place.
func (u *upstream) skipMirror() bool {
	r, ok := u.from.(*remote)
	if ok && r.served < len(r.places)-1 {
		r.places = slices.Delete(r.places, r.served, r.served+1)
		return true
	}
	return false
}
