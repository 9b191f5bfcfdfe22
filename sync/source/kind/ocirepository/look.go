package ocirepository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	registryauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/source"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

// store is a repository of a registry or a layout.
type store interface {
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
	Open(ctx context.Context, target ocispec.Descriptor, at int64) (body io.ReadCloser, from int64, err error)
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
	Referrers(ctx context.Context, of ocispec.Descriptor, artifactType string) ([]ocispec.Descriptor, error)
}

// Look asks for the digest of the reference.
func (u *upstream) Look(ctx context.Context) (found controller.Found, err error) {
	s := u.spec
	if err := u.forget(); err != nil {
		return found, err
	}
	if u.from, err = u.open(ctx); err != nil {
		return found, err
	}
	tag := cmp.Or(s.Ref.Tag, "latest")
	switch {
	case s.Ref.Digest != "":
		u.revision, u.found = string(s.Ref.Digest), ocispec.Descriptor{Digest: s.Ref.Digest}
		return controller.Found{Revision: u.revision, Checksum: u.checksum()}, nil
	case s.Ref.SemVer != "":
		tag, err = u.newest(ctx)
		if err != nil {
			return found, controller.Failed(reasonOf(err, reasonRead), "failed to determine the artifact tag for '%s': %w", s.URL, explain(err, ""))
		}
	case s.layout.tag != "":
		tag = s.layout.tag
	}
	if u.found, err = u.from.Resolve(ctx, tag); err != nil {
		return found, controller.Failed(reasonOf(err, reasonPull), "failed to determine artifact digest: %w", explain(err, tag))
	}
	u.revision = tag + "@" + string(u.found.Digest)
	return controller.Found{Revision: u.revision, Checksum: u.checksum()}, nil
}

// open returns the store of the spec.
func (u *upstream) open(ctx context.Context) (store, error) {
	s := u.spec
	if s.layout.path != "" {
		from, err := s.layout.open(ctx, s.kind.o.AllowLocal)
		if err != nil {
			return nil, controller.Failed(reasonPull, "failed to pull artifact from '%s': %w", s.URL, err)
		}
		return from, nil
	}
	l, err := s.login(ctx)
	if err != nil {
		return nil, controller.Failed(auth.ReasonAuthentication, "failed to get credential: %w", err)
	}
	asked := api.Annotation(u.visit.Object, source.AnnoRequested)
	from, err := s.kind.registries.remote(s.at, l, s.Insecure)
	if err != nil {
		return nil, controller.Failed(auth.ReasonAuthentication, "failed to generate transport for '%s': %w", s.URL, err)
	}
	from.fresh = asked != "" && !source.Handled(u.visit.Object, asked)
	return from, nil
}

// The bounds of tags.
const (
	mostTags  = 100_000
	longRange = 1024 // bytes
)

// versions chooses among tags.
type versions struct {
	within *semver.Constraints
	filter *regexp.Regexp
	chart  bool // "_" stands for "+" in tags of charts
}

const chartType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func (s *spec) parseRange() (v versions, err error) {
	if s.Ref.SemVer == "" {
		return v, nil
	}
	if len(s.Ref.SemVer) > longRange || len(s.Ref.SemVerFilter) > longRange {
		return v, fmt.Errorf("a range of versions and a filter have at most %d bytes", longRange)
	}
	if v.within, err = semver.NewConstraint(s.Ref.SemVer); err != nil {
		return v, fmt.Errorf("semver '%s' parse error: %w", s.Ref.SemVer, err)
	}
	if v.filter, err = regexp.Compile(s.Ref.SemVerFilter); err != nil {
		return v, fmt.Errorf("semverFilter '%s' parse error: %w", s.Ref.SemVerFilter, err)
	}
	v.chart = s.LayerSelector.MediaType == chartType
	return v, nil
}

// newest returns the tag of the highest version of the range.
func (u *upstream) newest(ctx context.Context) (newest string, err error) {
	v := u.spec.versions
	var highest *semver.Version
	seen := 0
	err = u.from.Tags(ctx, "", func(tags []string) error {
		if seen += len(tags); seen > mostTags {
			return fmt.Errorf("there are more than %d tags", mostTags)
		}
		for _, tag := range tags {
			if !v.filter.MatchString(tag) {
				continue
			}
			version := tag
			if v.chart {
				version = strings.ReplaceAll(tag, "_", "+")
			}
			if is, err := semver.NewVersion(version); err == nil && v.within.Check(is) && (highest == nil || is.GreaterThan(highest)) {
				highest, newest = is, tag
			}
		}
		return nil
	})
	if err == nil && highest == nil {
		err = fmt.Errorf("no match found for semver: %s", u.spec.Ref.SemVer)
	}
	return newest, err
}

// refused reports whether a registry demands other credentials.
func refused(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) ||
		errors.Is(err, registryauth.ErrBasicCredentialNotFound)
}

// notFound reports whether there is no such thing.
func notFound(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	return ok && answer.StatusCode == http.StatusNotFound || errors.Is(err, errdef.ErrNotFound)
}

// reasonOf returns the reason of an error of a registry that refuses credentials, else another one.
func reasonOf(err error, other string) string {
	if refused(err) {
		return auth.ReasonAuthentication
	}
	return other
}

// explain adds what an answer means that registries give for several causes.
func explain(err error, tag string) error {
	switch {
	case errors.Is(err, registryauth.ErrBasicCredentialNotFound):
		return errors.New("the registry demands a login, and there is none for it; name the Secret with it in spec.secretRef")
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("the registry speaks plain http; set spec.insecure if that is meant: %w", err)
	case refused(err):
		return fmt.Errorf("the registry refuses access; check the Secret of spec.secretRef: %w", err)
	case notFound(err):
		return fmt.Errorf("there is no such tag or no access to it: %q: %w", text.Line(tag, 200), err)
	}
	return err
}

// checkDigest refuses digests that this host cannot compute.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("%q is no digest: %w", text.Line(string(d), 200), err)
	}
	return nil
}
