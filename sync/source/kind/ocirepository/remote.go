package ocirepository

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	registryauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"limpet/sync/netx"
)

// remote is the part of the distribution API that reads one repository, in one reconcile. Its
// mirrors are asked before it. One that fails is not asked again; one that lacks something may have
// the next.
type remote struct {
	places []*repository // the mirrors, then the repository
	served int           // index of the one that has answered
	shared *answers      // of the repository
	fresh  bool          // an older answer does not count
}

// manifestTypes are what a reference may stand for.
var manifestTypes = strings.Join([]string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	"application/vnd.docker.distribution.manifest.v2+json", indexOfDocker}, ", ")

// get asks one place after the other.
func (r *remote) get(ctx context.Context, method, path string, header http.Header) (*http.Response, error) {
	for i := 0; ; {
		resp, err := r.places[i].get(ctx, method, path, header)
		switch {
		case err == nil || i == len(r.places)-1:
			r.served = i
			return resp, err
		case notFound(err):
			i++
		default:
			r.places = slices.Delete(r.places, i, i+1)
		}
	}
}

// get sends a request below the repository. An answer that is none of the two good ones is an error.
func (r *repository) get(ctx context.Context, method, path string, header http.Header) (*http.Response, error) {
	scheme := "https"
	if r.plain {
		scheme = "http"
	}
	ctx = registryauth.AppendRepositoryScope(ctx, r.at, registryauth.ActionPull)
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+r.at.Host()+"/v2/"+r.at.Repository+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		r.forget()
	}
	answer := &errcode.ErrorResponse{Method: method, URL: req.URL, StatusCode: resp.StatusCode}
	var body struct{ Errors errcode.Errors }
	if json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&body) == nil {
		answer.Errors = body.Errors
	}
	return nil, answer
}

// Resolve returns what a tag or a digest stands for.
func (r *remote) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	return r.shared.get(reference, r.fresh, func() (ocispec.Descriptor, error) { return r.head(ctx, reference) })
}

// head asks for a manifest by one HEAD, and a GET where its answer has no digest.
func (r *remote) head(ctx context.Context, reference string) (d ocispec.Descriptor, err error) {
	method := http.MethodHead
	for {
		resp, err := r.get(ctx, method, "manifests/"+url.PathEscape(reference), http.Header{"Accept": {manifestTypes}})
		if err != nil {
			return d, err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
		_ = resp.Body.Close()
		if err != nil {
			return d, err
		}
		mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		d = ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(resp.Header.Get("Docker-Content-Digest")), Size: resp.ContentLength}
		if method == http.MethodGet {
			d.Digest, d.Size = digest.FromBytes(body), int64(len(body))
		}
		if d.Digest != "" && d.Size >= 0 {
			return d, checkDigest(d.Digest)
		}
		method = http.MethodGet
	}
}

// Open opens a manifest or a blob, from a byte on where the registry can. from is what it has.
func (r *remote) Open(ctx context.Context, d ocispec.Descriptor, at int64) (body io.ReadCloser, from int64, err error) {
	kind, header := "blobs/", http.Header{}
	if strings.Contains(manifestTypes, cmp.Or(d.MediaType, "none")) {
		kind = "manifests/"
		header.Set("Accept", d.MediaType)
	}
	if at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, d.Size-1))
	}
	resp, err := r.get(ctx, http.MethodGet, kind+string(d.Digest), header)
	if err != nil {
		return nil, 0, err
	}
	return netx.Part(resp, at)
}

// nextPage finds the address in the header of a list that goes on.
var nextPage = regexp.MustCompile(`<[^?>]*\?([^>]*)>;\s*rel="?next"?`)

// Tags lists the tags, a page at a time.
func (r *remote) Tags(ctx context.Context, _ string, fn func(tags []string) error) error {
	path := "tags/list"
	for range mostPages {
		resp, err := r.get(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		var page struct{ Tags []string }
		err = json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&page)
		_ = resp.Body.Close()
		if err == nil {
			err = fn(page.Tags)
		}
		next := nextPage.FindStringSubmatch(resp.Header.Get("Link"))
		if err != nil || next == nil {
			return err
		}
		path = "tags/list?" + next[1]
	}
	return fmt.Errorf("the list of tags has more than %d pages", mostPages)
}

// Referrers returns what refers to a manifest with a type; older registries cannot be asked.
func (r *remote) Referrers(ctx context.Context, of ocispec.Descriptor, artifactType string) ([]ocispec.Descriptor, error) {
	resp, err := r.get(ctx, http.MethodGet, "referrers/"+string(of.Digest)+"?artifactType="+url.QueryEscape(artifactType), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var index ocispec.Index
	err = json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&index)
	return index.Manifests, err
}
