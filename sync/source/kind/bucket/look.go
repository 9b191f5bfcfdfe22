package bucket

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/git/ignore"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

// ignoreFile is the object with rules, at the root of a bucket. Source: Flux; its default rules do
// not hold for buckets.
const ignoreFile = ".sourceignore"

// Look lists the bucket. What the rules leave makes the revision.
func (u *upstream) Look(ctx context.Context) (found controller.Found, err error) {
	s := u.spec
	u.was = u.remembered()
	u.now = index{Origin: s.origin(), Region: u.was.Region, Objects: map[string]entry{}}
	listed, err := u.list(ctx)
	if err != nil {
		return found, err
	}
	if u.now.Rules, err = u.rules(ctx, listed); err != nil {
		return found, controller.Failed(reasonBucket, "failed to get Etag for '%s' object: %w", ignoreFile, err)
	}
	err = u.choose(ctx, listed)
	return controller.Found{Revision: u.now.revision(), Checksum: u.now.checksum()}, err
}

// list lists the bucket, in the region that the server names where the spec has none.
func (u *upstream) list(ctx context.Context) (listed []object, err error) {
	s := u.spec
	if u.from, err = u.open(ctx, u.now.Region); err != nil {
		return nil, controller.Failed(auth.ReasonAuthentication, "%w", err)
	}
	listed, err = u.from.list(ctx, s.Prefix)
	e, refused := errors.AsType[*refusal](err)
	switch {
	case refused && e.Region != "" && s.Region == "" && e.Region != u.now.Region && u.now.Region == u.was.Region: // once
		u.now.Region = e.Region
		return u.list(ctx)
	case refused && e.Status == http.StatusNotFound:
		err = controller.Failed(reasonBucket, "bucket '%s' not found: %w", s.BucketName, err)
	case err != nil:
		err = controller.Failed(reasonBucket, "indexation of objects from bucket '%s' failed: listing objects from bucket '%[1]s' failed: %w",
			s.BucketName, err)
	}
	return listed, err
}

// rules returns the rules of the bucket. They are read when they have changed, of which a listing
// with a prefix says nothing.
func (u *upstream) rules(ctx context.Context, listed []object) (r rules, err error) {
	known, there := u.was.Rules, !strings.HasPrefix(ignoreFile, u.spec.Prefix)
	for _, o := range listed {
		if o.Key == ignoreFile && o.ETag == known.ETag {
			return known, nil
		}
		there = there || o.Key == ignoreFile
	}
	if !there {
		return r, nil
	}
	header := http.Header{}
	if known.ETag != "" {
		header.Set("If-None-Match", `"`+known.ETag+`"`)
	}
	resp, err := u.from.get(ctx, u.from.at(ignoreFile), header)
	switch {
	case refused(err, http.StatusNotModified):
		return known, nil
	case refused(err, http.StatusNotFound):
		return r, nil
	case err != nil:
		return r, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, ignore.MaxBytes+1))
	if err == nil && len(body) > ignore.MaxBytes {
		err = &ignore.LimitError{What: "bytes", Limit: ignore.MaxBytes}
	}
	return rules{ETag: cmp.Or(unquote(resp.Header.Get("ETag")), "none"), Text: string(body)}, err
}

// choose takes what the rules leave of the listing. Those of the spec come last.
func (u *upstream) choose(ctx context.Context, listed []object) error {
	o, budget := u.spec.kind.o, ignore.NewBudget()
	var files []*ignore.Rules
	for _, rules := range []*string{&u.now.Rules.Text, u.spec.Ignore} {
		if rules == nil {
			continue
		}
		parsed, err := budget.Parse([]byte(*rules), nil)
		if err != nil {
			return controller.Failed(reasonIgnore, "rules of spec.ignore and %s: %w", ignoreFile, err)
		}
		files = append(files, parsed)
	}
	total := int64(0)
	for _, is := range listed {
		excluded, _, err := ignore.Match(ctx, files, strings.Split(is.Key, "/"), false)
		if err != nil {
			return err
		}
		if excluded || is.Key == ignoreFile || strings.HasSuffix(is.Key, "/") { // a marker of a directory
			continue
		}
		if pathOf(is.Key) == "" || strings.ContainsRune(is.Key, 0) {
			return controller.Failed(reasonBucket, "the key %q cannot be a file; leave it out with spec.ignore", text.Line(is.Key, 200))
		}
		u.now.Objects[is.Key] = entry{ETag: is.ETag, First: is.ETag, Size: is.Size}
		if u.kept(is.Key) {
			u.now.Objects[is.Key] = u.was.Objects[is.Key]
		}
		total += is.Size
		if tooMany := o.MaxFiles > 0 && len(u.now.Objects) > o.MaxFiles; tooMany || o.MaxBytes > 0 && total > o.MaxBytes {
			limit := &archive.LimitError{Bytes: !tooMany, Limit: o.MaxBytes}
			if tooMany {
				limit.Limit = int64(o.MaxFiles)
			}
			return &controller.Failure{Condition: controller.StorageFailed, Reason: artifact.ReasonArchive, Err: limit}
		}
	}
	return nil
}

// kept reports whether the stored artifact has an object.
func (u *upstream) kept(key string) bool {
	was, now := u.was.Objects[key], u.now.Objects[key]
	return was.ETag == now.ETag && was.Size == now.Size
}

// pathOf returns where an object is in the archive, which a key cannot leave.
func pathOf(key string) string { return strings.TrimPrefix(path.Clean("/"+key), "/") }

// Settled returns the revision of the stored artifact, where nothing has changed but ETags.
func (u *upstream) Settled() (found controller.Found, is bool) {
	return controller.Found{Revision: u.now.revision(), Checksum: u.now.checksum()}, u.settled
}
