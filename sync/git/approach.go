package git

import (
	"context"
	"errors"
	"io/fs"
	"slices"
)

// How a commit is fetched from an alternate. Objects go into the mirror as they come,
// since their names are their content; no name leads to the commit before it is seen
// to come after those that it has to. The mirror is never thrown away for it, unless it
// is damaged, and then for one in which that was seen.

// errLacking says that an alternate has none of the commits that are here.
var errLacking = errors.New("it knows no commit that is here")

// errOpen says that the history that was fetched is too short to tell.
var errOpen = errors.New("its history was not fetched far enough")

// onward fetches from an alternate. The caller has the mirror's turn.
func (f *fetch) onward() error {
	err := f.approach()
	if s, ok := errors.AsType[*staleError](err); ok {
		f.m.log.Warn("a mirror leads nowhere", "url", f.url(), "why", s.why)
	}
	return err
}

func (f *fetch) approach() error {
	if len(f.after) == 0 { // it is known to be what is wanted
		return f.run()
	}
	old, err := f.mirror.use(f.limits.ObjectBytes)
	switch damaged := f.mirror.isDamaged() || errors.Is(err, errDamaged); {
	case err == nil:
		defer f.mirror.release(old)
		if !damaged {
			return f.steps(old)
		}
	case !errors.Is(err, fs.ErrNotExist) && !damaged:
		return err
	}
	f.stats.Full = true
	for _, f.depth = range growth {
		if err = f.afresh(); !errors.Is(err, errOpen) {
			break
		}
	}
	return f.tooFar(err)
}

// steps fetches the difference to what is here, and then more and more of the history.
func (f *fetch) steps(old *store) error {
	there, err := f.there(old)
	if err != nil {
		return err
	}
	depths := slices.Concat([]int{0}, growth)
	if err = errOpen; there {
		err, depths = f.follows(f.mirror.dir), growth
	}
	for _, f.depth = range depths {
		if !errors.Is(err, errOpen) {
			break
		}
		if err = f.step(); err == nil {
			err = f.follows(f.mirror.dir)
		} else if errors.Is(err, errNotWhole) {
			err = errOpen
		}
	}
	if err != nil {
		return f.tooFar(err)
	}
	f.gather(len(old.packs))
	return f.remember()
}

// step is one fetch into the mirror, which gets no name.
func (f *fetch) step() error {
	old, err := f.mirror.use(f.limits.ObjectBytes)
	if err != nil {
		return err
	}
	defer f.mirror.release(old)
	refs, shallows, _, err := f.state()
	if err != nil {
		return err
	}
	one := fetch{call: f.call, mirror: f.mirror, id: f.id, tag: f.tag, depth: f.depth, stats: f.stats}
	defer func() { f.stats = one.stats }()
	w := want{id: f.wants(), shallows: shallows, depth: f.depth}
	line := map[string]objectID{f.name: refs[f.name]}
	for _, id := range f.after {
		line[id.String()] = id
	}
	if w.haves = haves(old, line, f.name); f.depth == 0 {
		one.kin = len(w.haves) > 0 && f.addr.Scheme != "file" && !f.dear()
	}
	if len(w.haves) == 0 {
		w.haves, w.depth = haves(old, refs, ""), max(f.depth, 1)
	}
	if f.dear() {
		return one.alone(old, shallows, nil)
	}
	err = one.receive(f.mirror.dir, old, w, f.limits.PackBytes)
	switch {
	case errors.Is(err, errLacking):
		return f.leadsNowhere(kinLacking, f.after[0])
	case one.undone(err):
		return one.alone(old, shallows, err)
	}
	return err
}

// follows says whether the commit comes after those that it has to, as far as the
// repository in dir tells. errOpen is not known yet.
func (f *fetch) follows(dir string) error {
	if len(f.after) == 0 {
		return nil
	}
	s, err := openStore(dir, f.limits.ObjectBytes)
	if err != nil {
		return err
	}
	defer s.close()
	for _, after := range f.after {
		if f.id == after {
			continue
		}
		kin, err := s.kinship(f.ctx, f.id, after)
		switch {
		case err != nil:
			return err
		case kin == kinUnknown:
			return errOpen
		case kin != kinAhead:
			return f.leadsNowhere(kin, after)
		}
	}
	refs, err := readRefs(f.mirror.dir)
	if err != nil { // there is no mirror yet, or none that is of use
		return nil
	}
	switch back, open, err := s.revives(f.ctx, refs, f.name, f.id); {
	case err != nil:
		return err
	case open:
		return errOpen
	case !back.IsZero():
		return f.leadsNowhere(kinRevives, back)
	}
	return nil
}

// leadsNowhere notes that a tip is not taken, so that the next look knows.
func (f *fetch) leadsNowhere(kin kinship, after objectID) error {
	k, done, err := f.known()
	if err != nil {
		return err
	}
	defer done()
	f.mirror.refuseTip(f.url(), refusal{f.id.String(), after.String(), kin})
	return k.refuse(kin, Ref{Name: f.name, Hash: f.id.String()}, after)
}

// tooFar is the error for a history that cannot be fetched as far as it has to be.
func (f *fetch) tooFar(err error) error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	large, isLarge := errors.AsType[*TooLargeError](err)
	if !errors.Is(err, errOpen) && !(isLarge && f.depth > 1) {
		return err
	}
	if isLarge {
		f.m.log.Warn("the history of a mirror is too large to be looked through", "url", f.url(), "err", large)
	}
	return f.leadsNowhere(kinLacking, f.after[0])
}
