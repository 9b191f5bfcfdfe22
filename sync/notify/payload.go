package notify

import (
	"cmp"
	"maps"
	"os"
	"strings"
	"time"
)

// component is the name of this program in payloads.
const component = "limpet"

// form is how an event is written for a target; "" is that of programs, which get what webhooks get.
type form string

const (
	webhook      form = "webhook"
	slack        form = "slack"
	alertmanager form = "alertmanager"
)

// payload returns what is sent of an event.
func (f form) payload(e *Event) any {
	switch f {
	case slack:
		return slackOf(e)
	case alertmanager:
		return alertsOf(e)
	}
	return fluxOf(e)
}

// fluxEvent is an event as Flux sends it. Source: event.toolkit.fluxcd.io/v1beta1.
type fluxEvent struct {
	InvolvedObject struct {
		Kind            string `json:"kind,omitempty"`
		Namespace       string `json:"namespace,omitempty"`
		Name            string `json:"name,omitempty"`
		UID             string `json:"uid,omitempty"`
		APIVersion      string `json:"apiVersion,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"involvedObject"`
	Severity            string            `json:"severity"`
	Timestamp           string            `json:"timestamp"`
	Message             string            `json:"message"`
	Reason              string            `json:"reason"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	ReportingController string            `json:"reportingController"`
	ReportingInstance   string            `json:"reportingInstance,omitempty"`
}

func fluxOf(e *Event) *fluxEvent {
	p := &fluxEvent{Severity: e.Severity, Timestamp: e.Time.UTC().Format(time.RFC3339), Message: e.Message, Reason: e.Reason,
		Metadata: map[string]string{"limpet/event-id": e.ID}, ReportingController: component}
	p.ReportingInstance, _ = os.Hostname()
	o := &p.InvolvedObject
	o.Kind, o.Namespace, o.Name, o.UID, o.APIVersion, o.ResourceVersion = e.Kind, e.Namespace, e.Name, e.UID, e.APIVersion, e.ResourceVersion
	maps.Copy(p.Metadata, e.Metadata)
	if len(e.Recovered) > 0 {
		p.Metadata["limpet/recovered"] = strings.Join(e.Recovered, ",")
	}
	return p
}

// slackMessage is the payload of an incoming webhook of Slack.
type slackMessage struct {
	Username    string            `json:"username"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Color  string `json:"color"`
	Author string `json:"author_name"`
	Title  string `json:"title"`
	Text   string `json:"text"`
	Footer string `json:"footer"`
	At     int64  `json:"ts"`
}

// slackText escapes what has a meaning in the text of Slack. Source: Slack's "Escaping text".
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackOf(e *Event) *slackMessage {
	host, _ := os.Hostname()
	a := slackAttachment{Color: "good", Author: e.subject(), Title: e.Reason, Text: slackText.Replace(e.Message), Footer: component + " on " + host,
		At: e.Time.Unix()}
	if e.Severity == Error {
		a.Color = "danger"
	}
	return &slackMessage{component, []slackAttachment{a}}
}

// subject names the object for people.
func (e *Event) subject() string {
	return strings.ToLower(e.Kind) + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
}

// alert is an alert of Alertmanager. Source: its API v2, postableAlert.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    string            `json:"startsAt,omitempty"`
	EndsAt      string            `json:"endsAt"`
}

// alertLasts is how long an alert fires unless it is told again, which a failure is after tellAgain.
const alertLasts = tellAgain + 2*time.Hour

// alertsOf returns the alert of a failure, or the ends of the alerts of the failures that an event ends.
func alertsOf(e *Event) (out []alert) {
	host, _ := os.Hostname()
	of := func(reason string) alert {
		labels := map[string]string{"alertname": "Limpet" + reason, "severity": Error, "reason": reason, "kind": e.Kind, "name": e.Name,
			"namespace": e.Namespace, "topic": e.Topic, "instance": host, "reportingcontroller": component}
		maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
		return alert{Labels: labels, Annotations: map[string]string{"summary": e.subject() + ": " + cmp.Or(e.Reason, reason), "message": e.Message}}
	}
	if e.Severity == Error {
		a := of(e.Reason)
		a.StartsAt, a.EndsAt = e.Time.UTC().Format(time.RFC3339), e.Time.Add(alertLasts).UTC().Format(time.RFC3339)
		return []alert{a}
	}
	for _, reason := range e.Recovered {
		a := of(reason)
		a.EndsAt = e.Time.UTC().Format(time.RFC3339)
		out = append(out, a)
	}
	return out
}
