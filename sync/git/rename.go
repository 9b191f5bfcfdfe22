package git

import (
	"bytes"
	"cmp"
	"path"
	"slices"

	"limpet/sync/git/pack"
)

// Renames are found as git finds them: first files of the same content, then a
// file whose name within its directory is unique on both sides and that is
// alike enough, then any pair, the most alike first. How alike two files are is
// the share of the larger one that is copied from the other, counted in pieces
// that end at line breaks.

const (
	fullScore     = 60000   // git's MAX_SCORE
	similarEnough = 30000   // git's default of 50 %
	byNameScore   = 45000   // for a unique file name; git asks half-way between enough and full
	maxRenameSize = 4 << 20 // bytes of a file that is compared
	maxRenamePair = 40_000  // comparisons; git allows 1000 x 1000
)

// side is a deleted or added file on its way to be paired.
type side struct {
	change *Change
	id     pack.ID
	at     int // among those of its side
	name   string
	paired bool
	size   int64            // 0 = not known yet, -1 = not to be compared
	pieces map[uint32]int64 // bytes by hash of the piece; nil = not loaded
}

func sides(changes []Change) []*side {
	out := make([]*side, len(changes))
	for i := range changes {
		c := &changes[i]
		out[i] = &side{change: c, at: i, name: path.Base(c.Path)}
		out[i].id, _ = pack.ParseID(cmp.Or(c.Hash, c.FromHash))
	}
	return out
}

// renames pairs deleted with added files and moves all into the changes.
func (d *differ) renames() error {
	olds, news := sides(d.deleted), sides(d.added)
	sameContent(olds, news)
	if err := d.byName(olds, news); err != nil {
		return err
	}
	if err := d.byContent(unpaired(olds), unpaired(news)); err != nil {
		return err
	}
	for _, s := range slices.Concat(unpaired(olds), news) {
		d.out = append(d.out, *s.change)
	}
	return nil
}

func unpaired(all []*side) []*side {
	return slices.DeleteFunc(slices.Clone(all), func(s *side) bool { return s.paired })
}

// pair makes one rename of two sides.
func pair(old, new *side) {
	old.paired, new.paired = true, true
	new.change.Type, new.change.From, new.change.FromHash = ChangeRenamed, old.change.Path, old.change.FromHash
}

// sameContent pairs equal files; of several the one of the same name, else the first.
func sameContent(olds, news []*side) {
	byID := make(map[pack.ID][]*side)
	for _, s := range olds {
		byID[s.id] = append(byID[s.id], s)
	}
	for _, n := range news {
		same := byID[n.id]
		if len(same) == 0 {
			continue
		}
		at := max(0, slices.IndexFunc(same, func(o *side) bool { return o.name == n.name }))
		pair(same[at], n)
		byID[n.id] = slices.Delete(same, at, at+1)
	}
}

// byName pairs files whose name is unique among the deleted and the added ones.
func (d *differ) byName(olds, news []*side) error {
	unique := func(all []*side) map[string]*side {
		named := make(map[string]*side)
		for _, s := range unpaired(all) {
			if _, twice := named[s.name]; twice {
				named[s.name] = nil
				continue
			}
			named[s.name] = s
		}
		return named
	}
	from := unique(olds)
	for name, n := range unique(news) {
		o := from[name]
		if o == nil || n == nil {
			continue
		}
		score, err := d.similarity(o, n)
		if err != nil {
			return err
		}
		if score >= byNameScore {
			pair(o, n)
		}
		o.pieces, n.pieces = nil, nil
	}
	return nil
}

// byContent pairs what is left, if it is not too much. Only the pieces of the
// side with fewer files are held: the other one may be a whole repository.
func (d *differ) byContent(olds, news []*side) error {
	if len(olds)*len(news) > maxRenamePair {
		return nil
	}
	type match struct {
		old, new *side
		rank     int64 // twice the score, and one more for the same name
	}
	var matches []match
	few, many := olds, news
	if len(olds) > len(news) {
		few, many = news, olds
	}
	for _, m := range many {
		for _, f := range few {
			t := match{old: f, new: m}
			if len(olds) > len(news) {
				t = match{old: m, new: f}
			}
			score, err := d.similarity(t.old, t.new)
			if err != nil {
				return err
			}
			if t.rank = 2 * score; t.old.name == t.new.name {
				t.rank++
			}
			if score >= similarEnough {
				matches = append(matches, t)
			}
		}
		m.pieces = nil
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), a.new.at-b.new.at, a.old.at-b.old.at)
	})
	for _, m := range matches {
		if !m.old.paired && !m.new.paired {
			pair(m.old, m.new)
		}
	}
	return nil
}

// similarity scores two files from 0 to fullScore.
func (d *differ) similarity(old, new *side) (int64, error) {
	for _, s := range []*side{old, new} {
		if s.size == 0 {
			size, err := d.store.Size(s.id)
			if err != nil {
				return 0, asDamage(err)
			}
			if s.size = size; size > maxRenameSize || size == 0 {
				s.size = -1
			}
		}
		if s.size < 0 {
			return 0, nil
		}
	}
	largest, least := max(old.size, new.size), min(old.size, new.size)
	if largest*(fullScore-similarEnough) < (largest-least)*fullScore {
		return 0, nil
	}
	for _, s := range []*side{old, new} {
		if s.pieces != nil {
			continue
		}
		if err := d.ctx.Err(); err != nil {
			return 0, err
		}
		data, err := d.store.ReadKind(s.id, pack.BlobKind, maxRenameSize)
		if err != nil {
			return 0, asDamage(err)
		}
		s.pieces = pieces(data)
	}
	copied := int64(0)
	for hash, n := range old.pieces {
		copied += min(n, new.pieces[hash])
	}
	return copied * fullScore / largest, nil
}

// pieces splits a file after line breaks, at the latest after 64 bytes, and sums up the
// bytes of equal pieces, with git's hash.
func pieces(data []byte) map[uint32]int64 {
	const base = 107927
	text := !bytes.Contains(data[:min(len(data), 8000)], []byte{0})
	sums := make(map[uint32]int64)
	var a1, a2 uint32
	n := int64(0)
	for i, c := range data {
		last := i == len(data)-1
		if text && c == '\r' && !last && data[i+1] == '\n' {
			continue
		}
		old := a1
		a1 = (a1<<7 ^ a2>>25) + uint32(c)
		a2 = a2<<7 ^ old>>25
		if n++; n < 64 && c != '\n' && !last {
			continue
		}
		sums[(a1+a2*0x61)%base] += n
		a1, a2, n = 0, 0, 0
	}
	return sums
}
