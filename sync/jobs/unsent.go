package jobs

import (
	"context"
	"sort"
	"strings"
	"time"

	"limpet/state"
)

// Unsent is a job that is done, but whose result the API has not taken yet. The
// result is in the state file; it is sent when the API is back, if the job is
// still ours then.
type Unsent struct {
	UID, Namespace, Name string
	Repository, Action   string
	State                string    // of the result, as history calls it
	Since                time.Time // the end of the work
}

// result is how the work of a job has ended.
type result struct {
	state string // "" = it has not
	at    time.Time
	waits bool // the API did not take it at once
}

// Unsent returns the jobs whose result waits for the API, the oldest first. It is
// safe for concurrent use and does no I/O.
func (c *Controller) Unsent() []Unsent {
	var out []Unsent
	add := func(k state.Claim, r result) {
		if r.waits && r.state != "" {
			out = append(out, Unsent{UID: k.UID, Namespace: k.Namespace, Name: k.Name, Repository: k.Repository, Action: k.Action, State: r.state, Since: r.at})
		}
	}
	c.mu.Lock()
	for _, u := range c.unsettled {
		add(u.claim, u.result)
	}
	held := c.holding()
	c.mu.Unlock()
	for _, h := range held {
		h.mu.Lock()
		add(h.claim, h.result)
		h.mu.Unlock()
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if d := a.Since.Compare(b.Since); d != 0 {
			return d < 0
		}
		return strings.Compare(a.UID, b.UID) < 0
	})
	return out
}

// settled notes how the work has ended.
func (h *held) settled(r result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.result = r
}

// refused notes that the API did not take the result.
func (h *held) refused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.result.waits = true
}

// resultOf reads how the work of a claim has ended that the last process left.
func (c *Controller) resultOf(ctx context.Context, k state.Claim) result {
	if k.Phase != state.PhaseCompleting {
		return result{}
	}
	r := result{at: k.Claimed, waits: true}
	// Without the record the next look at the job finds that out.
	if found, err := c.store.History(ctx, state.Query{UID: k.UID, Limit: 1}); err == nil && len(found) == 1 {
		r.state, r.at = found[0].State, found[0].Finished
	}
	return r
}
