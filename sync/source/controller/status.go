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
	"limpet/sync/auth"
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
)

// fieldChecksum is limpet's own field of a status, which the definitions of Flux lack.
const fieldChecksum = "contentConfigChecksum"

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2000

// failures are the conditions that say why a source is not ready; at most one of them is True.
var failures = []string{FetchFailed, IncludeUnavailable, BuildFailed, StorageFailed}

// readyMessage is the message of a source that is ready: what is stored, and the note of the
// upstream.
func (c *Controller) readyMessage(a *attempt) string {
	_, message := c.summary(a.artifact)
	return text.Line(strings.TrimSuffix(message+"; "+a.found.Note, "; "), maxMessage)
}

// summary returns reason and message of a stored artifact.
func (c *Controller) summary(stored artifact.Artifact) (reason, message string) {
	if own, is := c.o.Kind.(Summarizer); is {
		return own.Summary(stored)
	}
	return reasonSucceeded, c.o.Kind.Stored(stored.Revision)
}

// conditions returns what an attempt has shown; those without a status are removed.
func (c *Controller) conditions(a *attempt, failed *Failure) []api.Condition {
	is := func(kind, status, reason, message string) api.Condition {
		return api.Condition{Type: kind, Status: status, Reason: reason, Message: text.Line(text.Redact(message), maxMessage)}
	}
	set := map[string]api.Condition{}
	for _, kind := range append([]string{condReady, condReconciling, condStalled, condStored, condOutdated}, failures...) {
		set[kind] = api.Condition{Type: kind}
	}
	if a.artifact.Digest != "" {
		reason, message := c.summary(a.artifact)
		set[condStored] = is(condStored, "True", reason, message)
	}
	if failed == nil {
		demanded, verified := a.upstream.Signatures()
		if !demanded {
			set[SourceVerified] = api.Condition{Type: SourceVerified}
		} else if verified != "" {
			set[SourceVerified] = is(SourceVerified, "True", reasonSucceeded, verified)
		}
	}
	if a.sink.Type != "" {
		set[a.sink.Type] = a.sink
	}
	if failed == nil {
		reason, _ := c.summary(a.artifact)
		set[condReady] = is(condReady, "True", reason, c.readyMessage(a))
		return slices.Collect(maps.Values(set))
	}
	message := failed.Err.Error()
	status := "True"
	if failed.Condition == SourceVerified {
		status = "False"
	}
	set[failed.Condition] = is(failed.Condition, status, failed.Reason, message)
	if failed.Unsigned {
		set[SourceVerified] = is(SourceVerified, "False", auth.ReasonVerify, message)
	}
	set[condReady] = is(condReady, "False", failed.Reason, message)
	if failed.Stalled {
		set[condStalled] = is(condStalled, "True", failed.Reason, message)
	} else {
		set[condReconciling] = is(condReconciling, "True", reasonRetry, "reconciliation in progress")
	}
	switch {
	case a.artifact.Digest == "":
	case a.found.Revision == "": // not known now
		delete(set, condOutdated)
	case a.found.Revision != a.artifact.Revision:
		set[condOutdated] = is(condOutdated, "True", reasonRevision, fmt.Sprintf("new upstream revision '%s'", a.found.Revision))
	case a.found.Checksum != a.artifact.Checksum:
		if reason, message := a.upstream.Outdated(); reason != "" {
			set[condOutdated] = is(condOutdated, "True", reason, message)
		}
	}
	if a.spec == nil { // nothing was looked at
		delete(set, condStored)
	}
	return slices.Collect(maps.Values(set))
}

// status returns the status after an attempt, and whether it is another than that of the object.
func (c *Controller) status(a *attempt, obj *unstructured.Unstructured, failed *Failure) (now map[string]any, changed bool) {
	old, _, _ := unstructured.NestedMap(obj.Object, "status")
	now = maps.Clone(old)
	if now == nil {
		now = map[string]any{"observedGeneration": int64(-1)}
	}
	wanted := c.conditions(a, failed)
	slices.SortFunc(wanted, func(x, y api.Condition) int { return conditionOrder(x.Type) - conditionOrder(y.Type) })
	list, _ := api.SetConditions(obj, c.o.Now(), wanted...)
	now["conditions"] = list
	if failed == nil || failed.Stalled {
		now["observedGeneration"] = a.obj.GetGeneration()
	}
	if a.requested() != "" {
		now["lastHandledReconcileAt"] = a.requested()
	}
	if a.spec != nil {
		if delete(now, "artifact"); a.artifact.Digest != "" {
			now["artifact"] = c.artifactStatus(a.artifact)
		}
	}
	if failed == nil {
		for field, value := range a.upstream.Fields(c.artifactStatus) {
			if now[field] = value; value == nil {
				delete(now, field)
			}
		}
		if now[fieldChecksum] = a.artifact.Checksum; c.noChecksum.Load() {
			delete(now, fieldChecksum)
		}
	}
	c.keepKnown(now)
	return now, !reflect.DeepEqual(old, now)
}

// keepKnown removes from a status those fields of most kinds that the definition of this one lacks.
func (c *Controller) keepKnown(status map[string]any) {
	for _, field := range []string{"observedGeneration", "lastHandledReconcileAt", fieldChecksum} {
		_, known, _ := unstructured.NestedFieldNoCopy(c.kind.Schema(), "properties", "status", "properties", field)
		if !known {
			delete(status, field)
		}
	}
}

// conditionOrder is the order in which conditions are listed.
func conditionOrder(kind string) int {
	return slices.Index([]string{condReconciling, condStalled, condReady, FetchFailed, IncludeUnavailable, BuildFailed, StorageFailed, condOutdated, SourceVerified,
		condStored, api.ConditionSinkReady}, kind)
}

// artifactStatus returns an artifact in the form of Flux.
func (c *Controller) artifactStatus(a artifact.Artifact) map[string]any {
	m := map[string]any{"path": a.Path, "url": c.o.Artifacts.URL(a), "revision": a.Revision, "digest": a.Digest, "size": a.Size,
		"lastUpdateTime": a.Updated.UTC().Format(time.RFC3339)}
	metadata := map[string]any{}
	for name, value := range a.Metadata {
		metadata[name] = value
	}
	if a.TarDigest != "" { // of the content, whatever packs it
		metadata["limpet/tar-digest"] = a.TarDigest
	}
	if len(metadata) > 0 {
		m["metadata"] = metadata
	}
	return m
}

// writeStatus adds the events of an attempt to the outbox, then writes its result.
func (c *Controller) writeStatus(ctx context.Context, a *attempt, failed *Failure) error {
	obj := a.obj
	for {
		status, changed := c.status(a, obj, failed)
		a.memory.settled = ""
		unsent := c.announce(ctx, a, obj, failed) // the status is written all the same
		if !changed {
			if failed == nil && unsent == nil && a.isOf(obj) {
				a.memory.settled = obj.GetResourceVersion()
			}
			return unsent
		}
		written, err := c.apply(ctx, obj, status)
		if err == nil && failed == nil && a.isOf(written) {
			a.obj, a.memory.settled = written, written.GetResourceVersion()
		}
		if !apierrors.IsConflict(err) {
			return cmp.Or(err, unsent)
		}
		if obj, err = c.o.Client.Resource(c.kind.Resource()).Namespace(a.key.Namespace).Get(ctx, a.key.Name, metav1.GetOptions{}); err != nil {
			return ignoreNotFound(err)
		}
		if obj.GetUID() != a.obj.GetUID() {
			return nil
		}
	}
}

// isOf reports whether the attempt has done what an object asks for. One that was changed meanwhile
// asks for more.
func (a *attempt) isOf(obj *unstructured.Unstructured) bool {
	return api.Annotation(obj, source.AnnoRequested) == a.requested() && obj.GetGeneration() == a.obj.GetGeneration()
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
		api.Condition{Type: condReconciling, Status: "True", Reason: reasonProgressing, Message: "building artifact: " + a.found.Revision},
		api.Condition{Type: condReady, Status: "Unknown", Reason: reasonProgressing, Message: "building artifact: " + a.found.Revision})
	c.keepKnown(status)
	u, err := c.apply(ctx, a.obj, status)
	if err != nil {
		return err
	}
	a.obj = u
	return nil
}

// apply writes the status of an object as it was read, by server-side apply.
func (c *Controller) apply(ctx context.Context, obj *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	if c.noChecksum.Load() {
		delete(status, fieldChecksum)
	}
	body, err := json.Marshal(map[string]any{"apiVersion": c.kind.APIVersion(), "kind": c.kind.Kind,
		"metadata": map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace(), "uid": obj.GetUID(),
			"resourceVersion": obj.GetResourceVersion()},
		"status": status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	force := true
	u, err := c.o.Client.Resource(c.kind.Resource()).Namespace(obj.GetNamespace()).Patch(limited, obj.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: FieldManager, Force: &force}, "status")
	if err != nil && strings.Contains(err.Error(), fieldChecksum) && c.noChecksum.CompareAndSwap(false, true) { // Flux's definition lacks it
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
	return c.o.Client.Resource(c.kind.Resource()).Namespace(obj.GetNamespace()).Patch(limited, obj.GetName(), types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: FieldManager}, "status")
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
