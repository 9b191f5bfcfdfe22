package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	limpethooks "limpet/sync/webhook"
)

// webhooks counts webhooks.
type webhooks struct {
	requests, events *prometheus.CounterVec
}

func newWebhooks(r prometheus.Registerer) webhooks {
	h := webhooks{
		requests: counter(r, "limpet_webhook_requests_total", "Requests to the webhook listener by what became of them.", "outcome"),
		events:   counter(r, "grafana_provisioning_webhook_events_processed_total", "Authentic webhook events, and the action of the job that was queued.", "job"),
	}
	for _, outcome := range limpethooks.Outcomes {
		h.requests.WithLabelValues(outcome)
	}
	for _, job := range []string{"pull", "pr", "none"} {
		h.events.WithLabelValues(job)
	}
	return h
}

// WebhookRequest counts a request by its outcome, one of hooks.Outcomes.
func (h *webhooks) WebhookRequest(outcome string) { h.requests.WithLabelValues(outcome).Inc() }

// WebhookEvent counts an authentic event by the action of the job that it has led
// to, or "none".
func (h *webhooks) WebhookEvent(job string) { h.events.WithLabelValues(job).Inc() }
