package repos

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/api/patch"
	"limpet/sync/auth"
)

// Ages of a health check. Source: Grafana's repository controller.
const (
	healthyFor      = 5 * time.Minute  // a check that went well is good for so long
	unhealthyFor    = time.Minute      // the next try after one that did not
	fresh           = 30 * time.Second // a check that went well is not written again within
	webhookCooldown = time.Minute      // the next try after a webhook could not be made
)

// age returns the time since a stamp of the server in milliseconds. A stamp of the future
// comes from a clock that was wrong, and is as old as can be.
func age(stamp int64, now time.Time) time.Duration {
	d := now.Sub(time.UnixMilli(stamp))
	if d < -unhealthyFor {
		return 1000 * time.Hour
	}
	return d
}

// pauseLeft returns how much of a pause is left that was set in memory. One that is longer
// than any was set by a clock that was wrong; a correction of the clock by less is none.
func pauseLeft(until, now time.Time) time.Duration {
	if left := until.Sub(now); left > 0 && left <= refusedCooldown+unhealthyFor {
		return left
	}
	return 0
}

// window returns how long a check is good for.
func window(h api.HealthState) time.Duration {
	if h.Healthy {
		return healthyFor
	}
	return unhealthyFor
}

// healthDue reports whether a check is due: never made, the spec is another, or it is too old.
func healthDue(h api.HealthState, specChanged bool, now time.Time) bool {
	return h.Checked == 0 || specChanged || age(h.Checked, now) > window(h)
}

// nextHealth returns the health after a check, and whether it is to be written: when it
// is another or when the last one is too old.
func nextHealth(old api.HealthState, result healthResult, now time.Time) (api.HealthState, bool) {
	h := api.HealthState{Healthy: result.ok(), Checked: now.UnixMilli(), Message: result.messages()}
	if !h.Healthy {
		h.Error = "health"
	}
	switch {
	case old.Checked == 0 || old.Error != h.Error || old.Healthy != h.Healthy || !slices.Equal(old.Message, h.Message):
		return h, true
	case h.Healthy && age(old.Checked, now) < fresh:
		return old, false
	}
	return h, age(old.Checked, now) > window(old)
}

// validate checks what can be checked without a request: no token is minted for a Repository that
// breaks the rules.
func validate(_ context.Context, a *attempt) (bool, error) {
	switch {
	case a.due.over || a.due.blocked:
		a.checked, a.health = true, healthResult{code: codeQuota, errors: []api.FieldError{{
			Type: string(field.ErrorTypeForbidden), Detail: a.facts.namespaceQuota().Message}}}
	case a.due.health || a.due.unblock:
		a.checked, a.health = true, invalidResult(admission.Check(a.obj, a.obj))
	}
	return false, nil
}

// healthCheck is the step that prepares the request to the remote, and makes it where a
// check is due. What a person may leave out of the spec is filled in.
type healthCheck struct {
	probes probes
	server server
	meter  Meter
	enter  func(auth.Address) (leave func(), err error) // see Loop.Enter
}

func (c healthCheck) check(ctx context.Context, a *attempt) (bool, error) {
	a.began, a.healthy = a.facts.now, a.facts.repo.Status.Health.Healthy
	if a.checked && !a.health.ok() {
		a.healthy = false
		return false, nil
	}
	if !a.checked && !(a.healthy && (a.due.resync || a.due.token || a.webhook.due != "")) {
		return false, nil
	}
	if block := a.facts.repo.Spec.Block(); block != nil && a.facts.repo.Spec.Type != typeLocal {
		if url, err := auth.ParseAddress(block.URL); err == nil { // else it is refused before any request
			// What is asked for credentials first, such as the API of the same forge, counts as the host.
			if a.leave, err = c.enter(url); err != nil {
				return false, err
			}
		}
	}
	p, err := c.probes.open(ctx, a.key, a.facts.repo)
	if err != nil {
		c.meter.Failed(phaseBuild, false)
		return false, err
	}
	p.access, a.probe = &a.memory.access, p
	if !a.checked {
		return false, nil
	}
	if a.health, err = p.check(ctx, a.obj); err != nil {
		return false, err
	}
	a.healthy = a.health.ok()
	c.meter.Checked(a.healthy, p.took)
	return false, c.completeSpec(ctx, a)
}

// completeSpec writes the branch into a spec that names none.
func (c healthCheck) completeSpec(ctx context.Context, a *attempt) error {
	branch := a.probe.defaultBranch()
	if branch == "" {
		return nil
	}
	unchanged := !a.facts.specChanged()
	ops := append(patch.Guard(a.obj, "spec"), patch.Add("/spec/"+a.facts.repo.Spec.Type+"/branch", branch))
	now, err := c.server.Patch(ctx, a.key, ops)
	if err != nil {
		c.meter.Failed(phaseBranch, false)
		return err
	}
	a.wrote(now)
	a.ownGeneration(now, unchanged)
	return nil
}

// ownGeneration notes a generation that a write of this controller has made, which needs
// no work if the one before did not.
func (a *attempt) ownGeneration(now *unstructured.Unstructured, done bool) {
	generation := now.GetGeneration()
	a.facts.generation, a.memory.generation = generation, generation
	if done {
		a.facts.ownGeneration, a.memory.ownVersion = generation, generation
	}
}

// adoptProbe takes the answer to the request of the interval for a health check where it
// shows what the next check would.
func (a *attempt) adoptProbe() {
	if a.checked || a.probe == nil || !a.probe.asked {
		return
	}
	result := a.probe.health()
	old := a.facts.repo.Status.Health
	switch {
	case !result.ok() && result.permanent():
		a.checked = true
		a.health = result
		a.healthy = false
		a.pull = nil
	case result.ok() && old.Checked > 0 && old.Healthy && result.mirror != mirrorText(old):
		a.checked, a.health = true, result
	}
}

// mirrorText returns the message about a mirror in a health, "" for none.
//
// A Repository whose host is unreachable and which a mirror answers for is healthy: it can be
// pulled. Its health says which mirror serves it and why, and so does an event when that begins and
// when it ends. Nothing is written to a mirror, or decided by it: no push is checked, no webhook
// made, no default branch adopted.
func mirrorText(h api.HealthState) string {
	for _, text := range h.Message {
		if h.Healthy && strings.Contains(text, "from mirror ") {
			return text
		}
	}
	return ""
}
