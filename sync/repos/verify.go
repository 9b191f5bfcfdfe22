package repos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
)

// A Repository that asks for signatures has what was pulled verified anew when the
// keys, the mode or the principals are not those that it was judged by, also when its
// commit is the same; and when the tag was made anew. A pull does it, and is asked for
// once: it may be run by another agent, whose keys are others and which says so in the
// status. Then this controller judges by its own keys what is in place, once for each
// object, and writes only that it is not good. So agents with different keys do not ask
// for pulls in turn, and of several opinions the one that refuses stays.

// Trust is what is asked of signatures in a Repository.
type Trust interface {
	// Asked is a text that changes with what is asked and with the keys, "" for nothing,
	// and says whether a tag object has to be signed.
	Asked(ctx context.Context, namespace, name string, repo api.Repository) (digest string, tag bool, err error)
	// Judge says whether a ref is signed as it has to be, as a condition; nil where that
	// cannot be told here. It fetches what it needs.
	Judge(ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref) (*api.Condition, error)
}

// judged is what a controller keeps about its own part in that.
type judged struct {
	UID    string `json:"uid"`
	Trust  string `json:"trust"`  // by which a pull was asked for; nothingAsked for one that asks for nothing
	Object string `json:"object"` // that was judged by it since, besides the pull
}

const nothingAsked = "-"

// JudgedKey is where that is kept among the facts of the state file.
func JudgedKey(k Key) string { return "judged/" + k.Namespace + "/" + k.Name }

// FactStore is what is needed of the state file for a fact. *state.Store is one.
type FactStore interface {
	Fact(ctx context.Context, key string) ([]byte, error)
	PutFact(ctx context.Context, key string, data []byte) error
	DeleteFact(ctx context.Context, key string) error
}

var _ FactStore = (*state.Store)(nil)

// gatherTrust finds out whether the judgement holds. Keys that cannot be read for the
// moment change nothing.
func (r *reconciling) gatherTrust(ctx context.Context) {
	f := &r.facts
	f.rekeyed, f.retagged, f.unjudged = false, false, false
	before := api.VerificationOf(f.repo.Status.Conditions)
	if r.o.Trust == nil {
		return
	}
	now, tag, err := r.o.Trust.Asked(ctx, r.key.Namespace, r.key.Name, f.repo)
	if err != nil {
		r.log.Debug("the keys of signers cannot be read", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		return
	}
	f.trust, f.signedTag = now, tag
	if now == before.Trust {
		return
	}
	f.rekeyed = r.judgedBefore(ctx).Trust != cmp.Or(now, nothingAsked)
	f.unjudged = !f.rekeyed && now != ""
}

// judgedBefore is what is kept, the zero value for nothing.
func (r *reconciling) judgedBefore(ctx context.Context) judged {
	n := r.note
	if n.judged == nil {
		n.judged = &judged{}
		if r.o.Judged != nil {
			data, err := r.o.Judged.Fact(ctx, JudgedKey(r.key))
			if err == nil {
				err = json.Unmarshal(data, n.judged)
			}
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				r.log.Warn("cannot read what was judged", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
			}
		}
		if n.judged.UID != string(r.obj.GetUID()) {
			*n.judged = judged{UID: string(r.obj.GetUID())}
		}
	}
	return *n.judged
}

// keepJudged keeps it. What cannot be kept is done again by the next process.
func (r *reconciling) keepJudged(ctx context.Context, trust, object string) {
	*r.note.judged = judged{UID: string(r.obj.GetUID()), Trust: cmp.Or(trust, nothingAsked), Object: object}
	if r.o.Judged == nil {
		return
	}
	data, err := json.Marshal(r.note.judged)
	if err == nil {
		err = r.o.Judged.PutFact(ctx, JudgedKey(r.key), data)
	}
	if err != nil {
		r.log.Warn("cannot keep what was judged", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
	}
}

// forgetJudged drops it with its Repository.
func (c *Controller) forgetJudged(ctx context.Context, k Key) error {
	if c.o.Judged == nil {
		return nil
	}
	if _, err := c.o.Judged.Fact(ctx, JudgedKey(k)); errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return c.o.Judged.DeleteFact(ctx, JudgedKey(k))
}

// object is what a signature is of: the tag object, or the commit.
func (f *facts) object(ref git.Ref) string {
	if f.signedTag && ref.Tag != "" {
		return ref.Tag
	}
	return ref.Hash
}

// tagMoved says that a tag that was asked for by the probe is another object than
// the one that was judged.
func (r *reconciling) tagMoved() bool {
	f := &r.facts
	if !f.signedTag {
		return false
	}
	verdict := api.VerificationOf(f.repo.Status.Conditions)
	if verdict.Trust != f.trust { // by another agent, which may have judged something else of it
		return false
	}
	return f.object(r.probe.ref) != verdict.Object
}

// judge judges what is in place by the keys of this agent, where the last word about it
// is by other ones. It returns what is to be told, nil for nothing.
func (r *reconciling) judge(ctx context.Context) (*api.Condition, error) {
	f := &r.facts
	if !f.unjudged || f.job || r.probe == nil || f.repo.Status.Sync.LastRef == "" {
		return nil, nil
	}
	if err := r.probe.ask(ctx); err != nil {
		return nil, err
	}
	ref := r.probe.ref
	if r.probe.err != nil || ref.Hash != f.repo.Status.Sync.LastRef || r.judgedBefore(ctx).Object == f.object(ref) {
		return nil, nil // nobody answers; the commit is yet to be pulled; it was judged
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	said, err := r.o.Trust.Judge(limited, r.key.Namespace, r.key.Name, f.repo, r.probe.remote, ref)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		r.log.Debug("what is in place cannot be verified", "repo", r.key.Name, "namespace", r.key.Namespace, "err", err)
		return nil, nil
	}
	r.judgedNow = f.object(ref)
	if said == nil {
		return nil, nil
	}
	for _, c := range f.repo.Status.Conditions {
		if c.Type == said.Type && (said.Status == "True" || c.Status == "False") {
			return nil, nil
		}
	}
	if said.Status != "True" {
		r.log.Warn("what was pulled is not signed by whom it has to be", "repo", r.key.Name, "namespace", r.key.Namespace, "err", said.Message)
		r.tell(r.key, "warn", "not signed as it has to be: "+said.Message)
	}
	return said, nil
}
