package repos

import (
	"slices"
	"time"

	"limpet/sync/api"
)

// Ages of a health check. Source: Grafana's repository controller.
const (
	healthyFor   = 5 * time.Minute  // a check that went well is good for so long
	unhealthyFor = time.Minute      // the next try after one that did not
	fresh        = 30 * time.Second // a check that went well is not noted again within
	hookCooldown = time.Minute      // the next try after a webhook could not be made
)

// What a Repository that is not in order suffers from, in status.health.error.
const (
	errorHealth = "health"
	errorHook   = "hook"
)

// age is the time since a stamp of the server in milliseconds. A stamp of the
// future comes from a clock that was wrong, and is as old as can be.
func age(stamp int64, now time.Time) time.Duration {
	d := now.Sub(time.UnixMilli(stamp))
	if d < -unhealthyFor {
		return 1000 * time.Hour
	}
	return d
}

// window is how long a check is good for.
func window(h api.HealthState) time.Duration {
	if h.Healthy {
		return healthyFor
	}
	return unhealthyFor
}

// healthDue says that a check is due: never made, the spec is another, or it is
// too old. Where another controller tells that a webhook could not
// be made, the check comes with the next try at the webhook, by whoever looks after
// it now.
func healthDue(h api.HealthState, specChanged bool, now time.Time) bool {
	switch {
	case h.Checked == 0 || specChanged:
		return true
	case h.Error == errorHook:
		return age(h.Checked, now) > hookCooldown
	}
	return age(h.Checked, now) > window(h)
}

// noted is the health to write after a check, and whether it is to be written:
// when it is another or when the last one is too old.
func noted(old api.HealthState, found finding, now time.Time) (api.HealthState, bool) {
	h := api.HealthState{Healthy: found.ok(), Checked: now.UnixMilli(), Message: found.messages()}
	if !h.Healthy {
		h.Error = errorHealth
	}
	same := old.Checked > 0 && old.Error != errorHook && old.Healthy == h.Healthy && slices.Equal(old.Message, h.Message)
	switch {
	case !same:
		return h, true
	case h.Healthy && age(old.Checked, now) < fresh:
		return old, false
	}
	return h, age(old.Checked, now) > window(old)
}

// wireHealth is the health as it is stored.
func wireHealth(h api.HealthState) map[string]any {
	out := map[string]any{"healthy": h.Healthy, "checked": h.Checked, "message": list(h.Message)}
	if h.Error != "" {
		out["error"] = h.Error
	}
	return out
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}
