package repos

import (
	"fmt"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// A Repository may name a revision in place of its branch, by an annotation, and ask for
// signatures. That is no change of its spec, so it is noticed here; and what the revision
// stands for, which for a range of versions is not seen in the object, is told by a
// condition.

// conditionRevision tells what the annotation stands for. It is limpet's own, as its
// prefix says.
const conditionRevision = "limpet/Revision"

// selected is what the Repository selects.
func (p *probe) selected() (gitref.Selector, error) {
	branch := ""
	if b := p.repo.Spec.Block(); b != nil {
		branch = b.Branch
	}
	return gitref.Of(p.repo.GitRef, branch)
}

// stepRef is the name of the step of a test that finds the commit.
func (p *probe) stepRef() string {
	if p.repo.GitRef != "" {
		return stepRevision
	}
	return stepBranch
}

// answered says how the remote has answered.
func (p *probe) answered() string {
	if p.ref.Stored {
		return "not asked: the commit is here and does not change"
	}
	text := answeredIn(p.took)
	if p.mirrored() {
		text += ", " + p.ref.Via.String()
	}
	return text
}

// at says what was found.
func (p *probe) at() string {
	if p.repo.GitRef == "" {
		return p.ref.Branch() + " is at " + p.ref.Hash
	}
	return p.repo.GitRef + " is " + standsFor(p.ref)
}

// standsFor tells a ref and its commit.
func standsFor(ref git.Ref) string {
	switch {
	case ref.Pinned && ref.Name == ref.Hash:
		return "commit " + ref.Hash
	case ref.Pinned:
		return "commit " + ref.Hash + " of " + ref.Short()
	case ref.Tag != "":
		return fmt.Sprintf("%s, commit %s, tag object %s", ref.Short(), ref.Hash, ref.Tag)
	}
	return ref.Short() + ", commit " + ref.Hash
}

// asks is what the annotations say that a pull depends on.
func (f *facts) asks() string {
	return strings.Join([]string{f.repo.GitRef, f.repo.GitVerify, f.repo.GitVerifyPrincipals}, "\n")
}

// gatherRevision makes a look due when the annotations are others than at the last
// look, or ask at the first one for signatures that nobody has looked for. While a pull
// is under way it waits for that to end.
func (r *reconciling) gatherRevision() {
	now := r.facts.asks()
	if r.note.asks == nil {
		before := now
		if r.facts.repo.GitVerify != "" && r.facts.repo.Status.Sync.LastRef != "" && api.VerificationOf(r.facts.repo.Status.Conditions).Trust == "" {
			before = "nothing of that"
		}
		r.note.asks = &before
	}
	if *r.note.asks != now && !r.facts.job {
		r.due.health, r.due.resync = true, r.facts.repo.Spec.Sync.Enabled
	}
}

// dealtWithRevision notes the annotation, and tells of a tag that is another one
// than before.
func (r *reconciling) dealtWithRevision() {
	asks := r.facts.asks()
	if r.facts.job && *r.note.asks != asks {
		return
	}
	r.note.asks = &asks
	if r.probe == nil || !r.probe.asked || r.probe.err != nil {
		return
	}
	before, now := r.note.ref, r.probe.ref
	now.Via = git.Via{}
	r.note.ref = now
	if strings.HasPrefix(now.Name, "refs/tags/") && before.Name == now.Name && before != now {
		r.tell(r.key, "warn", "tag moved: "+standsFor(now))
		r.log.Warn("tag was moved", "repo", r.key.Name, "namespace", r.key.Namespace, "tag", now.Short(), "commit", now.Hash, "before", before.Hash)
	}
}

// revisionTold is the condition to write, false for none: nobody was asked.
func (r *reconciling) revisionTold() (api.Condition, bool) {
	switch p := r.probe; {
	case r.facts.repo.GitRef == "":
		return api.Condition{Type: conditionRevision}, true
	case p == nil || !p.asked || p.err != nil:
		return api.Condition{}, false
	}
	return api.Condition{Type: conditionRevision, Status: "True", Reason: "Selected", Message: r.probe.at()}, true
}

// answeredIn says how long a remote took.
func answeredIn(took time.Duration) string {
	if took < time.Millisecond {
		return "answered within 1ms"
	}
	return "answered in " + took.Round(time.Millisecond).String()
}
