package git

import (
	"errors"
	"io/fs"
)

// Whether a commit is on a branch is for the server of Remote.URL to say. An alternate
// has a list of refs of its own, and a commit that is nowhere near the branch could be
// put under its name there. So its word counts for what comes onward from the tip that
// is known here, or comes before it, and never for what was taken back. Where no tip is
// known there is nothing to hold it against, as with a first pull.

// vouched says whether the commit may be noted as one of a branch that an alternate has
// at tip, and in whose history it was found. refs are those that were known before the
// alternate was asked. open says that more of the history has to be fetched to tell. The
// error is of kind Stale where it may not.
func (f *fetch) vouched(refs map[string]objectID, branch string, tip objectID) (open bool, err error) {
	s, err := f.mirror.use(f.limits.ObjectBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.mirror.release(s)
	k := &knowledge{call: f.call, refs: refs}
	back, open, err := s.revives(f.ctx, refs, branch, f.id)
	switch {
	case err != nil || open:
		return open, err
	case !back.IsZero():
		return false, k.refuse(kinRevives, Ref{Name: branch, Hash: f.id.String()}, back)
	}
	known, ok := refs[branch]
	if !ok {
		return false, nil
	}
	if kin, err := s.kinship(f.ctx, known, f.id); err != nil || kin == kinAhead { // it is on what is known
		return false, err
	}
	switch kin, err := s.kinship(f.ctx, tip, known); {
	case err != nil || kin == kinAhead:
		return false, err
	case kin == kinUnknown:
		return true, nil
	case kin == kinBehind: // its history is that of what is known, and the commit is in it
		return false, nil
	default:
		return false, k.refuse(kin, Ref{Name: branch, Hash: tip.String()}, known)
	}
}

// found notes that the commit is among those of a branch.
func (f *fetch) found(branch string) error {
	if f.mirrored && f.name == "" { // nobody has asked for the branch, and nobody vouches for it
		return f.keepHistory()
	}
	return f.noteBranch(branch)
}
