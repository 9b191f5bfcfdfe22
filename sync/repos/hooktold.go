package repos

import (
	"errors"

	"limpet/sync/api"
	"limpet/sync/forge"
)

// conditionWebhook tells whether the host of a Repository announces changes. It is
// limpet's own, as its prefix says: who does not know it leaves it in place, and
// neither Ready nor status.health depend on it. Grafana tells of a webhook that it
// cannot make by health.error "hook", which stops the pulls of the Repository;
// here they go on at the interval, so that would be a lie.
const conditionWebhook = "limpet/Webhook"

// hookCondition tells how an attempt has ended; nil = the webhook is there. left
// says that it was to be removed. Where a host may put its failure in other words
// each time, the words are ours: what is told again is not written again.
func hookCondition(err error, left bool) api.Condition {
	c := api.Condition{Type: conditionWebhook, Status: "False"}
	text := ""
	switch kind := forge.KindOf(err); {
	case err == nil:
		return api.Condition{Type: conditionWebhook, Status: "True", Reason: "Registered", Message: "the host tells of changes"}
	case errors.Is(err, forge.ErrNone):
		c.Reason, text = "NoHost", "no webhooks are known at this host"
	case kind == forge.RateLimited:
		c.Reason, text = forge.ReasonRateLimited, "the host gets too many requests"
	case kind == forge.Unavailable || kind == forge.Protocol || kind == forge.Cancelled:
		c.Reason, text = forge.ReasonServiceUnavailable, "the host does not answer as it should"
	case kind == forge.Unauthorized || kind == forge.Forbidden || kind == forge.NotFound:
		c.Reason, text = "NotAllowed", hookText(err)
	default:
		c.Reason, text = "NotTaken", hookText(err)
	}
	if left {
		c.Message = "the webhook is still at the host: " + text
	} else {
		c.Message = text + "; changes are found at the interval"
	}
	return c
}

func hookText(err error) string {
	if e, ok := errors.AsType[*forge.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// hookTold is the condition to write, false for none: nothing was done about the
// webhook, and one is wanted.
func (r *reconciling) hookTold() (api.Condition, bool) {
	switch {
	case r.hookTried != nil:
		return *r.hookTried, true
	case r.hookURL == "":
		return api.Condition{Type: conditionWebhook}, true
	}
	return api.Condition{}, false
}

// tried notes how an attempt has ended.
func (r *reconciling) tried(err error) {
	c := hookCondition(err, r.hookURL == "")
	r.hookTried = &c
}
