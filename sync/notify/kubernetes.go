package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/kube"
	"limpet/sync/netx"
)

// Kubernetes returns the target that records events as Events of their objects on an API.
func Kubernetes(client *kube.Client) *Target {
	return &Target{Name: "kubernetes", id: "kubernetes", client: client}
}

// maxName is how much of the name of an object is in that of its Events, which has 17 bytes more and may have 253.
const maxName = 236

// record creates an Event, or counts up that of the same failure. Where Events are not served or not allowed that is logged
// once, and the event is lost.
func (t *Target) record(ctx context.Context, log *slog.Logger, e *Event) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	sum := sha256.Sum256([]byte(e.object() + "\x00" + e.Reason + "\x00" + e.Message))
	name := strings.TrimRight(e.Name[:min(len(e.Name), maxName)], "-.") + "." + hex.EncodeToString(sum[:8])
	at := e.Time.UTC().Format(time.RFC3339)
	events := t.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(cmp.Or(e.Namespace, "default"))
	id := map[string]any{"annotations": map[string]any{"limpet/event-id": e.ID}}
	meta := map[string]any{"name": name, "annotations": id["annotations"]}
	_, err := events.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Event", "metadata": meta,
		"involvedObject": e.reference(), "reason": e.Reason, "message": e.Message[:min(len(e.Message), 1024)],
		"type": map[string]string{Error: "Warning", Info: "Normal"}[e.Severity], "source": map[string]any{"component": component},
		"reportingComponent": component, "firstTimestamp": at, "lastTimestamp": at, "count": int64(1)}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *unstructured.Unstructured
		if old, err = events.Get(ctx, name, metav1.GetOptions{}); err == nil && old.GetAnnotations()["limpet/event-id"] != e.ID {
			count, _, _ := unstructured.NestedInt64(old.Object, "count")
			patch, _ := json.Marshal(map[string]any{"metadata": id, "count": count + 1, "lastTimestamp": at}) // plain values
			_, err = events.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		t.refused.Do(func() { log.Warn("Kubernetes Events are not recorded: not served or not allowed", "err", err) })
		return nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &netx.Error{Kind: netx.Refused, Op: "record Event", Err: err}
	}
	return err
}
