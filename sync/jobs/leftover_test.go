package jobs

import (
	"testing"
	"time"

	"limpet/state"
)

// TestClaimThatCannotBeForgotten: a state file that refuses a write for a while
// keeps no claim of a job that was given back.
func TestClaimThatCannotBeForgotten(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Minute))
		r.job("r1", "j")
		pass(time.Second)
		a.ledger.failing(func(op string) error {
			if op == "complete" || op == "drop" {
				return state.ErrReadOnly
			}
			return nil
		})
		pass(time.Minute)
		if n := len(r.claims()); n != 1 || a.count(EventReleased) != 1 {
			t.Fatalf("%d claims, given back %d times", n, a.count(EventReleased))
		}
		r.model.remove("jobs", "default", "j")
		a.ledger.failing(nil)
		pass(time.Minute)
		if claims := r.claims(); len(claims) != 0 {
			t.Errorf("claims are left: %+v", claims)
		}
	})
}
