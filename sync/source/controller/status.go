package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

// Reasons of Ready and Reconciling. Source: Flux.
const (
	reasonSucceeded   = "Succeeded"
	reasonProgressing = "Progressing"
	reasonRetry       = "ProgressingWithRetry"
	reasonRevision    = "NewRevision"
	reasonInclude     = "IncludeChange"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2000

// failures are the conditions that say why a source is not ready; at most one of them is True.
var failures = []string{condFetch, condInclude, condStorage}

// readyMessage is the message of a source that is ready: what is stored, and the state of the
// upstream.
func (a *attempt) readyMessage() string {
	return text.Line(strings.TrimSuffix(stored(a.artifact.Revision)+"; "+a.ref.Via.String(), "; "), maxMessage)
}

func stored(revision string) string {
	return fmt.Sprintf("stored artifact for revision '%s'", revision)
}

// conditions returns what an attempt has shown; those without a status are removed.
func (a *attempt) conditions(obj *unstructured.Unstructured, failed *failure) []api.Condition {
	is := func(kind, status, reason, message string) api.Condition {
		return api.Condition{Type: kind, Status: status, Reason: reason, Message: text.Line(text.Redact(message), maxMessage)}
	}
	set := map[string]api.Condition{}
	for _, kind := range append([]string{condReady, condReconciling, condStalled, condStored, condOutdated}, failures...) {
		set[kind] = api.Condition{Type: kind}
	}
	if a.artifact.Digest != "" {
		set[condStored] = is(condStored, "True", reasonSucceeded, stored(a.artifact.Revision))
	}
	switch {
	case failed == nil && len(a.demands) == 0:
		set[condVerified] = api.Condition{Type: condVerified}
	case failed == nil && a.verified != "":
		set[condVerified] = is(condVerified, "True", reasonSucceeded, a.verified)
	}
	if a.sink.Type != "" {
		set[a.sink.Type] = a.sink
	}
	if failed == nil {
		set[condReady] = is(condReady, "True", reasonSucceeded, a.readyMessage())
		return slices.Collect(maps.Values(set))
	}
	message := failed.err.Error()
	status := "True"
	if failed.condition == condVerified {
		status = "False"
	}
	set[failed.condition] = is(failed.condition, status, failed.reason, message)
	set[condReady] = is(condReady, "False", failed.reason, message)
	if failed.stalled {
		set[condStalled] = is(condStalled, "True", failed.reason, message)
	} else {
		set[condReconciling] = is(condReconciling, "True", reasonRetry, "reconciliation in progress")
	}
	switch {
	case a.artifact.Digest == "":
	case a.revision == "": // not known now
		delete(set, condOutdated)
	case a.revision != a.artifact.Revision:
		set[condOutdated] = is(condOutdated, "True", reasonRevision, fmt.Sprintf("new upstream revision '%s'", a.revision))
	case len(a.spec.Includes) > 0 && a.checksum != a.artifact.Checksum:
		set[condOutdated] = is(condOutdated, "True", reasonInclude, "included artifacts differ from those of the stored artifact")
	}
	if a.git.URL == "" { // nothing was looked at
		delete(set, condStored)
	}
	return slices.Collect(maps.Values(set))
}

// status returns the status after an attempt, and whether it is another than that of the object.
func (c *Controller) status(a *attempt, obj *unstructured.Unstructured, failed *failure) (now map[string]any, changed bool) {
	old, _, _ := unstructured.NestedMap(obj.Object, "status")
	now = maps.Clone(old)
	if now == nil {
		now = map[string]any{"observedGeneration": int64(-1)}
	}
	set := func(key string, has bool, value any) {
		if delete(now, key); has {
			now[key] = value
		}
	}
	wanted := a.conditions(obj, failed)
	slices.SortFunc(wanted, func(x, y api.Condition) int { return conditionOrder(x.Type) - conditionOrder(y.Type) })
	list, _ := api.SetConditions(obj, c.o.Now(), wanted...)
	now["conditions"] = list
	if failed == nil || failed.stalled {
		now["observedGeneration"] = a.obj.GetGeneration()
	}
	if a.requested() != "" {
		now["lastHandledReconcileAt"] = a.requested()
	}
	if a.git.URL != "" {
		set("artifact", a.artifact.Digest != "", c.artifactStatus(a.artifact))
	}
	if failed == nil {
		var included, includes, sparse []any
		for i, in := range a.spec.Includes {
			one := map[string]any{"repository": map[string]any{"name": in.Repository.Name}}
			for name, value := range map[string]string{"fromPath": in.FromPath, "toPath": in.ToPath} {
				if value != "" {
					one[name] = value
				}
			}
			includes, included = append(includes, one), append(included, c.artifactStatus(a.included[i]))
		}
		for _, dir := range a.spec.SparseCheckout {
			sparse = append(sparse, dir)
		}
		set("includedArtifacts", len(included) > 0, included)
		set("observedInclude", len(includes) > 0, includes)
		set("observedSparseCheckout", len(sparse) > 0, sparse)
		set("observedRecurseSubmodules", a.spec.Submodules, true)
		set("sourceVerificationMode", a.git.Verify != "", string(a.git.Verify))
		set("contentConfigChecksum", !c.noChecksum.Load(), a.artifact.Checksum)
		if delete(now, "observedIgnore"); a.spec.Ignore != nil {
			now["observedIgnore"] = *a.spec.Ignore
		}
	}
	return now, !reflect.DeepEqual(old, now)
}

// conditionOrder is the order in which conditions are listed.
func conditionOrder(kind string) int {
	return slices.Index([]string{condReconciling, condStalled, condReady, condFetch, condInclude, condStorage, condOutdated, condVerified,
		condStored, api.ConditionSinkReady}, kind)
}

// artifactStatus returns an artifact in the form of Flux.
func (c *Controller) artifactStatus(a artifact.Artifact) map[string]any {
	m := map[string]any{"path": a.Path, "url": c.o.Artifacts.URL(a), "revision": a.Revision, "digest": a.Digest, "size": a.Size,
		"lastUpdateTime": a.Updated.UTC().Format(time.RFC3339)}
	if a.TarDigest != "" { // of the content, whatever packs it
		m["metadata"] = map[string]any{"limpet/tar-digest": a.TarDigest}
	}
	return m
}

// writeStatus adds the events of an attempt to the outbox, then writes its result.
func (c *Controller) writeStatus(ctx context.Context, a *attempt, failed *failure) error {
	obj := a.obj
	for {
		status, changed := c.status(a, obj, failed)
		a.memory.settled = ""
		unsent := c.announce(ctx, a, obj, failed) // the status is written all the same
		if !changed {
			if failed == nil && unsent == nil {
				a.memory.settled = obj.GetResourceVersion()
			}
			return unsent
		}
		written, err := c.apply(ctx, obj, status)
		if err == nil && failed == nil && api.Annotation(written, source.AnnoRequested) == a.requested() &&
			written.GetGeneration() == a.obj.GetGeneration() { // else it was changed meanwhile, and the status is of an older generation
			a.obj, a.memory.settled = written, written.GetResourceVersion()
		}
		if !apierrors.IsConflict(err) {
			return cmp.Or(err, unsent)
		}
		if obj, err = c.o.Client.Resource(api.GitRepositories).Namespace(a.key.Namespace).Get(ctx, a.key.Name, metav1.GetOptions{}); err != nil {
			return ignoreNotFound(err)
		}
		if obj.GetUID() != a.obj.GetUID() {
			return nil
		}
	}
}

// writeProgress sets Reconciling once for each spec.
func (c *Controller) writeProgress(ctx context.Context, a *attempt) error {
	list, _, _ := unstructured.NestedSlice(a.obj.Object, "status", "conditions")
	if _, ready := api.FindCondition(list, condReady); ready["observedGeneration"] == a.obj.GetGeneration() {
		return nil
	}
	status, _, _ := unstructured.NestedMap(a.obj.Object, "status")
	if status == nil {
		status = map[string]any{"observedGeneration": int64(-1)}
	}
	status["conditions"], _ = api.SetConditions(a.obj, c.o.Now(), api.Condition{Type: condStalled},
		api.Condition{Type: condReconciling, Status: "True", Reason: reasonProgressing, Message: "building artifact: " + a.revision},
		api.Condition{Type: condReady, Status: "Unknown", Reason: reasonProgressing, Message: "building artifact: " + a.revision})
	u, err := c.apply(ctx, a.obj, status)
	if err != nil {
		return err
	}
	a.obj = u
	return nil
}

// apply writes the status of an object as it was read, by server-side apply.
func (c *Controller) apply(ctx context.Context, obj *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	const checksum = "contentConfigChecksum"
	if c.noChecksum.Load() {
		delete(status, checksum)
	}
	body, err := json.Marshal(map[string]any{"apiVersion": api.GitRepositories.GroupVersion().String(), "kind": Kind,
		"metadata": map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace(), "uid": obj.GetUID(),
			"resourceVersion": obj.GetResourceVersion()},
		"status": status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	force := true
	u, err := c.o.Client.Resource(api.GitRepositories).Namespace(obj.GetNamespace()).Patch(limited, obj.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: FieldManager, Force: &force}, "status")
	if err != nil && strings.Contains(err.Error(), checksum) && c.noChecksum.CompareAndSwap(false, true) { // Flux's definition lacks it
		return c.apply(ctx, obj, status)
	}
	if apierrors.IsNotFound(err) {
		return obj, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write status: %w", err)
	}
	written, _, _ := unstructured.NestedMap(u.Object, "status")
	if maps.DeleteFunc(written, func(key string, _ any) bool { _, wanted := status[key]; return wanted }); len(written) == 0 {
		return u, nil
	}
	for key := range written { // of another manager, from whom an apply takes nothing away
		written[key] = nil
	}
	body, _ = json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion()},
		"status": written}) // plain values
	return c.o.Client.Resource(api.GitRepositories).Namespace(obj.GetNamespace()).Patch(limited, obj.GetName(), types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: FieldManager}, "status")
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
