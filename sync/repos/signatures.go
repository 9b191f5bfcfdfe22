package repos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/worker"
)

// A Repository that asks for signatures has what was pulled verified anew when the keys,
// the mode or the principals are not those that it was verified by, also when its commit
// is the same; and when the tag was made anew. A pull does it, and is queued once: it may
// be run by another agent, whose keys are others and which says so in the status. Then
// this controller verifies with its own keys what is in place, once for each object, and
// writes only a failure. So agents with different keys do not queue pulls in turn, and of
// several results the failure stays.

// Trust is what is asked of signatures in a Repository.
type Trust interface {
	// Asked returns a text that changes with what is asked and with the keys, "" for
	// nothing, and whether a tag object has to be signed.
	Asked(ctx context.Context, namespace, name string, repo api.Repository) (digest string, tag bool, err error)
	// Judge verifies a ref, and returns a condition; nil where that cannot be done here. It
	// fetches what it needs.
	Judge(ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref) (*api.Condition, error)
}

// Verification is the Trust of the signers of a worker.
type Verification struct {
	*worker.Signers
	Git worker.Git
	Now func() time.Time // of the server
}

// Judge implements Trust.
func (v Verification) Judge(
	ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref,
) (*api.Condition, error) {
	return v.Signers.Judge(ctx, v.Git, namespace, name, repo, remote, ref, v.Now())
}

// verified is what a controller stores about its own part in that.
type verified struct {
	UID    string `json:"uid"`
	Trust  string `json:"trust"`  // by which a pull was queued; trustNothing for one that asks for nothing
	Object string `json:"object"` // that was verified with it since, besides the pull
}

const trustNothing = "-"

// VerifiedKey returns where that is among the facts of the state file.
func VerifiedKey(k Key) string { return "judged/" + k.Namespace + "/" + k.Name }

// observeTrust finds out whether the verification holds. Keys that cannot be read for the
// moment change nothing.
func (c *Controller) observeTrust(ctx context.Context, a *attempt) {
	if c.o.Trust == nil {
		return
	}
	f := &a.facts
	digest, tag, err := c.o.Trust.Asked(ctx, a.key.Namespace, a.key.Name, f.repo)
	if err != nil {
		c.logOf(a).Debug("cannot read the keys of signers", "err", err)
		return
	}
	f.trust, f.signedTag = digest, tag
	if digest != api.VerificationOf(f.repo.Status.Conditions).Trust {
		f.keysChanged = c.verifiedBefore(ctx, a).Trust != cmp.Or(digest, trustNothing)
		f.unverified = !f.keysChanged && digest != ""
	}
}

// verifiedBefore returns what is stored, the zero value for nothing.
func (c *Controller) verifiedBefore(ctx context.Context, a *attempt) verified {
	m := a.memory
	if m.verified == nil {
		m.verified = &verified{}
		if c.o.Store != nil {
			data, err := c.o.Store.Fact(ctx, VerifiedKey(a.key))
			if err == nil {
				err = json.Unmarshal(data, m.verified)
			}
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				c.logOf(a).Warn("cannot read the verification", "err", err)
			}
		}
		if m.verified.UID != m.uid {
			*m.verified = verified{UID: m.uid}
		}
	}
	return *m.verified
}

// storeVerified stores it. What cannot be stored is done again by the next process.
func (c *Controller) storeVerified(ctx context.Context, a *attempt, object string) {
	a.memory.verified = &verified{UID: a.memory.uid, Trust: cmp.Or(a.facts.trust, trustNothing), Object: object}
	if c.o.Store == nil {
		return
	}
	data, err := json.Marshal(a.memory.verified)
	if err == nil {
		err = c.o.Store.PutFact(ctx, VerifiedKey(a.key), data)
	}
	if err != nil {
		c.logOf(a).Warn("cannot store the verification", "err", err)
	}
}

// dropVerified drops it with its Repository.
func (c *Controller) dropVerified(ctx context.Context, k Key) error {
	if c.o.Store == nil {
		return nil
	}
	if _, err := c.o.Store.Fact(ctx, VerifiedKey(k)); errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return c.o.Store.DeleteFact(ctx, VerifiedKey(k))
}

// signedObject returns what a signature is of: the tag object, or the commit.
func (f *facts) signedObject(ref git.Ref) string {
	if f.signedTag && ref.Tag != "" {
		return ref.Tag
	}
	return ref.Hash
}

// tagMoved reports whether a tag that the probe has asked for is another object than the
// one that was verified.
func (a *attempt) tagMoved() bool {
	f := &a.facts
	if !f.signedTag {
		return false
	}
	verdict := api.VerificationOf(f.repo.Status.Conditions)
	// One by another agent may be about another object of it.
	return verdict.Trust == f.trust && f.signedObject(a.probe.ref) != verdict.Object
}

// verifySignatures verifies what is in place with the keys of this agent, where the last
// result about it is by other ones.
func (c *Controller) verifySignatures(ctx context.Context, a *attempt) (*Result, error) {
	f := &a.facts
	if a.pull != nil || !a.healthy || !f.unverified || f.jobExists || a.probe == nil || f.repo.Status.Sync.LastRef == "" {
		return nil, nil
	}
	if err := a.probe.ask(ctx); err != nil {
		return nil, err
	}
	ref := a.probe.ref
	if a.probe.err != nil || ref.Hash != f.repo.Status.Sync.LastRef || c.verifiedBefore(ctx, a).Object == f.signedObject(ref) {
		return nil, nil // no answer; the commit is yet to be pulled; it was verified
	}
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	condition, err := c.o.Trust.Judge(limited, a.key.Namespace, a.key.Name, f.repo, a.probe.remote, ref)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		c.logOf(a).Debug("cannot verify what is in place", "err", err)
		return nil, nil
	}
	a.verifiedObject = f.signedObject(ref)
	if condition == nil {
		return nil, nil
	}
	if has, ok := f.condition(condition.Type); ok && (condition.Status == "True" || has.Status == "False") {
		return nil, nil
	}
	if condition.Status != "True" {
		c.logOf(a).Warn("signature verification failed", "err", condition.Message)
		c.report(a.key, "warn", "signature verification failed: "+condition.Message)
	}
	a.verified = condition
	return nil, nil
}
