package repos

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/patch"
)

// statusWriter is the step that writes what was found, in one patch.
type statusWriter struct {
	reporter reporter
	meter    Meter
	send     func(ctx context.Context, a *attempt) (*unstructured.Unstructured, error) // see secrets
}

func (w statusWriter) write(ctx context.Context, a *attempt) (bool, error) {
	f, before := &a.facts, a.facts.repo.Status.Health
	if f.quotaChanged() {
		a.change.set(map[string]any{"maxRepositories": f.quota.Repositories, "maxResourcesPerRepository": f.quota.Resources}, "quota")
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
			return false, err
		}
		a.wrote(now)
	}
	if a.checked {
		w.reportHealth(a, before)
	}
	if now := a.facts.sourceAnnotations(); !a.facts.jobExists {
		a.memory.annotations = &now
	}
	if a.due.resync && a.probe != nil && a.probe.asked {
		a.memory.askedAt = a.began
	}
	return false, nil
}

// reportHealth reports a Repository that becomes unhealthy, has another cause, becomes
// healthy again, or is served by another mirror.
func (w statusWriter) reportHealth(a *attempt, before api.HealthState) {
	result, log := a.health, w.reporter.logOf(a)
	if result.ok() && result.mirror != mirrorText(before) {
		if result.mirror != "" {
			w.reporter.report(a.key, "warn", result.mirror)
			log.Warn("a mirror serves the repository", "mirror", result.mirror)
		} else {
			w.reporter.report(a.key, "info", "its own host answers again, no mirror is needed")
			log.Info("host of the repository answers again")
		}
		if before.Healthy {
			return
		}
	}
	switch {
	case result.ok() && before.Checked > 0 && !before.Healthy:
		w.reporter.report(a.key, "info", "healthy again")
		log.Info("repository is healthy again")
	case !result.ok() && (before.Healthy || before.Checked == 0 || !slices.Equal(before.Message, result.messages())):
		ready := result.ready()
		w.reporter.report(a.key, "warn", "unhealthy: "+ready.Message)
		log.Warn("repository is unhealthy", "reason", ready.Reason, "err", ready.Message)
	}
}

// change gathers what is to be written to one object, as one patch for the object as it was
// seen: it is refused when that has changed. What is the same already is not written.
type change struct {
	obj      *unstructured.Unstructured
	now      time.Time // of the server
	ops      []patch.Op
	secrets  bool // some are of secure values
	observed bool // one is of the generation
}

// set writes a member of the status. "add" replaces what is there, and needs nothing to be there
// but the parent.
func (c *change) set(value any, path string) {
	c.ops = append(c.ops, patch.Add("/status/"+path, value))
}

// secret gives the server a value to seal; "" removes the one of that name.
func (c *change) secret(name, value string) {
	if _, there := c.obj.Object["secure"].(map[string]any); !there && !c.secrets {
		c.ops = append(c.ops, patch.Add("/secure", map[string]any{}))
	}
	c.secrets = true
	member := map[string]any{"create": value}
	if value == "" {
		member = map[string]any{"remove": true}
	}
	c.ops = append(c.ops, patch.Add("/secure/"+name, member))
}

// dropped reports whether a server has not stored a value that it was given.
func (c *change) dropped(now *unstructured.Unstructured) bool {
	for _, o := range c.ops {
		name, is := strings.CutPrefix(o.Path, "/secure/")
		if !is || o.Value.(map[string]any)["create"] == nil {
			continue
		}
		if _, kept, _ := unstructured.NestedFieldNoCopy(now.Object, "secure", name); !kept {
			return true
		}
	}
	return false
}

// observe sets the generation whose spec was dealt with.
func (c *change) observe(generation int64) {
	c.observed = true
	c.set(generation, "observedGeneration")
}

// patch returns what was gathered, nil when there is nothing to write.
func (c *change) patch() []patch.Op {
	if len(c.ops) == 0 {
		return nil
	}
	return append(patch.Guard(c.obj, "status"), c.ops...)
}

// conditions sets conditions among those that others own, as one list. One without a status is
// removed.
func (c *change) conditions(wanted ...api.Condition) {
	if list, changed := api.SetConditions(c.obj, c.now, wanted...); changed {
		c.set(list, "conditions")
	}
}

func (c *change) fieldErrors(stored, want []api.FieldError) {
	if !equality.Semantic.DeepEqual(stored, want) { // none and an empty list are equal
		c.set(append([]api.FieldError{}, want...), "fieldErrors")
	}
}

// sync sets what a controller writes about pulls; the rest is a pull's own.
func (c *change) sync(status api.SyncStatus, healthy bool, pull *pullRequest) {
	reported := len(status.Message) > 0 && status.Message[0] == api.UnhealthyText
	if _, there, _ := unstructured.NestedMap(c.obj.Object, "status", "sync"); !there && (pull != nil || !healthy) {
		c.set(map[string]any{"state": "", "message": []any{}}, "sync")
	}
	if pull != nil {
		c.set(api.StatePending, "sync/state")
		c.set(int64(0), "sync/started")
	}
	switch {
	case healthy && reported:
		c.set([]any{}, "sync/message")
	case !healthy && !reported:
		c.set(api.StateError, "sync/state")
		c.set([]any{api.UnhealthyText}, "sync/message")
	}
}
