package gitrepository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/dependency"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
)

// Reasons of IncludeUnavailable, but for the first. Source: Flux, but for the last.
const (
	reasonInclude    = "IncludeChange" // of ArtifactOutdated
	reasonNotFound   = "NotFound"
	reasonNoArtifact = "NoArtifact"
	reasonCopy       = "CopyFailure"
	reasonCycle      = "IncludeCycle"
)

// include finds the artifacts of the sources that this one includes.
func (u *upstream) include(ctx context.Context) error {
	s, o := u.spec, u.spec.kind.o
	if len(s.content.Includes) == 0 {
		return nil
	}
	if cycle := o.cycle(s.namespace, []string{s.name}, map[string]bool{}); cycle != nil {
		return &controller.Failure{Condition: controller.IncludeUnavailable, Reason: reasonCycle, Stalled: true, Wait: controller.DependencyRetry,
			Err: fmt.Errorf("these sources include each other: %s", strings.Join(cycle, " -> "))}
	}
	found := make([]artifact.Artifact, 0, len(s.content.Includes))
	for _, in := range s.content.Includes {
		name := in.Repository.Name
		missing := &controller.Failure{Condition: controller.IncludeUnavailable, Reason: reasonNoArtifact, Wait: controller.DependencyRetry,
			Err: fmt.Errorf("no artifact available for include %q", name)}
		its, err := o.Artifacts.Latest(ctx, artifact.Key{Kind: singular, Namespace: s.namespace, Name: name})
		obj, known := o.Sources.Get(s.namespace, name)
		if obj != nil && its.UID != string(obj.GetUID()) { // of an object of that name before
			its, err = artifact.Artifact{}, cmp.Or(err, artifact.ErrNotFound)
		}
		of := dependency.Ref{Kind: dependency.GitRepository, Namespace: s.namespace, Name: name}
		o.References.Observe(of, its.Digest) // also that there is none
		if obj == nil && known {
			missing.Reason, missing.Err = reasonNotFound, fmt.Errorf("could not get resource for include %q: there is no such GitRepository", name)
			return missing
		}
		if errors.Is(err, artifact.ErrNotFound) {
			return missing
		}
		if err != nil {
			return fmt.Errorf("read index of artifacts: %w", err)
		}
		found = append(found, its)
	}
	u.included = found
	return nil
}

// cycle returns the names from the first of path and back to it, each including the next; nil when
// no includes lead back.
func (o Options) cycle(namespace string, path []string, seen map[string]bool) []string {
	obj, _ := o.Sources.Get(namespace, path[len(path)-1])
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
			if found := o.cycle(namespace, append(slices.Clone(path), name), seen); found != nil {
				return found
			}
		}
	}
	return nil
}
