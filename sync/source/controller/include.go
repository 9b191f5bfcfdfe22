package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/reconcile"
	"limpet/sync/source/artifact"
)

// Reasons of IncludeUnavailable. Source: Flux, but for the last.
const (
	reasonNotFound   = "NotFound"
	reasonNoArtifact = "NoArtifact"
	reasonCopy       = "CopyFailure"
	reasonCycle      = "IncludeCycle"
)

// include finds the artifacts of the sources that this one includes.
func (c *Controller) include(ctx context.Context, a *attempt) (done bool, err error) {
	if len(a.spec.Includes) == 0 {
		return false, nil
	}
	if cycle := c.cycle(a.key.Namespace, []string{a.key.Name}, map[string]bool{}); cycle != nil {
		return true, &failure{condition: condInclude, reason: reasonCycle, stalled: true, wait: includeRetry,
			err: fmt.Errorf("these sources include each other: %s", strings.Join(cycle, " -> "))}
	}
	found := make([]artifact.Artifact, 0, len(a.spec.Includes))
	for _, in := range a.spec.Includes {
		name := in.Repository.Name
		missing := &failure{condition: condInclude, reason: reasonNoArtifact, wait: includeRetry,
			err: fmt.Errorf("no artifact available for include %q", name)}
		its, err := c.o.Artifacts.Latest(ctx, a.key.Namespace, name)
		obj, known := c.o.Sources.Get(a.key.Namespace, name)
		if obj != nil && its.UID != string(obj.GetUID()) { // of an object of that name before
			its, err = artifact.Artifact{}, cmp.Or(err, artifact.ErrNotFound)
		}
		c.o.References.Observe(ref(reconcile.Key{Namespace: a.key.Namespace, Name: name}), its.Digest) // also that there is none
		if obj == nil && known {
			missing.reason, missing.err = reasonNotFound, fmt.Errorf("could not get resource for include %q: there is no such GitRepository", name)
			return true, missing
		}
		if errors.Is(err, artifact.ErrNotFound) {
			return true, missing
		}
		if err != nil {
			return true, fmt.Errorf("read index of artifacts: %w", err)
		}
		found = append(found, its)
	}
	a.included = found
	return false, nil
}

// cycle returns the names from the first of path and back to it, each including the next; nil when
// no includes lead back.
func (c *Controller) cycle(namespace string, path []string, seen map[string]bool) []string {
	obj, _ := c.o.Sources.Get(namespace, path[len(path)-1])
	if obj == nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(obj.Object, "spec", "include")
	for _, entry := range list {
		in, _ := entry.(map[string]any)
		name, _, _ := unstructured.NestedString(in, "repository", "name")
		if name == path[0] {
			return append(path, name)
		}
		if !seen[name] {
			seen[name] = true
			if found := c.cycle(namespace, append(slices.Clone(path), name), seen); found != nil {
				return found
			}
		}
	}
	return nil
}
