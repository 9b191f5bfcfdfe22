package repos

import (
	"context"

	"limpet/sync/api"
	"limpet/sync/git"
)

// A Repository that asks for signatures has what was pulled verified anew, by a pull, when
// the keys, the mode or the principals are not those that it was verified by, also when
// its commit is the same; and when the tag was made anew. The pull may be run by another
// agent, whose keys are others and which says so in the status: so it is queued once for
// each set of keys, and agents with different keys do not queue pulls in turn.

// observeTrust finds out whether the verification holds. Keys that cannot be read for the
// moment change nothing.
func (s syncPlan) observeTrust(ctx context.Context, a *attempt) {
	if s.trust == nil {
		return
	}
	f := &a.facts
	digest, tag, err := s.trust.Asked(ctx, a.key.Namespace, a.key.Name, f.repo)
	if err != nil {
		s.logOf(a).Debug("cannot read the keys of signers", "err", err)
		return
	}
	f.trust, f.signedTag = digest, tag
	queued := a.memory.verifiedFor
	f.keysChanged = digest != api.VerificationOf(f.repo.Status.Conditions).Trust && (queued == nil || *queued != digest)
}

// tagMoved reports whether a tag that the probe has asked for is another object than the
// one that was verified. A verification by another agent may be about another object.
func (f *facts) tagMoved(ref git.Ref) bool {
	object, verified := ref.Hash, api.VerificationOf(f.repo.Status.Conditions)
	if ref.Tag != "" {
		object = ref.Tag
	}
	return f.signedTag && verified.Trust == f.trust && verified.Object != object
}
