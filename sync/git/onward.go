package git

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"limpet/sync/git/gitref"
)

// What an alternate tells leads onward or it is not taken: a copy that lags must not
// undo what was pulled, and one with another history must not replace it. Of a branch
// or another ref the commit that is known here, and the one that was pulled last, have
// to be among the commits before the one that is told. That is read from the commits
// themselves, which name each other by hash; where the history that is here is too
// short for it, the fetch brings more. What the server of Remote.URL has taken back is not
// brought again, see withdrawn.go. Of versions, the one that is told must not be
// lower. A commit that is asked for by its hash is itself, whoever has it.
//
// What the server of Remote.URL tells is taken as it is.

// tagNote is the name under which a mirror keeps an annotated tag, the commit of which
// stands under the name of the tag.
func tagNote(name string) string { return ownPrefix + "tags/" + name }

// ownPrefix begins the names of refs that no server has.
const ownPrefix = "refs/limpet/"

// staleError is an alternate that leads nowhere.
type staleError struct {
	why  string
	keep Ref // what is here; the zero Ref where that is not to be used
}

func (e *staleError) Error() string { return "it " + e.why }

// refusal is a tip that an alternate has told and that was fetched and not taken.
type refusal struct {
	tip, after string
	kin        kinship
}

// knowledge is what the directory holds of what an alternate is asked about.
type knowledge struct {
	call  *call
	refs  map[string]objectID
	store *store   // nil when there is none that can be read
	last  objectID // Alternates.Last; zero for none
}

// known opens it. What is damaged or missing is as if it were not known.
func (c *call) known() (k *knowledge, done func(), err error) {
	k, done = &knowledge{call: c}, func() {}
	k.last, _ = parseID(c.past)
	mi := c.m.mirror(c.home)
	if mi.isDamaged() {
		return k, done, nil
	}
	if k.refs, err = readRefs(mi.dir); err == nil {
		k.store, err = mi.use(c.limits.ObjectBytes)
	}
	switch {
	case err == nil:
		return k, func() { mi.release(k.store) }, nil
	case errors.Is(err, errDamaged), errors.Is(err, fs.ErrNotExist):
		return k, done, nil
	}
	return nil, nil, err
}

// told is choose for an alternate.
func (c *call) told(adv *packp.AdvRefs, sel gitref.Selector) (Ref, error) {
	if sel.Commit != "" {
		return choose(c.ctx, adv, sel)
	}
	k, done, err := c.known()
	if err != nil {
		return Ref{}, err
	}
	defer done()
	if sel.SemVer != "" {
		adv = k.without(adv)
	}
	ref, err := choose(c.ctx, adv, sel)
	if err != nil && c.ctx.Err() != nil {
		return ref, err
	}
	if err != nil { // it has no such ref, or none yet
		return Ref{}, k.stale(nameOfRef(sel), "has less than is asked for: "+reason(err))
	}
	if sel.SemVer != "" {
		if err := k.notLower(adv, sel, ref); err != nil {
			return Ref{}, err
		}
	}
	return k.judge(ref, k.before(adv, sel, ref))
}

// nameOfRef is the full name of what is selected, "" where the server chooses it.
func nameOfRef(sel gitref.Selector) string {
	switch {
	case sel.Branch != "":
		return headPrefix + sel.Branch
	case sel.Tag != "":
		return tagPrefix + sel.Tag
	}
	return sel.Name
}

// before are the commits that a tip has to come after, but itself.
func (k *knowledge) before(adv *packp.AdvRefs, sel gitref.Selector, ref Ref) (after []objectID) {
	tip, _ := parseID(ref.Hash)
	own, known := k.refs[ref.Name]
	if known && own != tip {
		after = append(after, own)
	}
	if k.last.IsZero() || k.last == tip || slices.Contains(after, k.last) {
		return after
	}
	// Where another ref stands for what was pulled, somebody has chosen anew since.
	another := false
	for name, id := range k.refs {
		another = another || id == k.last && name != ref.Name
	}
	switch {
	case sel.SemVer != "", sel.Tag != "" && (known || has(adv, k.last)), another && sel != (gitref.Selector{}):
		return after
	}
	return append(after, k.last)
}

// has says whether a server has a ref at a commit.
func has(adv *packp.AdvRefs, commit objectID) bool {
	for name, id := range adv.References {
		if peeled, ok := adv.Peeled[name]; id == commit || ok && peeled == commit {
			return true
		}
	}
	return false
}

// notLower refuses a version that is lower than the one that was pulled last.
func (k *knowledge) notLower(adv *packp.AdvRefs, sel gitref.Selector, ref Ref) error {
	var tags []string
	for name, id := range k.refs {
		if tag, ok := strings.CutPrefix(name, tagPrefix); ok && id == k.last {
			tags = append(tags, tag)
		}
	}
	told := strings.TrimPrefix(ref.Name, tagPrefix)
	found, err := sel.Newest(slices.Values(append(slices.Clone(tags), told)))
	if err != nil {
		return &Error{Kind: Refused, Err: err}
	}
	switch {
	case found.Tag != "" && found.Tag != told:
		return k.stale(tagPrefix+found.Tag, fmt.Sprintf("has no newer version than %s, and %s is here", clean(told, 80), clean(found.Tag, 80)))
	case len(tags) == 0 && !k.last.IsZero() && ref.Hash != k.last.String() && !has(adv, k.last):
		return k.stale("", fmt.Sprintf("has not got the version that was pulled last, commit %.7s", k.last))
	}
	return nil
}

// judge finds out whether a tip comes after some commits, as far as that can be told
// without asking anybody.
func (k *knowledge) judge(ref Ref, after []objectID) (Ref, error) {
	tip, _ := parseID(ref.Hash)
	var open []string
	for _, id := range after {
		kin := kinUnknown
		if k.store != nil {
			var err error
			if kin, err = k.store.kinship(k.call.ctx, tip, id); err != nil {
				return Ref{}, err
			}
		}
		if known := k.call.m.mirror(k.call.home).refusedTip(k.call.url()); kin == kinUnknown && known.tip == ref.Hash && known.after == id.String() {
			kin = known.kin
		}
		switch kin {
		case kinAhead:
		case kinUnknown:
			open = append(open, id.String())
		default:
			return Ref{}, k.refuse(kin, ref, id)
		}
	}
	if len(open) == 0 && k.store != nil {
		switch back, more, err := k.store.revives(k.call.ctx, k.refs, ref.Name, tip); {
		case err != nil:
			return Ref{}, err
		case !back.IsZero():
			return Ref{}, k.refuse(kinRevives, ref, back)
		case more:
			open = append(open, k.refs[ref.Name].String())
		}
	}
	ref.Via.After = strings.Join(open, " ")
	return ref, nil
}

// refuse is the error for a tip that does not come after a commit.
func (k *knowledge) refuse(kin kinship, ref Ref, after objectID) error {
	switch kin {
	case kinBehind:
		return k.stale(ref.Name, fmt.Sprintf("is behind: it has %s at %.7s, and %.7s is here", clean(ref.Short(), 80), ref.Hash, after))
	case kinRevives:
		if after.String() == ref.Hash {
			return k.stale(ref.Name, fmt.Sprintf("has %s at %.7s, which its own host has taken back", clean(ref.Short(), 80), ref.Hash))
		}
		return k.stale(ref.Name, fmt.Sprintf("has %.7s before its %s at %.7s, which its own host has taken back", after, clean(ref.Short(), 80), ref.Hash))
	case kinApart:
		return k.stale("", fmt.Sprintf("has another history: its %s at %.7s does not come after %.7s, which is here", clean(ref.Short(), 80), ref.Hash, after))
	}
	return k.stale(ref.Name, fmt.Sprintf("has not got commit %.7s, which is here, before its %s at %.7s: it is behind, or has another history", after, clean(ref.Short(), 80), ref.Hash))
}

// stale is the error for an alternate that leads nowhere. What is here under a name is
// kept, unless something newer was pulled elsewhere.
func (k *knowledge) stale(name, why string) error {
	e := &staleError{why: why}
	own, ok := k.refs[name]
	if ok && k.store != nil {
		ok, _ = k.store.has(own)
	}
	if ok && k.store != nil && !k.last.IsZero() && k.last != own {
		kin, err := k.store.kinship(k.call.ctx, own, k.last)
		ok = err == nil && kin == kinAhead
	}
	if ok && k.store != nil {
		e.keep = Ref{Name: name, Hash: own.String()}
		if tag, annotated := k.refs[tagNote(name)]; annotated {
			e.keep.Tag = tag.String()
		}
	}
	return &Error{Kind: Stale, Err: e, Hint: "nothing is taken from it until it has what is here"}
}

// refusedTip is the last tip of a server that was not taken.
func (m *mirror) refusedTip(url string) refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused[url]
}

// refuseTip notes it. There are as many as a Remote has servers.
func (m *mirror) refuseTip(url string, r refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused == nil {
		m.refused = map[string]refusal{}
	}
	m.refused[url] = r
}
