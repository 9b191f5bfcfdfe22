package repos

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// statusWriter is the step that writes what was found, in one patch.
type statusWriter struct {
	reporter
	meter Meter
	send  func(ctx context.Context, a *attempt) (*unstructured.Unstructured, error) // see secrets
}

func (w statusWriter) write(ctx context.Context, a *attempt) (*Result, error) {
	f, before := &a.facts, a.facts.repo.Status.Health
	if f.quotaChanged() {
		a.change.quota(f.quota)
	}
	wanted := []api.Condition{f.namespaceQuota()}
	if a.checked {
		if h, due := nextHealth(before, a.health, f.now); due {
			a.change.set(h, "health")
		}
		a.change.fieldErrors(f.repo.Status.FieldErrors, a.health.errors)
		wanted = append(wanted, a.health.ready())
	}
	waits := a.pull != nil && f.jobExists
	if f.generation != f.repo.Status.ObservedGeneration && !waits {
		a.change.observe(f.generation)
	}
	for _, of := range []func() (api.Condition, bool){f.resourceQuota, a.webhook.condition, a.revisionCondition} {
		if condition, ok := of(); ok {
			wanted = append(wanted, condition)
		}
	}
	a.change.conditions(wanted...)
	if waits {
		a.memory.pullOwed = a.memory.pullOwed || !a.pull.incremental
		a.pull = nil
	}
	if !f.jobExists { // the status of a pull that runs is its own
		a.change.sync(f.repo.Status.Sync, a.healthy, a.pull)
	}
	if a.change.patch() != nil {
		now, err := w.send(ctx, a)
		if err != nil {
			w.meter.Failed(phaseStatus, false)
			return nil, err
		}
		a.wrote(now)
	}
	if a.checked {
		w.reportHealth(a, before)
	}
	a.annotationsDone()
	if a.due.resync && a.probe != nil && a.probe.asked {
		a.memory.askedAt = a.began
	}
	return nil, nil
}

// reportHealth reports a Repository that becomes unhealthy, has another cause, becomes
// healthy again, or is served by another mirror.
func (w statusWriter) reportHealth(a *attempt, before api.HealthState) {
	result, log := a.health, w.logOf(a)
	if result.ok() && result.mirror != mirrorText(before) {
		if result.mirror != "" {
			w.report(a.key, "warn", result.mirror)
			log.Warn("a mirror serves the repository", "mirror", result.mirror)
		} else {
			w.report(a.key, "info", "its own host answers again, no mirror is needed")
			log.Info("host of the repository answers again")
		}
		if before.Healthy {
			return
		}
	}
	switch {
	case result.ok() && before.Checked > 0 && !before.Healthy:
		w.report(a.key, "info", "healthy again")
		log.Info("repository is healthy again")
	case !result.ok() && (before.Healthy || before.Checked == 0 || !slices.Equal(before.Message, result.messages())):
		ready := result.ready()
		w.report(a.key, "warn", "unhealthy: "+ready.Message)
		log.Warn("repository is unhealthy", "reason", ready.Reason, "err", ready.Message)
	}
}
