package repos

import (
	"fmt"
	"strings"

	"limpet/sync/api"
	"limpet/sync/git"
)

// A Repository may name a revision in place of its branch, by an annotation, and ask for
// signatures. That is no change of its spec, so it is noticed here; and what the revision stands
// for, which for a range of versions is not seen in the object, is written as a condition.

// conditionRevision is what the annotation stands for. It is limpet's own, as its prefix says.
const conditionRevision = "limpet/Revision"

// sourceAnnotations returns the annotations that a pull depends on, as one text.
func (f *facts) sourceAnnotations() string {
	return strings.Join([]string{f.repo.GitRef, f.repo.GitVerify, f.repo.GitVerifyPrincipals}, "\n")
}

// revisionCondition returns the condition to write, false for none: the remote was not asked.
func (a *attempt) revisionCondition() (api.Condition, bool) {
	switch p := a.probe; {
	case a.facts.repo.GitRef == "":
		return api.Condition{Type: conditionRevision}, true
	case p == nil || !p.asked || p.err != nil:
		return api.Condition{}, false
	}
	return api.Condition{Type: conditionRevision, Status: "True", Reason: "Selected", Message: a.probe.describeRef()}, true
}

// describeRef returns what was found, for people.
func (p *probe) describeRef() string {
	if p.repo.GitRef == "" {
		return p.ref.Branch() + " is at " + p.ref.Hash
	}
	return p.repo.GitRef + " is " + describeRef(p.ref)
}

func describeRef(ref git.Ref) string {
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
