package ocirepository

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
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

// mirrored is a repository behind its mirrors, in one reconcile. The answer of the first that has one
// counts. One that fails is not asked again; one that lacks something may have the next. They get no
// login of a source.
type mirrored struct {
	all    []shared
	served int // index of the one that has answered
}

// withMirrors puts the mirrors of the spec before its registry.
func (s *spec) withMirrors(origin shared) (store, error) {
	m := &mirrored{}
	for _, mirror := range s.kind.o.Mirrors[s.at.Registry] {
		at, err := registry.ParseReference(mirror.at + "/" + s.at.Repository)
		if err != nil {
			return nil, err
		}
		repository, err := s.kind.registries.open(at, login{transport: &auth.Credentials{}, forget: func() {}}, mirror.plain)
		if err != nil {
			return nil, err
		}
		m.all = append(m.all, shared{repository, origin.fresh})
	}
	if m.all == nil {
		return origin, nil
	}
	m.all = append(m.all, origin)
	return m, nil
}

// first asks one after the other.
func (m *mirrored) first(ask func(from shared) error) (err error) {
	for i := 0; ; {
		err = ask(m.all[i])
		switch {
		case err == nil || i == len(m.all)-1:
			m.served = i
			return err
		case notFound(err):
			i++
		default:
			m.all = slices.Delete(m.all, i, i+1)
		}
	}
}

func (m *mirrored) Resolve(ctx context.Context, reference string) (d ocispec.Descriptor, err error) {
	err = m.first(func(from shared) error { d, err = from.Resolve(ctx, reference); return err })
	return d, err
}

func (m *mirrored) Tags(ctx context.Context, last string, fn func(tags []string) error) error {
	return m.first(func(from shared) error { return from.Tags(ctx, last, fn) })
}

func (m *mirrored) Referrers(ctx context.Context, d digest.Digest, artifactType string) (all []ocispec.Descriptor, err error) {
	err = m.first(func(from shared) error {
		all, err = from.Referrers(ctx, d, artifactType)
		return err
	})
	return all, err
}

// Open opens at the first that has it.
func (m *mirrored) Open(ctx context.Context, d ocispec.Descriptor, at int64) (body io.ReadCloser, from int64, err error) {
	err = m.first(func(one shared) error { body, from, err = one.Open(ctx, d, at); return err })
	return body, from, err
}

// skipMirror leaves out the mirror whose bytes are damaged. It reports whether there is another place.
func (u *upstream) skipMirror() bool {
	m, ok := u.from.(*mirrored)
	if ok && m.served < len(m.all)-1 {
		m.all = slices.Delete(m.all, m.served, m.served+1)
		return true
	}
	return false
}
