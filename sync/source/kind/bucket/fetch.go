package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/netx"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/text"
)

const fetchers = 8 // objects at once

// errChanged says that an object is not the one of the listing.
var errChanged = errors.New("it has changed since the listing")

// Fetch brings the objects that the stored artifact does not have. Those that have come stay where
// another one fails.
func (u *upstream) Fetch(ctx context.Context) (received int64, err error) {
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(u.now.Objects)), u.kept)
	if err := u.clean(missing); err != nil {
		return 0, &controller.Failure{Condition: controller.StorageFailed, Reason: artifact.ReasonDirectory, Err: err}
	}
	size := int64(0)
	for _, key := range missing {
		size += u.now.Objects[key].Size
	}
	ctx, cancel := context.WithTimeout(ctx, artifact.TimeFor(size)) // what has come is kept
	defer cancel()
	var total atomic.Int64
	sums := make([]string, len(missing))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchers)
	for i, key := range missing {
		group.Go(func() error {
			n, sum, err := u.download(ctx, key)
			total.Add(n)
			if sums[i] = sum; err != nil {
				err = fmt.Errorf("failed to get '%s' object: %w", text.Line(key, 200), err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return total.Load(), controller.Failed(reasonBucket, "fetch from bucket '%s' failed: %w", u.spec.BucketName, err)
	}
	for i, key := range missing {
		e := u.now.Objects[key]
		e.Sum = sums[i]
		u.now.Objects[key] = e
	}
	return total.Load(), u.settle()
}

// settle finds out whether the archive would be the stored one: then its revision stays.
func (u *upstream) settle() error {
	same := func(was, now entry) bool { return was.Sum == now.Sum }
	if u.now.checksum() != u.visit.Stored.Checksum || !maps.EqualFunc(u.was.Objects, u.now.Objects, same) {
		return nil
	}
	for key, e := range u.now.Objects {
		e.First = u.was.Objects[key].First
		u.now.Objects[key] = e
	}
	u.settled = true
	return errors.Join(u.remember(u.visit.Stored.Digest), os.RemoveAll(u.dir()))
}

// dir is of this source alone, so that none reads an object only because another one may.
func (u *upstream) dir() string {
	return filepath.Join(u.spec.kind.o.Dir, hash(u.spec.namespace, u.spec.name))
}

func (u *upstream) file(key string) string {
	return filepath.Join(u.dir(), hash(u.now.Origin, key, u.now.Objects[key].ETag))
}

// clean makes the directory and removes what is not wanted any more.
func (u *upstream) clean(wanted []string) error {
	names := map[string]bool{}
	for _, key := range wanted {
		names[filepath.Base(u.file(key))] = true
	}
	if err := os.MkdirAll(u.dir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(u.dir())
	for _, e := range entries {
		if !names[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(u.dir(), e.Name())))
		}
	}
	return err
}

// download brings an object into its file, and goes on with what a download before has left.
func (u *upstream) download(ctx context.Context, key string) (received int64, sum string, err error) {
	h := sha256.New()
	d, err := netx.OpenDownload(u.file(key), u.now.Objects[key].Size, h)
	if err != nil {
		return 0, "", err
	}
	defer d.Close()
	received, err = d.Fill(ctx, u.visit.Timeout, func(ctx context.Context, at int64) (io.ReadCloser, int64, error) {
		return u.object(ctx, key, at)
	})
	return received, hex.EncodeToString(h.Sum(nil)), err
}

// object opens the object of the listing.
func (u *upstream) object(ctx context.Context, key string, at int64) (body io.ReadCloser, from int64, err error) {
	etag := u.now.Objects[key].ETag
	header := http.Header{"If-Match": {`"` + etag + `"`}}
	if modified, err := time.Parse(time.RFC3339, etag); err == nil { // the header has no parts of a second
		header = http.Header{"If-Unmodified-Since": {modified.Add(time.Second).UTC().Format(http.TimeFormat)}}
	}
	if at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := u.from.get(ctx, u.from.at(key), header)
	if refused(err, http.StatusPreconditionFailed, http.StatusNotFound) {
		err = errChanged
	}
	if err != nil {
		return nil, 0, err
	}
	return netx.Part(resp, at)
}

// Pack returns the objects: those that were fetched, and those of the stored artifact.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	o := u.spec.kind.o
	var members []archive.Member
	for _, key := range slices.Sorted(maps.Keys(u.now.Objects)) {
		m := archive.Member{Path: pathOf(key), Size: u.now.Objects[key].Size}
		if !u.kept(key) {
			m.File = u.file(key)
		}
		members = append(members, m)
	}
	if rules := u.now.Rules; rules.ETag != "" { // Flux has them in the archive, too
		members = append(members, archive.Member{Path: ignoreFile, File: u.file(ignoreFile), Size: int64(len(rules.Text))})
		if err := os.WriteFile(u.file(ignoreFile), []byte(rules.Text), 0o600); err != nil {
			return controller.Content{}, err
		}
	}
	stored := func(ctx context.Context) (io.ReadCloser, error) { return o.Artifacts.OpenFile(ctx, u.visit.Stored) }
	return controller.Content{Spent: u.dir(), Write: func(w io.Writer) (archive.Digests, error) {
		d, err := archive.Gather(ctx, w, members, stored, archive.Options{MaxBytes: o.MaxBytes, MaxFiles: o.MaxFiles})
		if _, bad := errors.AsType[*archive.FormatError](err); bad {
			return d, controller.Failed(reasonBucket, "fetch from bucket '%s' failed: %w", u.spec.BucketName, err)
		}
		if err == nil {
			err = u.remember(d.Digest)
		}
		return d, err
	}}, nil
}
