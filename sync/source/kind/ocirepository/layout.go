package ocirepository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"

	"limpet/sync/fileid"
	"limpet/sync/git"
)

// layoutScheme begins the URL of a directory of this host, or of a tar of one, that is laid out as
// an OCI image layout. Source: oras, buildx.
const layoutScheme = "oci-layout://"

// layout is such a directory or file, with the tag that its URL names; "" = no layout.
type layout struct{ path, tag string }

func parseLayout(rest string) (l layout, err error) {
	l.path = rest
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		l.path, l.tag = rest[:i], rest[i+1:]
	}
	if !path.IsAbs(l.path) || path.Clean(l.path) != l.path || strings.ContainsAny(rest, "@?#") {
		return layout{}, errors.New("URL must be in format 'oci-layout:///DIR[:TAG]', with an absolute path of a directory or a tar of it")
	}
	return l, nil
}

// open reads the index of the layout, which may have changed.
func (l layout) open(ctx context.Context, permitted []string) (store, error) {
	if !git.PermitsDir(permitted, l.path) {
		return nil, fmt.Errorf("local paths are not allowed: use a registry, or start the agent with --local-git-prefix and a directory above %s", l.path)
	}
	info, err := os.Stat(l.path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode().IsRegular():
		from, err := oci.NewFromTar(ctx, l.path)
		return local{from}, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is neither a directory nor a regular file", l.path)
	}
	from, err := oci.NewFromFS(ctx, regular(l.path)) // all but the index is checked by its digest
	return local{from}, err
}

// regular is a directory whose regular files are read.
type regular string

// Open implements fs.FS.
func (dir regular) Open(name string) (fs.File, error) {
	f, _, err := fileid.Open(os.OpenFile, filepath.Join(string(dir), name))
	return f, err
}

// local is a layout that is open.
type local struct{ *oci.ReadOnlyStore }

// Referrers returns what refers to a manifest, with any type.
func (l local) Referrers(ctx context.Context, of ocispec.Descriptor, _ string) ([]ocispec.Descriptor, error) {
	return l.Predecessors(ctx, of)
}

// Open opens a blob, from its begin: it is on this host.
func (l local) Open(ctx context.Context, d ocispec.Descriptor, _ int64) (body io.ReadCloser, from int64, err error) {
	body, err = l.Fetch(ctx, d)
	return body, 0, err
}
