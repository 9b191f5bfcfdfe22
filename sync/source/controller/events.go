package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
)

const (
	reasonNewArtifact = "NewArtifact"              // Source: Flux
	annoEvent         = "event.toolkit.fluxcd.io/" // begins the names of annotations that events take over
	metaRevision      = "/revision"                // after the group
	metaDigest        = "/digest"
)

// announce adds an event for what differs between the stored status and the result of an attempt: a
// new artifact, the end of a failure. It adds each failure; the outbox sends a repeated one once a
// day. A source that waits for another one has no event.
func (c *Controller) announce(ctx context.Context, a *attempt, stored *unstructured.Unstructured, failed *Failure) error {
	list, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	before := func(kind string) any {
		_, found := api.FindCondition(list, kind)
		return found["status"]
	}
	if failed != nil {
		if failed.Wait > 0 && !failed.Stalled {
			return nil
		}
		return c.emit(ctx, a, stored, "", notify.Error, failed.Reason, failed.Err.Error(), a.artifact)
	}
	recovered := before(SourceVerified) == "False" || strings.HasPrefix(a.memory.emitted, notify.Error) ||
		slices.ContainsFunc(failures, func(kind string) bool { return before(kind) == "True" })
	digest, _, _ := unstructured.NestedString(stored.Object, "status", "artifact", "digest")
	switch {
	case digest != a.artifact.Digest:
		reason, _ := c.summary(a.artifact)
		if reason == reasonSucceeded {
			reason = reasonNewArtifact
		}
		return c.emit(ctx, a, stored, "", notify.Info, reason, a.upstream.Event(a.artifact, false), a.artifact)
	case recovered:
		return c.emit(ctx, a, stored, "", notify.Info, reasonSucceeded, a.upstream.Event(a.artifact, true), a.artifact)
	}
	return nil
}

// emit adds an event to the outbox, except an Info event without a topic that repeats the last one.
func (c *Controller) emit(
	ctx context.Context, a *attempt, obj *unstructured.Unstructured, topic, severity, reason, message string, about artifact.Artifact,
) error {
	key := severity + " " + reason + " " + about.Digest
	known := topic == "" && a.memory.emitted == key
	if known && severity != notify.Error {
		return nil
	}
	if c.o.Observe != nil && !known {
		level := map[string]string{notify.Info: "info", notify.Error: "warn"}[severity]
		c.o.Observe(reconcile.Event{At: time.Now(), Level: level, Namespace: a.key.Namespace, Repository: a.key.Name, Text: reason + ": " + message})
	}
	if c.o.Outbox != nil {
		e := notify.Event{Kind: c.kind.Kind, APIVersion: c.kind.APIVersion(), Namespace: a.key.Namespace, Name: a.key.Name,
			UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion(), Topic: topic, Severity: severity, Reason: reason,
			Message: text.WithoutLocalPorts(message), Time: c.o.Now(), Metadata: map[string]string{}}
		if about.Digest != "" {
			e.Metadata[c.kind.Group+metaRevision] = about.Revision
			e.Metadata[c.kind.Group+metaDigest] = about.Digest
		}
		for name, value := range obj.GetAnnotations() {
			if strings.HasPrefix(name, annoEvent) {
				e.Metadata[name] = value
			}
		}
		if err := c.o.Outbox.Add(ctx, e); err != nil {
			if topic == "" {
				a.memory.emitted = notify.Error // so that the next success is announced as the recovery
			}
			return err
		}
	}
	if topic == "" {
		a.memory.emitted = key
	}
	return nil
}

// note is emit for events that are dropped, with a line in the log, when the outbox cannot be
// written.
func (c *Controller) note(ctx context.Context, a *attempt, topic, severity, reason, message string, about artifact.Artifact) {
	if err := c.emit(ctx, a, a.obj, topic, severity, reason, message, about); err != nil {
		c.o.Logger.Error("notification not kept", "name", a.key.Name, "namespace", a.key.Namespace, "err", err)
	}
}

// Deleted is the event of a source that is gone, which ends its failure.
func Deleted(kind api.Kind, k reconcile.Key, topic string) notify.Event {
	return notify.Event{Kind: kind.Kind, APIVersion: kind.APIVersion(), Namespace: k.Namespace, Name: k.Name,
		Topic: topic, Severity: notify.Info, Reason: "Deleted", Message: "the source is gone", Quiet: true}
}
