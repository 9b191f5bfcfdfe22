package repos

import (
	"context"

	"limpet/sync/api"
	"limpet/sync/signature"
)

// A Repository that asks for signatures has what was pulled verified anew when the
// keys, the mode or the principals are not those that it was judged by, also when its
// commit is the same; and when the tag was made anew.

// gatherTrust finds out whether the judgement holds. Keys that cannot be read for the
// moment change nothing.
func (r *reconciling) gatherTrust(ctx context.Context) {
	f := &r.facts
	f.rekeyed, f.retagged = false, false
	before := api.VerdictOf(f.repo.Status.Conditions)
	if r.o.Trust == nil || f.repo.GitVerify == "" && before.Trust == "" {
		return
	}
	now, err := r.o.Trust(ctx, r.key.Namespace, r.key.Name, f.repo)
	if err != nil {
		r.log.Debug("the keys of signers cannot be read", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		return
	}
	f.rekeyed = now != before.Trust
}

// tagMoved says that a tag that was asked for by the probe is another object than
// the one that was judged.
func (r *reconciling) tagMoved() bool {
	mode, err := signature.ParseMode(r.facts.repo.GitVerify)
	if err != nil || !mode.Tag() {
		return false
	}
	now := r.probe.ref.Tag
	if now == "" {
		now = r.probe.ref.Hash
	}
	return now != api.VerdictOf(r.facts.repo.Status.Conditions).Object
}
