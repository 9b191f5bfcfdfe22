package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
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

// component is the name of this program in payloads.
const component = "limpet"

// form is how an event is written for a target; "" is that of programs, which get what webhooks
// get.
type form string

const (
	webhook      form = "webhook"
	slack        form = "slack"
	alertmanager form = "alertmanager"
)

// payloads make what is sent of an event.
var payloads = map[form]func(*Event) any{"": fluxOf, webhook: fluxOf, slack: slackOf, alertmanager: alertsOf}

// fluxOf returns an event as Flux sends it. Source: event.toolkit.fluxcd.io/v1beta1.
func fluxOf(e *Event) any {
	metadata := map[string]string{"limpet/event-id": e.ID, "limpet/recovered": strings.Join(e.Recovered, ",")}
	maps.Copy(metadata, e.Metadata)
	maps.DeleteFunc(metadata, func(_, value string) bool { return value == "" })
	return map[string]any{"involvedObject": e.reference(), "severity": e.Severity, "timestamp": e.Time.UTC().Format(time.RFC3339),
		"message": e.Message, "reason": e.Reason, "metadata": metadata, "reportingController": component, "reportingInstance": hostName()}
}

func (e *Event) reference() map[string]any {
	ref := map[string]any{"kind": e.Kind, "namespace": e.Namespace, "name": e.Name, "uid": e.UID, "apiVersion": e.APIVersion,
		"resourceVersion": e.ResourceVersion}
	maps.DeleteFunc(ref, func(_ string, value any) bool { return value == "" })
	return ref
}

func hostName() string {
	name, _ := os.Hostname() // "" where it is not known
	return name
}

// slackText escapes what has a meaning in the text of Slack. Source: Slack's "Escaping text".
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slackOf returns the payload of an incoming webhook of Slack.
func slackOf(e *Event) any {
	color := map[string]string{Error: "danger", Info: "good"}[e.Severity]
	return map[string]any{"username": component, "attachments": []any{map[string]any{"color": color, "author_name": e.subject(),
		"title": e.Reason, "text": slackText.Replace(e.Message), "footer": component + " on " + hostName(), "ts": e.Time.Unix()}}}
}

// subject names the object for people.
func (e *Event) subject() string {
	return strings.ToLower(e.Kind) + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
}

// alertLasts is how long an alert fires unless it is sent again, as a failure is after repeatAfter.
const alertLasts = repeatAfter + 2*time.Hour

// alertsOf returns the alert of a failure, or the ends of the alerts of the failures that an event
// ends. Source: the API v2 of Alertmanager, postableAlert.
func alertsOf(e *Event) any {
	of := func(reason string, ends time.Time) map[string]any {
		labels := map[string]string{"alertname": "Limpet" + reason, "severity": Error, "reason": reason, "kind": e.Kind, "name": e.Name,
			"namespace": e.Namespace, "topic": e.Topic, "instance": hostName(), "reportingcontroller": component}
		maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
		return map[string]any{"labels": labels, "endsAt": ends.UTC().Format(time.RFC3339),
			"annotations": map[string]string{"summary": e.subject() + ": " + cmp.Or(e.Reason, reason), "message": e.Message}}
	}
	if e.Severity == Error {
		a := of(e.Reason, e.Time.Add(alertLasts))
		a["startsAt"] = e.Time.UTC().Format(time.RFC3339)
		return []any{a}
	}
	out := []any{}
	for _, reason := range e.Recovered {
		out = append(out, of(reason, e.Time))
	}
	return out
}

// Kubernetes returns the target that records events as Events of their objects on an API.
func Kubernetes(client *kube.Client) *Target {
	return &Target{Name: "kubernetes", id: "kubernetes", client: client}
}

// maxName is how much of the name of an object is in that of its Events, which has 17 bytes more
// and may have 253.
const maxName = 236

// record creates an Event, or counts up that of the same failure. Where Events are not served or
// not allowed that is logged once, and the event is lost.
func (t *Target) record(ctx context.Context, log *slog.Logger, e *Event) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	sum := sha256.Sum256([]byte(e.object() + "\x00" + e.Reason + "\x00" + e.Message))
	name := strings.TrimRight(e.Name[:min(len(e.Name), maxName)], "-.") + "." + hex.EncodeToString(sum[:8])
	at := e.Time.UTC().Format(time.RFC3339)
	events := t.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(cmp.Or(e.Namespace, "default"))
	notes := map[string]any{"limpet/event-id": e.ID}
	for key, value := range e.Metadata { // as Flux annotates its Events
		if strings.Contains(key, "/") {
			notes[key] = value
		}
	}
	id := map[string]any{"annotations": notes}
	meta := map[string]any{"name": name, "annotations": notes}
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
