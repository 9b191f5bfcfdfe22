package state

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"limpet/state/frame"
)

// Phase is how far a claim has come.
type Phase string

// Phases in their order. A claim is written as intent before the API is asked, so that a crash in
// between leaves a trace.
const (
	PhaseIntent     Phase = "intent"
	PhaseHeld       Phase = "held"
	PhaseCompleting Phase = "completing"
)

// PhaseResting is that of a job that was given back, for another attempt or for another agent. It
// is no claim any more and has no token; it keeps the mark for the case that this agent gets the
// job again, and what there is to tell of the attempts in case that never happens.
const PhaseResting Phase = "resting"

// Claim is a job that this agent wants, holds or completes. Its identity is the job's UID and the
// owner token, never the name: names of jobs are used again.
type Claim struct {
	UID             string          `json:"uid"`
	Namespace       string          `json:"namespace"`
	Name            string          `json:"name"`
	Repository      string          `json:"repository,omitempty"`
	Action          string          `json:"action,omitempty"`
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Token           string          `json:"token,omitempty"`
	Attempt         int             `json:"attempt,omitempty"`
	Phase           Phase           `json:"phase,omitempty"`
	Created         time.Time       `json:"created,omitzero"`
	Claimed         time.Time       `json:"claimed,omitzero"`
	Began           time.Time       `json:"began,omitzero"`   // the present attempt, where that was later; by the server's clock
	Mark            json.RawMessage `json:"mark,omitempty"`   // where a resumed worker goes on
	Status          json.RawMessage `json:"status,omitempty"` // last known status of the job
	Spec            json.RawMessage `json:"spec,omitempty"`   // of the job, during backoff

	Attempts []Attempt `json:"attempts,omitempty"` // during backoff: those that ended without a result
	Doomed   bool      `json:"doomed,omitempty"`   // taken from an agent that has died, to be failed and not to be run
}

// PutClaim inserts or replaces the claim of that UID.
func (s *Store) PutClaim(ctx context.Context, c Claim) error {
	if c.UID == "" {
		return fmt.Errorf("write claim of %s/%s: no uid", c.Namespace, c.Name)
	}
	return s.write(ctx, func(t *txn) error { return t.putClaim(c) })
}

// Claims returns all claims, ordered by UID.
func (s *Store) Claims(ctx context.Context) ([]Claim, error) {
	return read(ctx, s, func(v view) (out []Claim, err error) {
		err = v.scanVerified(ctx, frame.Claims, func(_ []byte, f frame.Frame) error {
			var c Claim
			err := decodeJSON(f, &c)
			out = append(out, c)
			return err
		})
		return out, err
	})
}

// Claim returns the claim of a job, or ErrNotFound.
func (s *Store) Claim(ctx context.Context, uid string) (Claim, error) {
	return read(ctx, s, func(v view) (Claim, error) { return v.claim(uid) })
}

// PutMark replaces the progress mark of a claim. ErrNotFound when the claim is gone.
func (s *Store) PutMark(ctx context.Context, uid string, mark json.RawMessage) error {
	return s.write(ctx, func(t *txn) error {
		c, err := t.claim(uid)
		if err != nil {
			return err
		}
		c.Mark = mark
		return t.putClaim(c)
	})
}

// DropClaim forgets a claim; one that is not there is no error.
func (s *Store) DropClaim(ctx context.Context, uid string) error {
	return s.write(ctx, func(t *txn) error {
		return t.remove(frame.Claims, []byte(uid))
	})
}

// Complete writes the history record of a claimed job and marks the claim as completing, in one
// transaction. ErrNotFound, and nothing written, when the claim is gone.
func (s *Store) Complete(ctx context.Context, uid string, r Record) error {
	return s.write(ctx, func(t *txn) error {
		c, err := t.claim(uid)
		if err != nil {
			return err
		}
		r.UID = uid
		if err := t.putRecord(r, true); err != nil {
			return err
		}
		c.Phase = PhaseCompleting
		return t.putClaim(c)
	})
}

// EndClaim removes a claim and notes in its record what became of the HistoricJob ("posted",
// "unavailable", "skipped" or ""), in one transaction. With queue the record is also added to
// HistoryQueue. A claim or record that is not there is no error.
func (s *Store) EndClaim(ctx context.Context, uid, historicJob string, queue bool) error {
	return s.write(ctx, func(t *txn) error {
		r, _, ok, err := t.record(uid)
		if err != nil {
			return err
		}
		if ok && r.HistoricJob != historicJob && historicJob != "" {
			r.HistoricJob = historicJob
			if err := t.putRecord(r, true); err != nil {
				return err
			}
		}
		if ok && queue {
			if err := t.enqueueRecord(r); err != nil {
				return err
			}
		}
		return t.remove(frame.Claims, []byte(uid))
	})
}

// putClaim inserts or replaces the claim of c's job. Of another claim of that job nothing stays.
func (t *txn) putClaim(c Claim) error {
	var old []byte
	// A damaged one is replaced as if there were none: a job that runs must be able to go on.
	if f, ok, err := t.get(frame.Claims, []byte(c.UID)); ok && err == nil {
		var was Claim
		if decodeJSON(f, &was) == nil && was.Token == c.Token {
			old = f.Body
		}
	}
	body, err := encodeOver(frame.Claims, c, old, claimFields)
	if err != nil {
		return err
	}
	return t.put(frame.Claims, []byte(c.UID), body)
}

func (v view) claim(uid string) (Claim, error) {
	f, ok, err := v.get(frame.Claims, []byte(uid))
	if err != nil {
		return Claim{}, err
	}
	if !ok {
		return Claim{}, fmt.Errorf("claim of job %s: %w", uid, ErrNotFound)
	}
	var c Claim
	return c, decodeJSON(f, &c)
}

// decodeJSON decodes a body. An error here means that the record was written wrong, for the
// checksum was right.
func decodeJSON(f frame.Frame, into any) error {
	if err := json.Unmarshal(f.Body, into); err != nil {
		return frame.Corrupt("record is not what was written: %s", err)
	}
	return nil
}
