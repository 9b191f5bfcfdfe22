package agent

import (
	"context"
	"fmt"
	"strings"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/notify"
)

// notifyJob tells how a job has ended. The event is in the state file before the driver goes on.
func (a *Agent) notifyJob(e jobs.Event) {
	if e.Type != jobs.EventCompleted || e.State == "" || e.State == "cancelled" {
		return
	}
	action := strings.ToUpper(e.Action[:1]) + e.Action[1:]
	n := notify.Event{Kind: "Repository", Namespace: e.Namespace, Name: e.Repository, APIVersion: api.Repositories.GroupVersion().String(),
		Topic: e.Action, Severity: notify.Info, Reason: action + "Succeeded", Message: e.Text, Time: e.At,
		Metadata: map[string]string{"limpet/job": e.Job, "limpet/job-uid": e.UID}}
	if e.State == api.StateError || e.State == "dead" {
		n.Severity, n.Reason = notify.Error, action+"Failed"
	}
	a.addEvent(n)
}

// addEvent adds an event to the outbox; one that cannot be kept is in the log alone.
func (a *Agent) addEvent(e notify.Event) {
	if err := a.outbox.Add(context.Background(), e); err != nil {
		a.cfg.Logger.Error("notification not kept", "object", fmt.Sprint(e.Namespace, "/", e.Name), "reason", e.Reason, "err", err)
	}
}
