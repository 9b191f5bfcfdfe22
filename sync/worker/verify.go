package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// A Repository may require signatures. Every pull verifies them after the fetch and before the plan, also a pull
// without changes: keys may have been removed since. The digest of the policy is written to the Repository with the
// result, so that the next check detects other keys or a recreated tag. An interrupted pull verifies again.

func (r *pull) trusted(ctx context.Context) (err error) {
	r.trust, err = r.o.Signers.of(ctx, r.Repository, r.src.lookup)
	switch {
	case r.trust != nil && err != nil:
		r.verified = r.trust.condition(r.ref, nil, err)
	case err == nil && r.trust == nil:
		r.verified = &api.Condition{Type: api.ConditionVerified} // no longer required: remove the condition
	}
	return err
}

// verify verifies the fetched ref, and keeps the result for the status of the Repository.
func (r *pull) verify(ctx context.Context) error {
	if r.trust == nil {
		return nil
	}
	r.Progress.SetMessage(ctx, "verify "+short(r.ref.Hash))
	found, err := r.trust.verify(ctx, r.o.Git, r.remote, r.ref, r.status.now())
	if err == nil || git.KindOf(err) == git.Unverified {
		r.verified = r.trust.condition(r.ref, found, err)
	}
	if err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Verified)
}

// verify verifies a ref in the mirror against all demands and returns its signatures.
func (t *trust) verify(ctx context.Context, g Git, remote git.Remote, ref git.Ref, now time.Time) (found []git.Verified, err error) {
	for _, d := range t.demands {
		d.Now = now
		signed, err := g.Verify(ctx, remote, ref, d.Verification)
		if err != nil {
			return nil, err
		}
		for _, one := range signed {
			if !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// condition returns the result for the status of the Repository.
func (t *trust) condition(ref git.Ref, found []git.Verified, err error) *api.Condition {
	c := &api.Condition{Type: api.ConditionVerified, Status: "True", Reason: "Verified"}
	var texts []string
	for _, one := range found {
		texts = append(texts, fmt.Sprintf("%s is signed by %s", one.Object, one.Signer))
	}
	txt := strings.Join(texts, ", ")
	if err != nil {
		c.Status, c.Reason, txt = "False", reasonOf(signature.KindOf(err)), err.Error()
		if e, ok := errors.AsType[*git.Error](err); ok {
			txt = e.Err.Error()
		}
	}
	for _, d := range t.demands {
		if d.ruled {
			txt += ", required by " + d.by
		}
	}
	verdict := api.Verification{Trust: t.digest, Object: ref.Hash}
	if t.tag() && ref.Tag != "" {
		verdict.Object = ref.Tag
	}
	c.Message = verdict.Message(text.Line(txt, maxVerdict))
	return c
}

// maxVerdict bounds the text of a condition: a key may have many owners. Unit: bytes.
const maxVerdict = 1000

// reasonOf returns a kind as the reason of a condition: UnknownKey for "unknown-key".
func reasonOf(kind signature.Kind) string {
	var out strings.Builder
	for part := range strings.SplitSeq(string(kind), "-") {
		if part != "" {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return cmp.Or(out.String(), "NotVerified")
}
