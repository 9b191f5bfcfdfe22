package api

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The net below the watch. Resource versions are opaque, so a list and the
// picture cannot be ordered; instead a difference counts only when the watch
// has not resolved it a while later:
//
//	before: the versions in the picture
//	listed: the versions in a consistent list, made after "before"
//	later:  the versions in the picture, some seconds after that
//
// An object whose version in the picture did not move, although the list knew
// another one or none, was missed. So was one that the list has and the
// picture still has not; that may also be one that came and went meanwhile, and
// then the picture is made anew for nothing, which is harmless.

const (
	// compareGrace is how long the watch has to deliver what a list has shown.
	compareGrace = 5 * time.Second
	comparePage  = 500
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
			continue // the watch itself is waiting for the server
		}
		missed, err := i.compare(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the watch meets the same error and keeps it
			i.client.shared.log.Debug("compare with a full list", "resource", i.gvr.Resource, "err", err)
		case missed > 0:
			i.fixes.Add(1)
			i.client.shared.log.Warn("the watch had missed changes; list again", "resource", i.gvr.Resource, "objects", missed)
			i.fresh.Store(true)
			select {
			case i.relist <- struct{}{}:
			default: // one is under way
			}
		}
	}
}

// compare returns how many objects the watch has missed.
func (i *Informer) compare(ctx context.Context) (int, error) {
	before := i.picture()
	listed, err := i.listVersions(ctx)
	if err != nil {
		return 0, err
	}
	if len(differing(before, listed, i.picture())) == 0 {
		return 0, nil
	}
	timer := time.NewTimer(compareGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-timer.C:
	}
	return len(differing(before, listed, i.picture())), nil
}

// picture returns the versions of all objects by key.
func (i *Informer) picture() map[string]string {
	all := i.List()
	versions := make(map[string]string, len(all))
	for _, u := range all {
		versions[objectKey(u.GetNamespace(), u.GetName())] = identity(u)
	}
	return versions
}

// identity tells one state of one object from all others.
func identity(u *unstructured.Unstructured) string {
	return string(u.GetUID()) + " " + u.GetResourceVersion()
}

// differing returns the keys that the watch has missed.
func differing(before, listed, later map[string]string) []string {
	var missed []string
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

// listVersions reads a full list, page by page, and keeps the versions only.
func (i *Informer) listVersions(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	o := metav1.ListOptions{LabelSelector: i.options.LabelSelector, Limit: comparePage}
	for {
		var page *unstructured.UnstructuredList
		err := Retry(ctx, func(ctx context.Context) (err error) {
			page, err = i.client.Resource(i.gvr).Namespace(i.namespace).List(withTimeout(ctx, listTimeout), o)
			return err
		})
		if err != nil {
			return nil, err
		}
		for n := range page.Items {
			u := &page.Items[n]
			versions[objectKey(u.GetNamespace(), u.GetName())] = identity(u)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return versions, nil
		}
	}
}
