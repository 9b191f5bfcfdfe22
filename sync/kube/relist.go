package kube

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A full list finds what the watch has lost. Resource versions are opaque, so a list
// and the cache cannot be ordered; a difference counts only when the watch has not
// resolved it some seconds later:
//
//	before: the versions in the cache
//	listed: the versions in a consistent list, read after "before"
//	later:  the versions in the cache, some seconds after that
//
// An object was missed when its version in the cache did not change although the list
// had another one or none, or when the list has it and the cache still does not. The
// latter may also be created and deleted in between; then the cache is listed again for
// nothing, which is harmless.

const (
	// compareGrace is how long the watch has to deliver what a list has shown.
	compareGrace = 5 * time.Second
)

// compareEvery compares until ctx ends, up to a tenth later each time.
func (i *Informer) compareEvery(ctx context.Context) {
	for {
		timer := time.NewTimer(i.relists + rand.N(i.relists/10+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if since, _ := i.client.Down(); !since.IsZero() || !i.HasSynced() {
			continue // the watch is waiting for the server
		}
		missed, err := i.compare(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the watch has the same error and records it
			i.client.shared.log.Debug("compare with a full list", "resource", i.gvr.Resource, "err", err)
		case missed > 0:
			i.corrections.Add(1)
			i.client.shared.log.Warn("the watch had missed changes; list again", "resource", i.gvr.Resource, "objects", missed)
			select {
			case i.relist <- struct{}{}:
			default: // one is under way
			}
		}
	}
}

// compare returns how many objects the watch has missed.
func (i *Informer) compare(ctx context.Context) (int, error) {
	before := i.versions()
	listed, err := i.listVersions(ctx)
	if err != nil {
		return 0, err
	}
	if len(differing(before, listed, i.versions())) == 0 {
		return 0, nil
	}
	timer := time.NewTimer(compareGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-timer.C:
	}
	return len(differing(before, listed, i.versions())), nil
}

// compareSeed is for the hashes of keys and versions that are compared. The chance that
// two of a million objects have the same hash, which hides a difference between them, is
// one in thirty million.
var compareSeed = maphash.MakeSeed()

func digest(text string) uint64 { return maphash.String(compareSeed, text) }

// versions returns the versions of all objects in the cache by key.
func (i *Informer) versions() map[uint64]uint64 {
	all := i.Objects()
	versions := make(map[uint64]uint64, len(all))
	for _, s := range all {
		versions[digest(s.Key())] = digest(s.version())
	}
	return versions
}

// differing returns the keys that the watch has missed.
func differing[K, V comparable](before, listed, later map[K]V) []K {
	var missed []K
	for key, now := range listed {
		was, had := before[key]
		is, has := later[key]
		if had && has && was == is && is != now || !had && !has {
			missed = append(missed, key)
		}
	}
	for key, was := range before {
		_, inList := listed[key]
		if is, has := later[key]; !inList && has && is == was {
			missed = append(missed, key)
		}
	}
	return missed
}

// listVersions reads a full list and keeps the versions only.
func (i *Informer) listVersions(ctx context.Context) (map[uint64]uint64, error) {
	versions := map[uint64]uint64{}
	_, err := i.pages(ctx, Retry, func(u *unstructured.Unstructured) {
		o := ObjectOf(u)
		versions[digest(o.Key())] = digest(o.version())
	})
	return versions, err
}
